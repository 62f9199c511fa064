//! The JSON output: the loaders of each process as it reports them, with `rates`.

use engine::status::{LoaderRates, LoaderSnapshot, ProcessState, ProcessStatus};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct SeenReport<'a> {
    processes: Vec<ProcessReport<'a>>,
}

#[derive(Serialize)]
struct ProcessReport<'a> {
    pid: u32,
    program: &'a str,
    /// `answers`, `silent` or `unreadable`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    loaders: Vec<LoaderReport<'a>>,
}

#[derive(Serialize)]
struct LoaderReport<'a> {
    #[serde(flatten)]
    loader: &'a LoaderSnapshot,
    rates: &'a LoaderRates,
}

pub(super) fn of(seen: &[ProcessStatus]) -> SeenReport<'_> {
    SeenReport { processes: seen.iter().map(process).collect() }
}

fn process(seen: &ProcessStatus) -> ProcessReport<'_> {
    let (state, silent_seconds, reason, loaders) = match &seen.state {
        ProcessState::Answered(loaders) => ("answers", None, None, &loaders[..]),
        ProcessState::Silent(since) => ("silent", Some(since.as_secs_f64()), None, &[][..]),
        ProcessState::Unreadable(why) => ("unreadable", None, Some(why.as_str()), &[][..]),
    };
    let loaders = loaders.iter().map(|(loader, rates)| LoaderReport { loader, rates }).collect();
    ProcessReport { pid: seen.pid, program: &seen.program, state, silent_seconds, reason, loaders }
}
