//! Every sample of a comparison as a picture: a row for each side of each phase.

use super::{Compared, Report};
use crate::bench::figures::Summary;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 130.0;
const ROW: f64 = 22.0;
const PHASE: f64 = 2.0 * ROW + 16.0;
const TOP: f64 = 48.0;
const COLOURS: [&str; 2] = ["#1f6fb4", "#d9700f"];

/// From zero to the greatest rate of a phase, so that a difference looks as large as it is.
pub fn svg(report: &Report) -> String {
    let height = TOP + PHASE * report.phases.len() as f64;
    let mut text = String::new();
    // Writing to memory cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    );
    let _ = writeln!(text, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    let other = if report.is_against_baseline { "baseline" } else { "B" };
    let sides = [("A", &report.a), (other, &report.b)];
    for ((side, config), (colour, y)) in sides.into_iter().zip(COLOURS.into_iter().zip([18.0, 34.0])) {
        let config = if config.is_empty() { "defaults" } else { config };
        label(&mut text, 8.0, y, colour, &format!("{side}: {config}"));
    }
    for (number, compared) in report.phases.iter().enumerate() {
        phase(&mut text, TOP + PHASE * number as f64, compared);
    }
    text + "</svg>\n"
}

fn label(text: &mut String, x: f64, y: f64, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{words}</text>");
}

fn phase(text: &mut String, top: f64, compared: &Compared) {
    let greatest = compared.a.max.max(compared.b.max).max(f64::MIN_POSITIVE);
    let x = |rate: f64| LEFT + rate / greatest * (WIDTH - LEFT - RIGHT);
    label(text, 8.0, top + ROW, "black", &compared.operation);
    let difference = &compared.difference;
    let verdict = if difference.is_real { "" } else { " (not real)" };
    label(text, 8.0, top + 2.0 * ROW, "#666", &format!("{:+.1} %{verdict}", difference.percent));
    for ((summary, colour), row) in [&compared.a, &compared.b].into_iter().zip(COLOURS).zip([1.0, 2.0]) {
        let y = top + row * ROW - 5.0;
        side(text, summary, (colour, y), x);
        let median = format!("{:.0} {}", summary.median, compared.unit);
        label(text, WIDTH - RIGHT + 12.0, y + 4.0, colour, &median);
    }
}

fn side(text: &mut String, summary: &Summary, (colour, y): (&str, f64), x: impl Fn(f64) -> f64) {
    let (left, right, median) = (x(0.0), x(summary.max), x(summary.median));
    let _ = writeln!(text, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
    let (above, below) = (y - 8.0, y + 8.0);
    let _ = writeln!(
        text,
        "<path d=\"M{median:.1} {above:.1}V{below:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
    );
    for rate in &summary.samples {
        let at = x(*rate);
        let _ = writeln!(
            text,
            "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\" fill-opacity=\"0.6\"/>"
        );
    }
}
