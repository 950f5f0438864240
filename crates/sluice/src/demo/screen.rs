//! The account as text: a picture that is redrawn on a terminal, one line a second elsewhere.

use std::time::Duration;

use sluice_loadgen::Signal;

use crate::cli::say;

use super::account::{Flow, History, Rates, Snapshot};
use super::plan::Plan;

/// Quick enough to look alive, slow enough to be read.
const REDRAW: Duration = Duration::from_millis(250);

/// Without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Cuts long lines instead of wrapping them, which would break the redrawing.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const CLEAR_BELOW: &str = "\x1b[J";

/// Where the account is shown.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: bool,
    /// Lines on the terminal to be drawn over.
    drawn: usize,
}

impl Screen {
    /// A terminal understands ANSI sequences; anything else gets lines.
    pub fn new(terminal: bool) -> Self {
        Self { terminal, drawn: 0 }
    }

    /// How often there is something new to show.
    pub fn period(&self) -> Duration {
        if self.terminal { REDRAW } else { LINE_EVERY }
    }

    /// Shows the latest of the history.
    pub fn show(&mut self, history: &History, plan: &Plan) {
        let Some(now) = history.last() else { return };
        let rates = history.rates();
        if !self.terminal {
            // At the very start there is nothing to tell.
            if now.elapsed >= LINE_EVERY / 2 {
                say(format_args!("{}", line(now, &rates)));
            }
            return;
        }
        let picture = picture(now, &rates, plan);
        let up = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r"),
        };
        say(format_args!("{NO_WRAP}{up}{CLEAR_BELOW}{picture}{WRAP}"));
        self.drawn = picture.lines().count();
    }
}

/// One line of the account.
pub(super) fn line(now: &Snapshot, rates: &Rates) -> String {
    let total = now.total();
    format!(
        "{:>4.0} s  sent {} ({}/s)  delivered {} ({}/s)  queued {} ({})  memory {}  cpu {}  refused {}  ledger {}",
        now.elapsed.as_secs_f64(),
        count(total.sent),
        count(rates.sent.iter().sum::<f64>().round() as u64),
        count(total.delivered),
        count(rates.delivered.iter().sum::<f64>().round() as u64),
        count(total.queued),
        bytes(now.queue_bytes),
        optional(now.resident_bytes, bytes),
        optional(rates.cores, |cores| format!("{cores:.2} cores")),
        count(now.refused),
        if now.balanced {
            "balances"
        } else {
            "DOES NOT BALANCE"
        },
    )
}

/// The whole account.
pub(super) fn picture(now: &Snapshot, rates: &Rates, plan: &Plan) -> String {
    let mut text = format!(
        "{:>6.1} of {} s    sent/s  delivered/s         sent     accepted    delivered   queued  dropped\n",
        now.elapsed.min(plan.duration).as_secs_f64(),
        plan.duration.as_secs_f64()
    );
    let indent = text.find("sent/s").unwrap_or_default();
    let mut row = |name: &str, flow: &Flow, sent: f64, delivered: f64| {
        text.push_str(&format!(
            "  {name:<width$}{:>8}  {:>11} {:>12} {:>12} {:>12} {:>8} {:>8}\n",
            count(sent.round() as u64),
            count(delivered.round() as u64),
            count(flow.sent),
            count(flow.accepted),
            count(flow.delivered),
            count(flow.queued),
            count(flow.dropped),
            width = indent.saturating_sub(4),
        ));
    };
    for signal in Signal::ALL {
        let at = signal.index();
        row(signal.name(), &now.flows[at], rates.sent[at], rates.delivered[at]);
    }
    row(
        "together",
        &now.total(),
        rates.sent.iter().sum(),
        rates.delivered.iter().sum(),
    );
    text.push_str(&format!(
        "\n  queue     {}, the oldest for {:.2} s\n  refused   {} requests, retried when told\n  memory    {} resident; {} reserved of a budget of {}\n  cpu       {} (gateway and load generator together)\n  disk      {} of at most {}\n  ledger    {}",
        bytes(now.queue_bytes),
        now.queue_age_seconds,
        count(now.refused),
        optional(now.resident_bytes, bytes),
        bytes(now.budget_used),
        bytes(now.budget_capacity),
        optional(rates.cores, |cores| format!("{cores:.2} cores")),
        bytes(now.disk_bytes),
        bytes(plan.max_disk_bytes),
        ledger(now.balanced),
    ));
    text
}

fn ledger(balanced: bool) -> &'static str {
    match balanced {
        true => "balances: accepted = delivered + dropped + queued",
        false => "DOES NOT BALANCE",
    }
}

fn optional<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), text)
}

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in the largest unit that leaves a whole number.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    match UNITS.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => format!("{bytes} B"),
    }
}
