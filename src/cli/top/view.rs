//! The drawn lines of text: a summary, the table, and details of the chosen loader.
//!
//! To show a further value of a loader, add an `Option` to `LoaderSnapshot`, set it in `src/engine/pipeline/status.rs`,
//! and add a line to `details`.

use super::Sorting;
use super::cells;
use super::rows::{TopRow, TopRows};
use super::table::{self, percent};
use crate::output::{self, escaped_for_terminal};
use base::names::NamedValue;
use engine::status::{LoaderRates, LoaderSnapshot, SharingNumbers};
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStyle {
    Plain,
    Title,
    Chosen,
    Faint,
}

pub(super) type ViewLine = (LineStyle, String);

pub(super) struct TopView {
    pub sort: Sorting,
    interval: Duration,
    /// The key of the chosen row. The first row counts as chosen if this is `None` or the row no longer exists.
    chosen: Option<(u32, u64)>,
}

/// The minimum number of table rows. In a terminal with few lines, details are cut so that these rows fit.
const MIN_ROWS: usize = 3;

impl TopView {
    pub(super) fn new(sort: Sorting, interval: Duration) -> Self {
        Self { sort, interval, chosen: None }
    }

    fn at(&self, rows: &TopRows<'_>) -> usize {
        rows.0.iter().position(|row| Some(row.key()) == self.chosen).unwrap_or(0)
    }

    pub(super) fn step(&mut self, rows: &TopRows<'_>, by: isize) {
        let at = self.at(rows).saturating_add_signed(by).min(rows.0.len().saturating_sub(1));
        self.chosen = rows.0.get(at).map(TopRow::key);
    }

    pub(super) fn lines(
        &self,
        rows: &TopRows<'_>,
        place: &Path,
        (width, height): (usize, usize),
    ) -> Vec<ViewLine> {
        let (plain, faint) = (LineStyle::Plain, LineStyle::Faint);
        let every = output::seconds(self.interval.as_secs_f64());
        let mut lines = vec![(plain, format!("foreload top: {}; every {every}", rows.summary()))];
        if rows.0.is_empty() {
            lines.extend(wrapped(&nothing(place), width).into_iter().map(|line| (plain, line)));
        }
        let footer = format!("q quits   s sorts (by {})   \u{2191}\u{2193} choose", self.sort.name());
        let at = self.at(rows);
        let details = rows.0.get(at).and_then(|row| row.loader).map_or_else(Vec::new, |(loader, rates)| {
            details(loader, rates).into_iter().map(|(name, text)| format!("{name:>9}  {text}")).collect()
        });
        if !rows.0.is_empty() {
            // Four other lines: summary, titles, an empty line before the details, and the footer.
            let room = height.saturating_sub(4);
            let shown = rows
                .0
                .len()
                .min(room.saturating_sub(details.len()).max(MIN_ROWS))
                .min(height.saturating_sub(3));
            let first =
                at.saturating_sub(shown.saturating_sub(1)).min(rows.0.len() - shown.min(rows.0.len()));
            let mut table = table::lines(&rows.0, Some(width)).into_iter();
            lines.extend(table.next().map(|titles| (LineStyle::Title, titles)));
            let style = |number: usize| if number == at { LineStyle::Chosen } else { plain };
            lines.extend(
                table.enumerate().skip(first).take(shown).map(|(number, line)| (style(number), line)),
            );
            lines.push((plain, String::new()));
            lines.extend(details.into_iter().take(room.saturating_sub(shown)).map(|line| (plain, line)));
        }
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), (plain, String::new()));
        lines.push((faint, footer));
        lines.iter_mut().for_each(|(_, line)| *line = cells::beginning(line, width));
        lines
    }
}

pub(super) fn once(rows: &TopRows<'_>, place: &Path, width: Option<usize>) -> String {
    if rows.0.is_empty() { nothing(place) } else { table::lines(&rows.0, width).join("\n") }
}

fn nothing(place: &Path) -> String {
    format!(
        "no running loader of this user found in {}; loaders with another FORELOAD_RUNTIME_DIR or XDG_RUNTIME_DIR, \
         loaders in other containers, and loaders with FORELOAD_TOP=0 are not shown",
        escaped_for_terminal(&place.display().to_string())
    )
}

fn details(loader: &LoaderSnapshot, rates: &LoaderRates) -> Vec<(&'static str, String)> {
    let loads =
        rates.loads.iter().map(|(stage, load)| format!("{} {}", escaped_for_terminal(stage), percent(*load)));
    let stalls = &loader.stalls;
    let mut lines = vec![
        (kind(loader), escaped_for_terminal(&loader.dataset)),
        ("busy", join(loads, "nothing")),
        (
            "stalls",
            format!(
                "{} batches: median {}, 99 % within {}, longest {}",
                stalls.count,
                output::seconds(stalls.p50),
                output::seconds(stalls.p99),
                output::seconds(stalls.max)
            ),
        ),
        (
            "tiers",
            join(
                loader.tiers.iter().map(|tier| {
                    let share = rates
                        .tiers
                        .iter()
                        .find(|(name, _)| *name == tier.name)
                        .map_or(0.0, |(_, share)| *share);
                    let gave = format!("{} {} of samples", escaped_for_terminal(&tier.name), percent(share));
                    match tier.quota_bytes {
                        0 => gave,
                        quota => format!(
                            "{gave}, {} of {} used",
                            output::bytes(tier.held_bytes),
                            output::bytes(quota)
                        ),
                    }
                }),
                "-",
            ),
        ),
    ];
    if loader.failed > 0 {
        lines.push(("failed", format!("{} samples of this epoch", loader.failed)));
    }
    if let Some(cores) = loader.cores {
        lines.push(("cpu", format!("at most {cores:.2} processors")));
    }
    if let Some(sharing) = &loader.sharing {
        let SharingNumbers { producer, consumers, batches, left_behind, lost, .. } = *sharing;
        let mut parts = vec![format!("{batches} batches, now from process {producer}")];
        parts.push(format!("which serves {consumers} loaders"));
        parts.extend((left_behind > 0).then(|| format!("fell behind {left_behind} times")));
        parts.extend((lost > 0).then(|| format!("{lost} producers lost")));
        lines.push(("shared", parts.join(", ")));
    }
    if let Some(stream) = &loader.stream {
        let counted = stream.by_name().filter(|(_, number)| *number > 0);
        lines.push(("samples", join(counted.map(|(name, number)| format!("{number} {name}")), "none")));
    }
    lines
}

fn kind(loader: &LoaderSnapshot) -> &'static str {
    match loader.kind.as_str() {
        "images" => "images",
        "files" => "files",
        "stream" => "stream",
        _ => "loader",
    }
}

fn join(parts: impl Iterator<Item = String>, none: &str) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { none.into() } else { parts.join(", ") }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && cells::width(line) + 1 + cells::width(word) > width {
            lines.push(word.into());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            *line += &format!("{space}{word}");
        }
    }
    lines
}
