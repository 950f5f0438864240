//! What was measured, and what it comes to: medians, spreads, ratios. JSON and Markdown; see `html` for
//! people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::measure::Figures;
use super::scenario::Mode;

/// One measurement, or why there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) scenario: String,
    pub(crate) mode: Mode,
    pub(crate) gateway: String,
    pub(crate) repeat: u32,
    pub(crate) figures: Option<Figures>,
    pub(crate) error: Option<String>,
    /// The gateway does not do this work, as the error says: it is no fault of it.
    #[serde(default)]
    pub(crate) not_its_work: bool,
}

/// What a report says of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) scenario: String,
    pub(crate) about: String,
    pub(crate) items: String,
    pub(crate) rate: u64,
    pub(crate) items_per_request: u32,
    pub(crate) connections: u32,
    /// Whether items are told apart in the saturated mode too.
    pub(crate) saturated_by_id: bool,
}

/// Everything that is known after a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) taken: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
    pub(crate) repeats: u32,
    /// The gateways that ratios refer to: in each table to the first of them that is in it, else to the first gateway.
    #[serde(default)]
    pub(crate) baselines: Vec<String>,
    /// Whether generator and sink share the cores of the gateway in the modes with two cores.
    pub(crate) shared_cores: bool,
    pub(crate) works: Vec<Work>,
    /// Gateways whose work is not equal, and why.
    pub(crate) remarks: Vec<(String, String)>,
    /// Gateways that could not be found, and what was tried.
    pub(crate) absent: Vec<(String, String)>,
    pub(crate) samples: Vec<Sample>,
}

/// A figure over all repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return Spread::default(),
            len if len % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Spread {
            median,
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

/// One gateway in one table.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) gateway: &'a str,
    pub(crate) figures: Vec<&'a Figures>,
    /// CPU per item, or speed where that is what is measured, divided by the baseline's in the same repeat.
    pub(crate) cpu_ratio: Option<Spread>,
    pub(crate) speed_ratio: Option<Spread>,
    pub(crate) error: Option<&'a str>,
}

impl Row<'_> {
    pub(crate) fn spread(&self, figure: impl Fn(&Figures) -> f64) -> Spread {
        Spread::of(self.figures.iter().map(|figures| figure(figures)).collect())
    }

    fn sum(&self, figure: impl Fn(&Figures) -> u64) -> u64 {
        self.figures.iter().map(|figures| figure(figures)).sum()
    }

    /// What became of the accepted items, in words.
    pub(crate) fn fate(&self) -> String {
        let lost = self.sum(|figures| figures.account.lost);
        let duplicated = self.sum(|figures| figures.account.duplicated);
        let strange =
            self.sum(|figures| figures.account.unknown + figures.account.unmarked + figures.malformed);
        let sent = self.sum(|figures| figures.account.sent);
        let mut fate = if lost == 0 {
            "all".to_string()
        } else {
            format!(
                "{:.2}%: {} lost",
                100.0 * (sent - lost) as f64 / sent.max(1) as f64,
                grouped(lost as f64)
            )
        };
        if self.figures.iter().all(|figures| figures.account.by_id) {
            match duplicated {
                0 if lost == 0 => fate += ", once",
                0 => {}
                duplicated => {
                    let _ = write!(fate, ", {} twice", grouped(duplicated as f64));
                }
            }
        } else {
            fate += ", by number";
        }
        if strange > 0 {
            let _ = write!(fate, ", {} not as sent", grouped(strange as f64));
        }
        fate
    }
}

/// One scenario in one mode.
#[derive(Clone, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) work: &'a Work,
    pub(crate) mode: Mode,
    /// What ratios are made with; empty where nothing was measured.
    pub(crate) baseline: &'a str,
    pub(crate) rows: Vec<Row<'a>>,
}

