//! Parsers for sizes and durations in settings.

use crate::error::{Error, Result};
use std::time::Duration;

/// Parses a number of bytes: a number with an optional unit, such as `300MB`, `1.5GiB` or `4096`. Units ending in `iB`
/// are powers of 1024.
///
/// # Errors
/// [`Error::Config`], which names `setting`.
pub fn parse_bytes(setting: &'static str, text: &str) -> Result<u64> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => f64::NAN,
    };
    match number.parse::<f64>().map(|n| n * factor) {
        Ok(bytes) if bytes.is_finite() => Ok(bytes as u64),
        _ => Err(Error::config(setting, format!("is {text:?}, must be a size such as 300MB or 1.5GiB"))),
    }
}

/// Formats a number of bytes in GiB, for messages.
pub fn in_gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Parses a duration: a number with its unit, such as `20ms`, `1.5s`, `250us` or `2min`. `0` needs no unit.
///
/// # Errors
/// [`Error::Config`], which names `setting`.
pub fn parse_duration(setting: &'static str, text: &str) -> Result<Duration> {
    let (number, unit) = split(text);
    let factor = match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "" if number.parse() == Ok(0.0) => 1.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().map_or(f64::NAN, |n| n * factor);
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Error::config(setting, format!("is {text:?}, must be a time with its unit such as 20ms or 1.5s"))
    })
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, nanoseconds) in [
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            (" 250 us ", 250_000),
            ("7µs", 7_000),
            ("3ns", 3),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration("consume", text).unwrap(), Duration::from_nanos(nanoseconds), "{text}");
        }
        for text in
            ["", "20", "ms", "-1s", "1.2.3s", "5 parsecs", "1e3s", "inf", "1e400s", "99999999999999999999s"]
        {
            let error = parse_duration("consume", text).unwrap_err().to_string();
            assert!(error.contains("consume") && error.contains("20ms"), "{text}: {error}");
        }
    }

    #[test]
    fn a_size_may_have_a_unit() {
        for (text, bytes) in [("4096", 4096), ("300MB", 300_000_000), ("1.5 GiB", 3 << 29), ("2k", 2000)] {
            assert_eq!(parse_bytes("memory", text).unwrap(), bytes, "{text}");
        }
        for text in ["", "MB", "1XB", "1.2.3MB", "-1"] {
            assert!(parse_bytes("memory", text).is_err(), "{text}");
        }
    }
}
