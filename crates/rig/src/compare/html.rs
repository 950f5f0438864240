//! The report as one page that needs nothing else: charts in SVG, and the words to read them.

use std::fmt::Write;

use super::chart::{self, Bar, COLOURS, Chart, escape};
use super::measure::Figures;
use super::report::{Grid, Report, Spread, Table, heading};
use super::scenario::Mode;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.25rem; margin-top: 2.6rem; border-top: 1px solid var(--line);
  padding-top: 1.2rem } h3 { font-size: 1rem; margin: 0 0 .3rem }
.soft { color: var(--soft) } .warn { color: var(--warn) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem } dt { font-weight: 600 } dd { margin: 0 }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(21rem, 1fr)); gap: 1rem }
figure { margin: 0; background: var(--panel); border-radius: 6px; padding: .8rem }
figure p { margin: .2rem 0 0; font-size: .85rem; color: var(--soft) }
figure svg { width: 100%; height: auto }
.scroll { overflow-x: auto; margin-top: 1rem } table { border-collapse: collapse; font-size: .85rem; white-space: nowrap }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line) } td.wide { white-space: normal }
code { font-size: .85rem; overflow-wrap: anywhere }
";

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Telemetry gateways at equal work</title>\n\
         <style>{COLOURS}{STYLE}</style>\n<h1>Telemetry gateways at equal work</h1>\n"
    );
    page += &introduction(report);
    for table in report.tables() {
        page += &section(report, &table);
    }
    page += &scaling(report);
    page += &notes(report);
    page += "</html>\n";
    page
}

fn introduction(report: &Report) -> String {
    let machine = &report.machine;
    let shared = if report.shared_cores {
        " Where the gateway has two cores, generator and destination run on the same two."
    } else {
        ""
    };
    format!(
        "<p class=\"soft\">Measured {taken} on {cores} cores of {processor}, {memory:.0} GiB, Linux {kernel}{virtual_machine}.</p>\n\
         <p>A telemetry gateway receives metrics, logs and traces from applications, collects them into batches and \
         sends them on. Here every gateway gets the same requests from the same generator and sends to the same \
         destination, on the same machine, one gateway at a time: {repeats} times {seconds:.0} seconds each, after \
         {warm_up:.0} seconds of warming up. Gateways take turns, so that a busy minute of the machine does not hit one of them \
         alone.{shared}</p>\n\
         <dl>\n\
         <dt>fixed</dt><dd>The generator sends at an exact rate, whether answers come or not. Every item (data point, log \
         record, span) carries a number of its own, and the destination checks that each arrived, and only once.</dd>\n\
         <dt>saturated</dt><dd>The gateway has one core for itself; the generator, on another, sends the next request as soon \
         as the last one is answered.</dd>\n\
         <dt>CPU seconds per million</dt><dd>Processor time of the gateway for a million items that arrived, including the \
         time it takes to empty its queues after the load.</dd>\n\
         <dt>delivered per second</dt><dd>Items that arrived, by the time until the last one did. Accepted items that never \
         arrived do not count.</dd>\n\
         <dt>latency</dt><dd>From the moment a request was due to its answer, so that waiting behind a stalled gateway \
         counts. p99: 99 of 100 requests were not slower.</dd>\n\
         <dt>peak memory</dt><dd>Largest resident memory of the gateway's process.</dd>\n\
         <dt>others</dt><dd>Processor time that anything else on the machine took meanwhile: where it is large, figures are \
         worth less.</dd>\n\
         <dt>generator late</dt><dd>By how much the generator itself sent later than it should have: part of every latency \
         here, and no fault of the gateway as long as answers are not what it waits for.</dd>\n\
         </dl>\n\
         <p>Bars show the median of all repeats, thin lines the range from the least to the most; a line that is not there \
         means that all were equal. In brackets: so many times the figure of the baseline, which the table below the charts names. Pale bars are not equal work, see the notes at the end. Machines differ: compare gateways \
         within a chart, not figures between reports.</p>\n",
        taken = escape(&report.taken),
        cores = machine.cores,
        processor = escape(&machine.processor),
        memory = machine.memory_gib,
        kernel = escape(&machine.kernel),
        virtual_machine = if machine.hypervisor {
            ", a virtual machine"
        } else {
            ""
        },
        repeats = report.repeats,
        seconds = report.seconds,
        warm_up = report.warm_up_seconds,
    )
}