impl Report {
    /// All tables, in the order they were measured.
    pub(crate) fn tables(&self) -> Vec<Table<'_>> {
        let mut tables: Vec<Table<'_>> = Vec::new();
        for sample in &self.samples {
            let Some(work) = self.works.iter().find(|work| work.scenario == sample.scenario) else {
                continue;
            };
            let known =
                |table: &Table<'_>| table.work.scenario == sample.scenario && table.mode == sample.mode;
            if !tables.iter().any(known) {
                let (baseline, rows) = self.rows(&sample.scenario, sample.mode);
                tables.push(Table {
                    work,
                    mode: sample.mode,
                    baseline,
                    rows,
                });
            }
        }
        tables
    }

    /// What should not have happened: the gateway, and which measurement and what, in words. That a gateway lost
    /// things, delivered them twice or altered them, delivered nothing, could not be measured, or is not there.
    pub(crate) fn faults(&self) -> Vec<(&str, String)> {
        let wrong = |sample: &Sample| match &sample.figures {
            Some(figures) => wrong(figures, sample.mode),
            None if sample.not_its_work => None,
            None => Some(format!(
                "not measured: {}",
                sample.error.as_deref().unwrap_or("unknown")
            )),
        };
        let measured = self.samples.iter().filter_map(|sample| {
            let wrong = wrong(sample)?;
            let (mode, repeat) = (sample.mode.name(), sample.repeat + 1);
            let fault = format!(
                "{}, {mode}, {} #{repeat}: {wrong}",
                sample.scenario, sample.gateway
            );
            Some((sample.gateway.as_str(), fault))
        });
        let absent = self.absent.iter();
        let absent =
            absent.map(|(gateway, error)| (gateway.as_str(), format!("{gateway} is absent: {error}")));
        measured.chain(absent).collect()
    }

    /// The baseline of a table, and its rows.
    fn rows(&self, scenario: &str, mode: Mode) -> (&str, Vec<Row<'_>>) {
        let samples = || {
            let all = self.samples.iter();
            all.filter(move |sample| sample.scenario == scenario && sample.mode == mode)
        };
        let mut gateways: Vec<&str> = Vec::new();
        // The first repeat has everybody in the order they were asked for.
        for sample in samples() {
            if !gateways.contains(&sample.gateway.as_str()) {
                gateways.push(&sample.gateway);
            }
        }
        let is_measured =
            |gateway: &str| samples().any(|sample| sample.gateway == gateway && sample.figures.is_some());
        let named = self.baselines.iter().map(String::as_str);
        let mut candidates = named.chain(gateways.iter().copied());
        let baseline = candidates
            .find(|gateway| is_measured(gateway))
            .unwrap_or_default();
        let ratio = |gateway: &str, figure: fn(&Figures) -> f64| {
            let of = |gateway: &str, repeat: u32| {
                let mut same =
                    samples().filter(|sample| sample.gateway == gateway && sample.repeat == repeat);
                same.find_map(|sample| sample.figures.as_ref()).map(figure)
            };
            let ratios: Vec<f64> = (0..self.repeats)
                .filter_map(|repeat| Some(of(gateway, repeat)? / of(baseline, repeat)?))
                .filter(|ratio| ratio.is_finite())
                .collect();
            (!ratios.is_empty()).then(|| Spread::of(ratios))
        };
        let rows = gateways
            .iter()
            .map(|&gateway| {
                let own = || samples().filter(|sample| sample.gateway == gateway);
                Row {
                    gateway,
                    figures: own().filter_map(|sample| sample.figures.as_ref()).collect(),
                    cpu_ratio: ratio(gateway, |figures| figures.cpu_per_million),
                    speed_ratio: ratio(gateway, |figures| figures.delivered_per_second),
                    error: own().find_map(|sample| sample.error.as_deref()),
                }
            })
            .collect();
        (baseline, rows)
    }

    /// How much one core more brings each gateway: its speed on two cores divided by that on one.
    pub(crate) fn scaling(&self) -> Vec<(&str, &str, f64)> {
        let tables = self.tables();
        let mut found = Vec::new();
        for two in tables.iter().filter(|table| table.mode == Mode::Scaling) {
            let one = tables
                .iter()
                .find(|table| table.mode == Mode::Saturated && table.work.scenario == two.work.scenario);
            for row in &two.rows {
                let before = one.and_then(|one| one.rows.iter().find(|before| before.gateway == row.gateway));
                let speed = |row: &Row<'_>| row.spread(|figures| figures.delivered_per_second).median;
                if let Some(before) = before.map(speed).filter(|before| *before > 0.0) {
                    found.push((two.work.scenario.as_str(), row.gateway, speed(row) / before));
                }
            }
        }
        // The names live in the report, not in the tables made of it.
        let own = |name: &str| {
            self.samples
                .iter()
                .flat_map(|sample| [&sample.scenario, &sample.gateway])
                .find(|own| *own == name)
        };
        found
            .into_iter()
            .filter_map(|(scenario, gateway, factor)| {
                Some((own(scenario)?.as_str(), own(gateway)?.as_str(), factor))
            })
            .collect()
    }

    /// The tables for a README.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "{}; {}, {} cores, {:.0} GiB, Linux {}{}. {} repeat{} of {:.0} s after {:.0} s of warm-up, gateways in turn; \
             median, with least and most. Load average before: {}. CPU time by {}.\n\n`{}`\n",
            self.taken,
            self.machine.processor,
            self.machine.cores,
            self.machine.memory_gib,
            self.machine.kernel,
            if self.machine.hypervisor { ", virtual" } else { "" },
            self.repeats,
            if self.repeats == 1 { "" } else { "s" },
            self.seconds,
            self.warm_up_seconds,
            self.machine.load_before,
            self.machine.accounting,
            self.command,
        );
        for table in self.tables() {
            let work = table.work;
            let _ = write!(
                text,
                "\n### {}, {}\n\n{}",
                work.scenario,
                table.mode.name(),
                heading(self, &table)
            );
            text += &Grid::of(&table).markdown();
        }
        let scaling = self.scaling();
        if !scaling.is_empty() {
            text += "\n### From one core to two\n\n| scenario | gateway | times as fast |\n|---|---|---|\n";
            for (scenario, gateway, factor) in scaling {
                let _ = writeln!(text, "| {scenario} | {gateway} | {factor:.2} |");
            }
        }
        if !self.remarks.is_empty() || !self.absent.is_empty() {
            text += "\n";
        }
        for (gateway, remark) in &self.remarks {
            let _ = writeln!(text, "- {gateway}: {remark}");
        }
        for (gateway, error) in &self.absent {
            let _ = writeln!(text, "- {gateway} is absent: {error}");
        }
        text
    }
}

