//! Parses the rates of an emulated parallel file system, as used by benchmarks.

use base::error::{Error, Result};
use base::units::{parse_bytes, parse_duration};
use store::io::ParallelFsRates;

/// Parses the rates from a string such as `open=2ms,read=1ms,bandwidth=200MB,opens=6000,concurrency=64`. Operations
/// without a rate take no time.
///
/// # Errors
/// [`Error::Config`] that names `setting` and the part that is wrong.
pub fn parse_pfs(setting: &'static str, text: &str) -> Result<ParallelFsRates> {
    let mut rates = ParallelFsRates::default();
    let mut seen = Vec::new();
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            Error::config(
                setting,
                format!("has {part:?}, must be name=value, such as open=2ms,read=1ms,bandwidth=200MB"),
            )
        })?;
        let (name, value) = (name.trim(), value.trim());
        match name {
            "open" => rates.open = parse_duration(setting, value)?,
            "read" => rates.read = parse_duration(setting, value)?,
            "bandwidth" => {
                let bytes = parse_bytes(setting, value.strip_suffix("/s").unwrap_or(value))?;
                rates.bandwidth = Some(positive(setting, name, bytes as f64)?);
            }
            "opens" => rates.opens = Some(positive(setting, name, number(setting, name, value)?)?),
            "concurrency" => {
                let limit = positive(setting, name, number(setting, name, value)?)?;
                rates.concurrency = Some(limit.ceil() as usize);
            }
            _ => {
                return Err(Error::config(
                    setting,
                    format!("has no {name:?}; there are open, read, bandwidth, opens and concurrency"),
                ));
            }
        }
        if seen.contains(&name) {
            return Err(Error::config(setting, format!("has {name} twice")));
        }
        seen.push(name);
    }
    Ok(rates)
}

fn number(setting: &'static str, name: &str, value: &str) -> Result<f64> {
    value.parse().map_err(|_| Error::config(setting, format!("{name} is {value:?}, must be a number")))
}

fn positive(setting: &'static str, name: &str, value: f64) -> Result<f64> {
    match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err(Error::config(setting, format!("{name} is {value}, must be above 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn all_that_can_be_said_is_understood() {
        let all =
            parse_pfs("emulate-pfs", "open=2ms, read=500us,bandwidth=1.5GB/s,opens=6000,concurrency=64")
                .unwrap();
        let expected = ParallelFsRates {
            open: Duration::from_millis(2),
            read: Duration::from_micros(500),
            bandwidth: Some(1.5e9),
            opens: Some(6000.0),
            concurrency: Some(64),
        };
        assert_eq!(all, expected);
        let some = parse_pfs("emulate-pfs", "bandwidth=200MB").unwrap();
        assert_eq!(some, ParallelFsRates { bandwidth: Some(200e6), ..ParallelFsRates::default() });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("", "has \"\", must be name=value"),
            ("open", "has \"open\", must be name=value"),
            ("open=2", "is \"2\", must be a time with its unit"),
            ("latency=2ms", "has no \"latency\"; there are open, read"),
            ("bandwidth=fast", "is \"fast\", must be a size"),
            ("bandwidth=0", "bandwidth is 0, must be above 0"),
            ("opens=-1", "opens is -1, must be above 0"),
            ("opens=many", "opens is \"many\", must be a number"),
            ("concurrency=NaN", "concurrency is NaN, must be above 0"),
            ("read=1ms,read=2ms", "has read twice"),
        ] {
            let error = parse_pfs("emulate-pfs", text).unwrap_err().to_string();
            assert!(error.starts_with("config: emulate-pfs: ") && error.contains(said), "{text}: {error}");
        }
    }
}