fn section<'a>(report: &'a Report, table: &Table<'a>) -> String {
    let rated = |figure, ratio| chart::bars(table, figure, ratio);
    let bars = |figure: fn(&Figures) -> f64| rated(figure, |_| None);
    let cpu = Chart {
        title: "CPU seconds per million items",
        note: "shorter is better",
        bars: rated(|figures| figures.cpu_per_million, |row| row.cpu_ratio),
    };
    let memory = Chart {
        title: "Peak memory, MiB",
        note: "shorter is better",
        bars: bars(|figures| figures.peak_rss_mib),
    };
    let latency = Chart {
        title: "Latency, p99, milliseconds",
        note: "shorter is better; accepted requests",
        bars: bars(|figures| figures.latency_us.p99 as f64 / 1e3),
    };
    let speed = Chart {
        title: "Delivered per second",
        note: "longer is better",
        bars: rated(|figures| figures.delivered_per_second, |row| row.speed_ratio),
    };
    let charts = match table.mode {
        Mode::Fixed => vec![cpu, memory, latency],
        Mode::Saturated | Mode::Scaling => vec![speed, cpu, memory],
        Mode::Idle => vec![
            Chart {
                title: "Memory, MiB",
                note: "shorter is better",
                bars: bars(|figures| figures.idle_rss_mib),
            },
            Chart {
                title: "CPU, % of a core",
                note: "shorter is better",
                bars: bars(|figures| figures.idle_cpu_percent),
            },
            Chart {
                title: "From start to listening, milliseconds",
                note: "shorter is better",
                bars: bars(|figures| figures.start_seconds * 1e3),
            },
        ],
    };
    let mut html = format!(
        "<h2>{}, {}</h2>\n<p>{}</p>\n",
        escape(&table.work.scenario),
        table.mode.name(),
        escape(heading(report, table).trim())
    );
    html += "<div class=\"charts\">\n";
    for chart in charts {
        html += &chart.figure(report);
    }
    html += "</div>\n";
    html += &grid(&Grid::of(table));
    html
}

fn grid(grid: &Grid) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
        cells.iter().map(cell).collect()
    };
    let mut html = format!(
        "<div class=\"scroll\"><table><tr>{}</tr>\n",
        cells("th", &grid.headers)
    );
    for row in &grid.rows {
        html += &match row {
            Ok(row) => format!("<tr>{}</tr>\n", cells("td", row)),
            Err((name, error)) => format!(
                "<tr><td>{}</td><td class=\"wide warn\" colspan=\"{}\">not measured: {}</td></tr>\n",
                escape(name),
                grid.headers.len() - 1,
                escape(error)
            ),
        };
    }
    html + "</table></div>\n"
}

fn scaling(report: &Report) -> String {
    let scaling = report.scaling();
    let mut scenarios: Vec<&str> = scaling.iter().map(|(scenario, _, _)| *scenario).collect();
    scenarios.dedup();
    if scenarios.is_empty() {
        return String::new();
    }
    let mut html = "<h2>From one core to two</h2>\n<p>How many times as much a gateway delivers with two cores as with one. 2 is \
                    what more cores can bring at best; generator and destination get faster too where they share cores.</p>\n\
                    <div class=\"charts\">\n"
        .to_string();
    for scenario in scenarios {
        let own = scaling.iter().filter(|(of, _, _)| *of == scenario);
        let bars = own.map(|(_, gateway, factor)| {
            let figure = Spread {
                median: *factor,
                least: *factor,
                most: *factor,
            };
            Bar {
                gateway,
                figure,
                ratio: None,
            }
        });
        let chart = Chart {
            title: scenario,
            note: "longer is better",
            bars: bars.collect(),
        };
        html += &chart.figure(report);
    }
    html + "</div>\n"
}

fn notes(report: &Report) -> String {
    let mut html = "<h2>Notes</h2>\n<ul>\n".to_string();
    for (gateway, remark) in &report.remarks {
        let _ = writeln!(html, "<li><b>{}</b>: {}.</li>", escape(gateway), escape(remark));
    }
    for (gateway, error) in &report.absent {
        let _ = writeln!(
            html,
            "<li><b>{}</b> was not measured: {}.</li>",
            escape(gateway),
            escape(error)
        );
    }
    let _ = write!(
        html,
        "<li>Processor time was read by {}; the load average before was {}.</li>\n<li>Made with <code>{}</code></li>\n</ul>\n",
        escape(&report.machine.accounting),
        escape(&report.machine.load_before),
        escape(&report.command)
    );
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::tests::example;

    /// Scenario: the page of a report with repeats, an error in it, idle and scaling.
    /// Guarantees: it refers to nothing outside, has charts and tables for each part, and says what its words
    /// mean.
    #[test]
    fn the_page_stands_alone() {
        let page = page(&example());
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Fixed, saturated, scaling, idle: three charts each; and one of the factors.
        assert_eq!(page.matches("<svg").count(), 4 * 3 + 1);
        assert_eq!(page.matches("<table>").count(), 4);
        for part in [
            "<dt>saturated</dt>",
            "metrics-none, fixed",
            "99.97%: 750 lost",
            "not measured: no &lt;configuration&gt; a|b",
            "rotel</b> was not measured",
        ] {
            assert!(page.contains(part), "{part:?}");
        }
        assert_eq!(
            page.matches("<rect").count(),
            page.matches("</title><text").count()
        );
    }
}