/// What is wrong with what was delivered, in words.
fn wrong(figures: &Figures, mode: Mode) -> Option<String> {
    let account = &figures.account;
    let nothing = mode != Mode::Idle && figures.delivered == 0;
    let found = [
        (account.lost, "lost"),
        (account.duplicated, "delivered twice"),
        (
            account.unknown + account.unmarked,
            "delivered that were never sent",
        ),
        (figures.malformed, "requests that cannot be read"),
    ];
    let found = found.iter().filter(|(number, _)| *number > 0);
    let mut words: Vec<_> = found.map(|(number, what)| format!("{number} {what}")).collect();
    if nothing {
        words.push("nothing delivered".into());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// What a table is about, in a sentence.
pub(crate) fn heading(report: &Report, table: &Table<'_>) -> String {
    let work = table.work;
    let requests = format!(
        "{}; requests of {} {}, {} connections",
        work.about, work.items_per_request, work.items, work.connections
    );
    let shared = if report.shared_cores {
        ", which generator and sink share"
    } else {
        ""
    };
    match table.mode {
        Mode::Fixed => format!(
            "{requests}. Exactly {} {} per second, gateway on two cores{shared}; every item is accounted for by id.\n\n",
            grouped(work.rate as f64),
            work.items
        ),
        Mode::Saturated => format!(
            "{requests}. As fast as answered, gateway alone on one core; items are accounted for by {}.\n\n",
            if work.saturated_by_id { "id" } else { "number" }
        ),
        Mode::Scaling => format!("{requests}. As fast as answered, gateway on two cores{shared}.\n\n"),
        Mode::Idle => "Started and left alone.\n\n".into(),
    }
}

/// A table as text, whatever it is written in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) headers: Vec<String>,
    /// The cells of a gateway; or its name, and why there are none.
    pub(crate) rows: Vec<Result<Vec<String>, (String, String)>>,
}

impl Grid {
    pub(crate) fn of(table: &Table<'_>) -> Grid {
        let idle = table.mode == Mode::Idle;
        let mut rows = Vec::new();
        for row in &table.rows {
            if !row.figures.is_empty() {
                rows.push(Ok(if idle { idle_cells(row) } else { load_cells(row) }));
            }
            if let Some(error) = row.error {
                let name = if row.figures.is_empty() {
                    row.gateway.to_string()
                } else {
                    format!("{}, one repeat", row.gateway)
                };
                rows.push(Err((name, error.to_string())));
            }
        }
        let headers = if idle { idle_headers() } else { load_headers(table) };
        Grid { headers, rows }
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&self.headers) + &"|---".repeat(self.headers.len()) + "|\n";
        for row in &self.rows {
            text += &match row {
                Ok(cells) => line(cells),
                Err((name, error)) => {
                    let mut cells = vec![name.clone(), error.clone()];
                    cells.resize(self.headers.len(), String::new());
                    line(&cells)
                }
            };
        }
        text
    }
}

