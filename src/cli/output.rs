//! The output of commands: results on stdout, progress on stderr, sizes and counts as text.

use base::error::Result;
use base::notices::{Notice, NoticeKind, Notices};
use data::dataset::BlockCosts;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;

/// Creates a progress bar on stderr for `total` items, which are called `things`. Draws nothing if stderr is not a
/// terminal.
pub(crate) fn bar(total: u64, things: &str) -> ProgressBar {
    let template = format!("{{bar:32}} {{pos}}/{{len}} {things} {{per_sec}} {{eta}} left {{msg}}");
    let style = ProgressStyle::with_template(&template).expect("a template of our own");
    ProgressBar::new(total).with_style(style)
}

pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader has closed the pipe (`| head`), which is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| base::error::Error::io("write to", "stdout", error)),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string(value).map_err(|error| base::error::Error::Internal(error.to_string()))?)
}

#[derive(Serialize)]
struct VersionedReport<'a, T> {
    version: &'static str,
    #[serde(flatten)]
    report: &'a T,
}

/// Prints a report: for `--json` as an object that begins with the version of the program, else as `describe` says it.
pub(crate) fn print_report<T: Serialize>(
    report: &T,
    as_json: bool,
    describe: impl FnOnce(&T) -> String,
) -> Result<()> {
    if as_json {
        print_json(&VersionedReport { version: base::version::get(), report })
    } else {
        print(&describe(report))
    }
}

/// Makes a string from outside safe to print: escapes characters that move the cursor, change colours or reverse
/// letters.
pub(crate) fn escaped_for_terminal(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut drawn = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            drawn.extend(c.escape_unicode());
        } else {
            drawn.push(c);
        }
    }
    drawn
}

/// Prints the notices that were not printed yet to stderr, and returns them for `--json`.
pub(crate) fn print_notices(notices: &Notices) -> Vec<Notice> {
    let print = |notice: &Notice| {
        let kind = match notice.kind {
            NoticeKind::Warning => "warning",
            NoticeKind::Information => "note",
        };
        eprintln!("{kind}: {}", notice.message);
    };
    std::iter::from_fn(|| notices.next()).inspect(print).collect()
}

/// The lines of a table. The first column has names, the other columns have numbers. The first row has the titles.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let longest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(longest);
    let line = |row: &[String; COLUMNS]| {
        let numbers = row.iter().zip(&widths).skip(1).map(|(cell, &width)| format!("{cell:>width$}"));
        let numbers = numbers.collect::<Vec<_>>().join("  ");
        format!("{:<width$}  {numbers}", row[0], width = widths[0]).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Formats bytes with a decimal unit: `108 KB`, `1.41 GB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 2 - usize::from(value >= 9.995) };
    format!("{value:.digits$} {}", UNITS[unit])
}

pub(crate) fn blocks(costs: &BlockCosts) -> String {
    let BlockCosts { blocks, packed_bytes, unpacked_bytes, random_read_bytes, .. } = *costs;
    let mut text =
        format!("{blocks} blocks, {}, {} decompressed", bytes(packed_bytes), bytes(unpacked_bytes));
    if costs.fit_in_memory() {
        text += ": each is decompressed once";
    } else {
        let read = bytes(random_read_bytes);
        text += &format!(
            ": with a cache that holds all samples, each is decompressed once; without one, an epoch in random order \
             reads a block for nearly every sample, {read} together, and decompresses {:.0} times the samples",
            costs.factor()
        );
    }
    text
}

/// Formats a time with three digits and a unit: `250 µs`, `1.41 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        s if s < 0.999_5e-3 => (seconds * 1e6, "µs"),
        s if s < 0.999_5 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0 µs"),
            (1.234e-6, "1.23 µs"),
            (0.000_999_6, "1.00 ms"),
            (0.0123, "12.3 ms"),
            (-0.25, "-250 ms"),
            (1.414, "1.41 s"),
            (75.04, "75.0 s"),
            (4321.0, "4321 s"),
        ];
        for (seconds, words) in cases {
            assert_eq!(super::seconds(seconds), words);
        }
    }

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 KB"),
            (108_300, "108 KB"),
            (9_996_000, "10.0 MB"),
            (1_410_000_000, "1.41 GB"),
            (999_600_000_000, "1.00 TB"),
        ];
        for (count, words) in cases {
            assert_eq!(super::bytes(count), words);
        }
    }
}
