//! Bars in SVG: the charts of the page, and a picture of a few of them for a README.

use std::fmt::Write;

use super::measure::Figures;
use super::report::{Report, Row, Spread, Table, figure, spread};
use super::scenario::Mode;

/// Geometry of a chart, in SVG units.
const WIDTH: f64 = 520.0;
const LABEL_WIDTH: f64 = 130.0;
/// Room for the figures behind the longest bar.
const VALUE_WIDTH: f64 = 150.0;
const BAR_HEIGHT: f64 = 18.0;
const LINE_HEIGHT: f64 = 28.0;

/// Between charts of the picture, and around them.
const GAP: f64 = 24.0;
/// Above a chart of the picture.
const TITLE_HEIGHT: f64 = 24.0;

/// What charts are drawn in, in light and in dark surroundings.
pub(super) const COLOURS: &str = "
:root { --text: #1c1e21; --soft: #5f6670; --line: #d9dce1; --back: #ffffff; --panel: #f5f6f8; --bar: #9aa5b4;
  --ours: #1769c2; --mark: #1c1e21; --warn: #a33a00 }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --soft: #a0a7b1; --line: #3a3f47; --back: #17191c;
  --panel: #1f2226; --bar: #66717f; --ours: #4c9be8; --mark: #e6e8eb; --warn: #ff9d66 } }
svg { font: 13px system-ui, sans-serif } svg text { fill: var(--text) }
.bar { fill: var(--bar) } .bar.ours { fill: var(--ours) } .bar.unequal { fill-opacity: .35; stroke: var(--bar) }
.whisker { stroke: var(--mark); stroke-width: 1.5 }
";

/// Makes text safe between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A chart: what it shows, and a figure for each gateway.
pub(super) struct Chart<'a> {
    pub title: &'a str,
    /// Which way is good.
    pub note: &'a str,
    pub bars: Vec<Bar<'a>>,
}

/// A gateway's figure.
pub(super) struct Bar<'a> {
    pub gateway: &'a str,
    pub figure: Spread,
    /// Divided by the baseline's, where that was taken in the same repeats.
    pub ratio: Option<f64>,
}

/// One figure of every gateway in a table, and what it is divided by the baseline's.
pub(super) fn bars<'a>(
    table: &Table<'a>,
    figure: fn(&Figures) -> f64,
    ratio: fn(&Row<'a>) -> Option<Spread>,
) -> Vec<Bar<'a>> {
    let rows = table.rows.iter().filter(|row| !row.figures.is_empty());
    let bar = |row: &Row<'a>| Bar {
        gateway: row.gateway,
        figure: row.spread(figure),
        // Next to itself the baseline needs no ratio.
        ratio: ratio(row)
            .filter(|_| row.gateway != table.baseline)
            .map(|ratio| ratio.median),
    };
    rows.map(bar).collect()
}

/// A picture that stands alone: what a million items cost in each scenario, a column for each of the two modes.
pub(crate) fn picture(report: &Report) -> String {
    let mut svg = String::new();
    let mut heights = [GAP; 2];
    for table in report.tables() {
        let column = match table.mode {
            Mode::Fixed => 0,
            Mode::Saturated => 1,
            Mode::Scaling | Mode::Idle => continue,
        };
        let title = format!("{}, {}", table.work.scenario, table.mode.name());
        let chart = Chart {
            title: &title,
            note: "",
            bars: bars(&table, |figures| figures.cpu_per_million, |row| row.cpu_ratio),
        };
        if chart.bars.is_empty() {
            continue;
        }
        let top = heights[column];
        let _ = writeln!(
            svg,
            "<g transform=\"translate({left} {top})\"><text x=\"0\" y=\"14\" font-weight=\"600\">{title}</text>\n\
             <g transform=\"translate(0 {TITLE_HEIGHT})\">\n{bars}</g></g>",
            left = GAP + column as f64 * (WIDTH + GAP),
            title = escape(&title),
            bars = chart.svg(report),
        );
        heights[column] += TITLE_HEIGHT + chart.height() + GAP;
    }
    let columns = heights.iter().filter(|height| **height > GAP).count().max(1) as f64;
    let (width, height) = (GAP + columns * (WIDTH + GAP), heights[0].max(heights[1]));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"CPU seconds per million items, by gateway and scenario\">\n<style>{COLOURS}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"var(--back)\"/>\n{svg}</svg>\n"
    )
}