fn load_headers(table: &Table<'_>) -> Vec<String> {
    let (items, baseline) = (&table.work.items, table.baseline);
    vec![
        "gateway".into(),
        "CPU-s per million".into(),
        format!("CPU / {baseline}"),
        format!("{items}/s accepted"),
        format!("{items}/s delivered"),
        format!("delivered / {baseline}"),
        "refused".into(),
        "delivered".into(),
        "peak RSS, MiB".into(),
        "bytes out per item".into(),
        "p50 / p99 / p999, ms".into(),
        "generator late, p99, ms".into(),
        "others, CPU-s".into(),
    ]
}

fn load_cells(row: &Row<'_>) -> Vec<String> {
    let ratio = |ratio: Option<Spread>| ratio.map_or_else(|| "-".into(), |ratio| figure(ratio.median));
    let ms =
        |quantile: fn(&Figures) -> u64| figure(row.spread(|figures| quantile(figures) as f64 / 1e3).median);
    let latencies = [
        ms(|figures| figures.latency_us.p50),
        ms(|figures| figures.latency_us.p99),
        ms(|figures| figures.latency_us.p999),
    ];
    vec![
        row.gateway.into(),
        spread(row.spread(|figures| figures.cpu_per_million)),
        ratio(row.cpu_ratio),
        spread(row.spread(|figures| figures.accepted_per_second)),
        spread(row.spread(|figures| figures.delivered_per_second)),
        ratio(row.speed_ratio),
        format!("{:.2}%", row.spread(|figures| figures.refused_percent).median),
        row.fate(),
        spread(row.spread(|figures| figures.peak_rss_mib)),
        figure(row.spread(Figures::bytes_out_per_item).median),
        latencies.join(" / "),
        ms(|figures| figures.lateness_us.p99),
        figure(row.spread(|figures| figures.others_cpu_seconds).most),
    ]
}

fn idle_headers() -> Vec<String> {
    let headers = [
        "gateway",
        "RSS, MiB",
        "CPU, % of a core",
        "start until it listens, ms",
        "executable, MiB",
    ];
    headers.map(String::from).to_vec()
}

fn idle_cells(row: &Row<'_>) -> Vec<String> {
    vec![
        row.gateway.into(),
        spread(row.spread(|figures| figures.idle_rss_mib)),
        spread(row.spread(|figures| figures.idle_cpu_percent)),
        spread(row.spread(|figures| figures.start_seconds * 1e3)),
        figure(row.spread(|figures| figures.executable_mib).median),
    ]
}

/// A median with its range, if there is one.
pub(crate) fn spread(spread: Spread) -> String {
    if spread.least == spread.most {
        return figure(spread.median);
    }
    format!(
        "{} ({} - {})",
        figure(spread.median),
        figure(spread.least),
        figure(spread.most)
    )
}

/// A number with as many digits as it deserves: three, or all before the point.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.995 => format!("{value:.3}"),
        size if size < 9.95 => format!("{value:.2}"),
        size if size < 99.5 => format!("{value:.1}"),
        size if size < 10_000.0 => grouped(value),
        // More digits than three would only be noise.
        _ => grouped((value / 1000.0).round() * 1000.0),
    }
}

