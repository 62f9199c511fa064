//! The rows of the table: one row per loader, and one row per process that does not list its loaders.

use super::Sorting;
use crate::output;
use engine::status::{LoaderRates, LoaderSnapshot, ProcessState, ProcessStatus};

#[derive(Clone, Copy)]
pub(super) struct TopRow<'a> {
    pub process: &'a ProcessStatus,
    pub loader: Option<(&'a LoaderSnapshot, &'a LoaderRates)>,
}

pub(super) struct TopRows<'a>(pub Vec<TopRow<'a>>);

impl<'a> TopRows<'a> {
    pub(super) fn new(seen: &'a [ProcessStatus], sort: Sorting) -> Self {
        let mut rows: Vec<TopRow<'a>> = Vec::new();
        for process in seen {
            match &process.state {
                ProcessState::Answered(loaders) => rows.extend(
                    loaders.iter().map(|(loader, rates)| TopRow { process, loader: Some((loader, rates)) }),
                ),
                _ => rows.push(TopRow { process, loader: None }),
            }
        }
        let number =
            |row: &TopRow<'_>, of: fn(&LoaderRates) -> f64| row.loader.map_or(-1.0, |(_, rates)| of(rates));
        let of: fn(&LoaderRates) -> f64 = match sort {
            Sorting::Process => |_| 0.0,
            Sorting::Rate => |rates| rates.samples_per_second,
            Sorting::Waiting => |rates| rates.waiting,
        };
        if sort != Sorting::Process {
            // The sort is stable, so rows with equal numbers stay in the order of their processes.
            rows.sort_by(|a, b| number(b, of).total_cmp(&number(a, of)));
        }
        Self(rows)
    }

    pub(super) fn summary(&self) -> String {
        let loaders: Vec<_> = self.0.iter().filter_map(|row| row.loader).collect();
        let mut processes: Vec<u32> = self.0.iter().map(|row| row.process.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        let count = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let sum = |of: fn(&LoaderRates) -> f64| loaders.iter().fold(0.0, |sum, (_, rates)| sum + of(rates));
        format!(
            "{} in {}, {:.0} samples/s, {}/s",
            count(loaders.len(), "loader", "loaders"),
            count(processes.len(), "process", "processes"),
            sum(|rates| rates.samples_per_second),
            output::bytes(sum(|rates| rates.bytes_per_second) as u64),
        )
    }
}

impl TopRow<'_> {
    /// The identity of a row from one update to the next.
    pub(super) fn key(&self) -> (u32, u64) {
        (self.process.pid, self.loader.map_or(u64::MAX, |(loader, _)| loader.number))
    }

    pub(super) fn problem(&self) -> Option<String> {
        match &self.process.state {
            ProcessState::Answered(_) => None,
            ProcessState::Silent(since) if since.is_zero() => Some("not answering".into()),
            ProcessState::Silent(since) => {
                Some(format!("not answering for {}", output::seconds(since.as_secs_f64())))
            }
            ProcessState::Unreadable(why) => Some(why.clone()),
        }
    }
}