impl Chart<'_> {
    /// As a figure of a page.
    pub fn figure(&self, report: &Report) -> String {
        if self.bars.is_empty() {
            return String::new();
        }
        format!(
            "<figure><h3>{title}</h3>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n{bars}</svg><p>{note}</p></figure>\n",
            title = escape(self.title),
            height = self.height(),
            bars = self.svg(report),
            note = escape(self.note),
        )
    }

    fn height(&self) -> f64 {
        LINE_HEIGHT * self.bars.len() as f64
    }

    /// The bars, from the upper left corner on.
    fn svg(&self, report: &Report) -> String {
        let longest = self.bars.iter().map(|bar| bar.figure.most).fold(0.0, f64::max);
        let scale = |value: f64| {
            let room = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
            if longest > 0.0 {
                value / longest * room
            } else {
                0.0
            }
        };
        let mut svg = String::new();
        for (
            number,
            Bar {
                gateway,
                figure: bar,
                ratio,
            },
        ) in self.bars.iter().enumerate()
        {
            let top = LINE_HEIGHT * number as f64 + (LINE_HEIGHT - BAR_HEIGHT) / 2.0;
            let middle = top + BAR_HEIGHT / 2.0;
            let class = class(report, gateway);
            let mut median = figure(bar.median);
            if let Some(ratio) = ratio {
                median += &format!(" ({} x)", figure(*ratio));
            }
            let end = LABEL_WIDTH + scale(bar.most.max(bar.median));
            let _ = writeln!(
                svg,
                "<g><title>{name}: {value}</title><text x=\"{label_at}\" y=\"{text_at}\" text-anchor=\"end\">{name}</text>\
                 <rect class=\"{class}\" x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\"/>\
                 <text x=\"{value_at:.1}\" y=\"{text_at}\">{median}</text></g>",
                name = escape(gateway),
                value = spread(*bar),
                label_at = LABEL_WIDTH - 8.0,
                text_at = middle + 4.5,
                // So that what is small is still seen.
                width = scale(bar.median).max(1.0),
                value_at = end + 8.0,
            );
            if bar.least < bar.most {
                let (least, most) = (LABEL_WIDTH + scale(bar.least), LABEL_WIDTH + scale(bar.most));
                let _ = writeln!(
                    svg,
                    "<path class=\"whisker\" d=\"M{least:.1} {middle}H{most:.1}M{least:.1} {low}V{high}M{most:.1} {low}V{high}\"/>",
                    low = middle - 4.0,
                    high = middle + 4.0,
                );
            }
        }
        svg
    }
}

fn class(report: &Report, gateway: &str) -> &'static str {
    if report.remarks.iter().any(|(remarked, _)| remarked == gateway) {
        "bar unequal"
    } else if gateway.starts_with("sluice") {
        "bar ours"
    } else {
        "bar"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::tests::example;

    /// Scenario: the picture of a report with fixed, saturated, scaling and idle parts.
    /// Guarantees: the two modes that cost something are there, in a document of its own that refers to nothing.
    #[test]
    fn the_picture_stands_alone() {
        let picture = picture(&example());
        assert_eq!(picture.matches("<svg").count(), 1);
        assert_eq!(picture.matches("<g").count(), picture.matches("</g>").count());
        for (part, there) in [
            (", fixed<", true),
            (", saturated<", true),
            (", idle<", false),
            ("href", false),
        ] {
            assert_eq!(picture.contains(part), there, "{part:?}");
        }
    }

    /// Scenario: bars of 4 and 1, the larger one with a range up to 8.
    /// Guarantees: lengths are in proportion to the medians, and the range fits beside its figure.
    #[test]
    fn bars_are_in_proportion() {
        let bar = |gateway, median: f64, most: f64, ratio| Bar {
            gateway,
            figure: Spread {
                median,
                least: median,
                most,
            },
            ratio,
        };
        let chart = Chart {
            title: "t",
            note: "n",
            bars: vec![bar("a", 4.0, 8.0, None), bar("sluice", 1.0, 1.0, Some(0.25))],
        };
        let svg = chart.svg(&example());
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths, [120.0, 30.0]);
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        assert_eq!(svg.matches("bar ours").count(), 1);
        assert!(
            svg.contains("H370.0") && svg.contains(">1.00 (0.250 x)<"),
            "{svg}"
        );
    }
}
