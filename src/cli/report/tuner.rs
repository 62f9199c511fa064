//! What a process changed of itself, as a table: when, what, and why.

use super::page::escaped;
use crate::output;
use base::trace::TunerSummary;
use std::fmt::Write;

const COLUMNS: [&str; 5] = ["after", "setting", "from", "to", "because"];

/// Formats the table as text.
pub(super) fn table(summary: &TunerSummary) -> String {
    let rows = rows(summary);
    // Reasons are sentences, which begin below one another.
    let figures: Vec<[String; 4]> =
        rows.iter().map(|[after, knob, from, to, _]| [after, knob, from, to].map(String::clone)).collect();
    let lines = output::table(&figures).into_iter().zip(&rows);
    let lines: Vec<_> = lines.map(|(line, [.., because])| format!("{line}  {because}")).collect();
    format!("changes that {} made to itself\n{}", summary.process, lines.join("\n"))
}

/// Formats the table for a page.
pub(super) fn html(summary: &TunerSummary) -> String {
    let mut html = format!("<h2>Changes that {} made to itself</h2>\n<table>\n", escaped(&summary.process));
    for (number, row) in rows(summary).iter().enumerate() {
        html += "<tr>";
        for cell in row {
            let _ = write!(html, "{}{}", if number == 0 { "<th>" } else { "<td>" }, escaped(cell));
        }
        html += "\n";
    }
    html + "</table>\n"
}

fn rows(summary: &TunerSummary) -> Vec<[String; 5]> {
    let mut rows = vec![COLUMNS.map(String::from)];
    rows.extend(summary.changes.iter().map(|change| {
        let record = &change.record;
        let (from, to) = (record.from.to_string(), record.to.to_string());
        [output::seconds(change.seconds), record.knob.clone(), from, to, record.why.clone()]
    }));
    rows
}