/// A whole number with thousands separated.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && value.round() != 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::account::AccountReport;
    use crate::histogram::Quantiles;

    fn sample(gateway: &str, mode: Mode, repeat: u32, cpu: f64, speed: f64, lost: u64) -> Sample {
        let sent = 1_000_000;
        let latency = Quantiles {
            p50: 900,
            p99: 4_200,
            p999: 11_000,
            max: 20_000,
            ..Quantiles::default()
        };
        Sample {
            scenario: "metrics-none".into(),
            mode,
            gateway: gateway.into(),
            repeat,
            figures: Some(Figures {
                cpu_seconds: cpu,
                cpu_per_million: cpu,
                accepted_per_second: speed,
                delivered_per_second: speed,
                peak_rss_mib: 20.5,
                bytes_out: 200 * (sent - lost),
                delivered: sent - lost,
                latency_us: latency,
                idle_rss_mib: 9.5,
                idle_cpu_percent: 0.02,
                start_seconds: 0.012,
                account: AccountReport {
                    by_id: true,
                    sent,
                    delivered: sent - lost,
                    lost,
                    ..AccountReport::default()
                },
                ..Figures::default()
            }),
            error: None,
            not_its_work: false,
        }
    }

    /// A report of two gateways with three repeats, one of them losing items, and one that could not be run.
    pub(crate) fn example() -> Report {
        let mut samples = Vec::new();
        for (repeat, (slow, fast)) in (0..).zip([(4.0, 0.5), (5.0, 0.4), (6.0, 0.6)]) {
            samples.push(sample("collector", Mode::Fixed, repeat, slow, 100_000.0, 250));
            samples.push(sample("sluice", Mode::Fixed, repeat, fast, 100_000.0, 0));
            samples.push(sample("collector", Mode::Saturated, repeat, slow, 250_000.0, 0));
            samples.push(sample("sluice", Mode::Saturated, repeat, fast, 4_000_000.0, 0));
            samples.push(sample("sluice", Mode::Scaling, repeat, fast, 6_000_000.0, 0));
            samples.push(sample("sluice", Mode::Idle, repeat, fast, 0.0, 0));
        }
        samples.push(Sample {
            figures: None,
            error: Some("no <configuration> a|b".into()),
            ..sample("other", Mode::Fixed, 0, 0.0, 0.0, 0)
        });
        Report {
            taken: "2026-01-31 12:00 UTC".into(),
            command: "sluice-rig compare".into(),
            machine: Machine {
                processor: "Example".into(),
                cores: 2,
                ..Machine::default()
            },
            seconds: 10.0,
            warm_up_seconds: 2.0,
            repeats: 3,
            baselines: vec!["collector".into()],
            shared_cores: true,
            works: vec![Work {
                scenario: "metrics-none".into(),
                about: "gauge points".into(),
                items: "points".into(),
                rate: 100_000,
                items_per_request: 500,
                connections: 8,
                saturated_by_id: true,
            }],
            remarks: vec![("nginx".into(), "unequal work".into())],
            absent: vec![("rotel".into(), "no rotel in PATH".into())],
            samples,
        }
    }

    /// Scenario: a report with three repeats, a loss, an error, idle and scaling.
    /// Guarantees: medians with their range; ratios are made within a repeat, then their median taken;
    /// losses, errors and what is absent are in the table.
    #[test]
    fn markdown_says_everything() {
        let text = example().markdown();
        for part in [
            "### metrics-none, fixed",
            "| collector | 5.00 (4.00 - 6.00) | 1.00 | 100,000 |",
            // 0.125, 0.08 and 0.1 of the same repeats: not 0.5 / 5.
            "| sluice | 0.500 (0.400 - 0.600) | 0.100 |",
            "99.97%: 750 lost",
            "| all, once |",
            "| other | no <configuration> a/b |",
            "0.900 / 4.20 / 11.0",
            "| sluice | 9.50 | 0.020 | 12.0 |",
            "| metrics-none | sluice | 1.50 |",
            "- nginx: unequal work",
            "- rotel is absent: no rotel in PATH",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    /// Scenario: two baselines are named; one scenario has only the second of them, one has neither.
    /// Guarantees: each table has the first named one that was measured in it, or else its first gateway.
    #[test]
    fn every_table_has_a_baseline() {
        let mut report = example();
        let in_scenario = |gateway: &str, scenario: &str, cpu| Sample {
            scenario: scenario.into(),
            ..sample(gateway, Mode::Fixed, 0, cpu, 100_000.0, 0)
        };
        for scenario in ["remote-write", "through"] {
            let work = Work {
                scenario: scenario.into(),
                ..report.works[0].clone()
            };
            report.works.push(work);
        }
        report.baselines = vec!["collector".into(), "vmagent".into()];
        let absent = Sample {
            figures: None,
            error: Some("no configuration".into()),
            ..in_scenario("collector", "remote-write", 0.0)
        };
        report.samples.extend([
            absent,
            in_scenario("sluice", "remote-write", 1.0),
            in_scenario("vmagent", "remote-write", 4.0),
            in_scenario("floor", "through", 1.0),
            in_scenario("sluice", "through", 3.0),
        ]);
        let text = report.markdown();
        for (baseline, row) in [
            ("collector", "| sluice | 0.500 (0.400 - 0.600) | 0.100 |"),
            ("vmagent", "| sluice | 1.00 | 0.250 |"),
            ("floor", "| sluice | 3.00 | 3.00 |"),
        ] {
            assert!(
                text.contains(&format!("| CPU / {baseline} |")),
                "{baseline}: {text}"
            );
            assert!(text.contains(row), "{row}: {text}");
        }
    }

    /// Scenario: measurements with each thing that can be wrong, one that is right, one that is idle, one of work
    /// that a gateway does not do, and a gateway that is not there.
    /// Guarantees: all of them are named but for the right ones, with scenario, mode, gateway and repeat.
    #[test]
    fn faults_are_named() {
        let with = |change: fn(&mut Figures)| {
            let mut sample = sample("sluice", Mode::Saturated, 1, 1.0, 1.0, 0);
            change(sample.figures.as_mut().unwrap());
            sample
        };
        let without = |error: &str, not_its_work| Sample {
            figures: None,
            error: Some(error.into()),
            not_its_work,
            ..sample("floor", Mode::Fixed, 0, 0.0, 0.0, 0)
        };
        let report = Report {
            absent: vec![("sluice-old".into(), "no file".into())],
            samples: vec![
                with(|_| {}),
                with(|figures| figures.account.lost = 3),
                with(|figures| (figures.account.duplicated, figures.malformed) = (4, 1)),
                with(|figures| (figures.account.unknown, figures.account.unmarked) = (1, 1)),
                with(|figures| figures.delivered = 0),
                Sample {
                    figures: Some(Figures::default()),
                    ..sample("sluice", Mode::Idle, 0, 0.0, 0.0, 0)
                },
                without("it takes plain protobuf only", true),
                without("it ended", false),
            ],
            ..Report::default()
        };
        let faults: Vec<_> = report.faults().into_iter().map(|(_, fault)| fault).collect();
        let cell = "metrics-none, saturated, sluice #2";
        assert_eq!(
            faults,
            [
                format!("{cell}: 3 lost"),
                format!("{cell}: 4 delivered twice, 1 requests that cannot be read"),
                format!("{cell}: 2 delivered that were never sent"),
                format!("{cell}: nothing delivered"),
                "metrics-none, fixed, floor #1: not measured: it ended".into(),
                "sluice-old is absent: no file".into(),
            ]
        );
    }

    /// Scenario: the report is written as JSON and read again.
    /// Guarantees: nothing is lost; the Markdown of both is the same.
    #[test]
    fn json_keeps_everything() {
        let report = example();
        let text = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read.markdown(), report.markdown());
    }

    /// Scenario: odd and even numbers of values, and numbers of all sizes.
    /// Guarantees: the median of an even number is between the middle two; figures keep three digits and no
    /// noise.
    #[test]
    fn figures_are_readable() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 3.0, 2.0]).median, 2.5);
        assert_eq!(Spread::of(vec![]), Spread::default());
        let readable: Vec<_> = [0.0, 0.0213, 0.9996, 4.567, 12.34, 110.7, 4321.0, 3_861_234.0]
            .map(figure)
            .to_vec();
        assert_eq!(
            readable,
            ["0", "0.021", "1.00", "4.57", "12.3", "111", "4,321", "3,861,000"]
        );
        assert_eq!(grouped(-1234.0), "-1,234");
        assert_eq!(grouped(-0.2), "0");
    }
}
