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
    let (silent_seconds, reason, loaders) = (None, None, Vec::new());
    let (pid, program) = (seen.pid, seen.program.as_str());
    let mut report = ProcessReport { pid, program, state: "answers", silent_seconds, reason, loaders };
    match &seen.state {
        ProcessState::Answered(loaders) => {
            report.loaders = loaders.iter().map(|(loader, rates)| LoaderReport { loader, rates }).collect();
        }
        ProcessState::Silent(since) => {
            (report.state, report.silent_seconds) = ("silent", Some(since.as_secs_f64()));
        }
        ProcessState::Unreadable(why) => (report.state, report.reason) = ("unreadable", Some(why.as_str())),
    }
    report
}
