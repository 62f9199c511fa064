//! Reads a log. From the log of a killed run, reads the part that was written.

use super::Stage;
use super::merge::TraceSpan;
use super::peers::{self, PeerNumbers, PeersRecord};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

/// The contents of a log, by process and epoch.
#[derive(Debug, Default)]
pub struct Recording {
    /// Whether the run ended normally. Otherwise its last moments are missing.
    pub complete: bool,
    pub(super) epochs: BTreeMap<(u32, u64), BTreeMap<Stage, StageRecord>>,
    pub(super) processes: BTreeMap<u32, String>,
    /// For each process, its last recorded counters of requests to other nodes.
    pub(super) peers: BTreeMap<u32, PeersRecord>,
    without_epoch: Vec<RecordedInterval>,
}

#[derive(Debug)]
struct RecordedInterval {
    process: u32,
    track: u32,
    stage: Stage,
    span: TraceSpan,
    bytes: u64,
    samples: u64,
}

#[derive(Debug, Default)]
pub(super) struct StageRecord {
    pub tracks: BTreeMap<u32, Vec<TraceSpan>>,
    pub bytes: u64,
    pub samples: u64,
}

#[derive(Deserialize)]
struct TraceLine<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    tid: u32,
    /// The start in microseconds, like all times in the file.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: EventArguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventArguments {
    name: String,
    epoch: Option<u64>,
    samples: u64,
    bytes: u64,
    busy: Option<f64>,
}

#[derive(Deserialize)]
struct PeersLine<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    pid: u32,
    args: PeerNumbers,
}

/// Reads the log at `path`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read or is not a log of Foreload.
pub fn read(path: &Path) -> Result<Recording> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    let mut file = BufReader::with_capacity(1 << 18, file);
    let (mut recording, mut text, mut number) = (Recording::default(), String::new(), 0);
    loop {
        text.clear();
        number += 1;
        let failed = |error| Error::io(format!("read line {number} of"), path, error);
        if file.read_line(&mut text).map_err(failed)? == 0 {
            break;
        }
        let no_log = |why: &str| {
            failed(std::io::Error::new(ErrorKind::InvalidData, format!("not a log of Foreload: {why}")))
        };
        match text.trim() {
            "[" if number == 1 => {}
            _ if number == 1 => return Err(no_log("its first line is not `[`")),
            "" | "]" => {}
            line => match recording.add(line.trim_end_matches(',')) {
                Ok(()) => {}
                // The writing process was stopped in the middle of a line.
                Err(_) if !text.ends_with('\n') => break,
                Err(error) => return Err(no_log(&error.to_string())),
            },
        }
    }
    recording.assign_to_epochs();
    Ok(recording)
}

impl Recording {
    fn add(&mut self, text: &str) -> serde_json::Result<()> {
        let line: TraceLine = serde_json::from_str(text)?;
        match &*line.ph {
            "X" => self.interval(&line),
            "M" if line.name == "process_name" => {
                self.processes.insert(line.pid, line.args.name.clone());
            }
            "M" if line.name == "complete" => self.complete = true,
            "C" if line.cat == peers::CATEGORY => {
                let PeersLine { name, pid, args } = serde_json::from_str(text)?;
                self.peers.entry(pid).or_default().add(&name, args);
            }
            _ => {}
        }
        Ok(())
    }

    fn interval(&mut self, line: &TraceLine) {
        // A later version may have more stages.
        let Some(stage) = Stage::parse(&line.name) else { return };
        let nanoseconds = |micros: f64| (micros * 1e3).round() as u64;
        let (start, length) = (nanoseconds(line.ts), nanoseconds(line.dur));
        let busy = line.args.busy.map_or(length, nanoseconds).min(length);
        let span = TraceSpan { start, end: start + length, busy };
        let EventArguments { epoch, samples, bytes, .. } = line.args;
        let interval = RecordedInterval { process: line.pid, track: line.tid, stage, span, bytes, samples };
        match epoch {
            Some(epoch) => self.put(epoch, &interval),
            None => self.without_epoch.push(interval),
        }
    }

    fn put(&mut self, epoch: u64, interval: &RecordedInterval) {
        let stages = self.epochs.entry((interval.process, epoch)).or_default();
        let record = stages.entry(interval.stage).or_default();
        record.tracks.entry(interval.track).or_default().push(interval.span);
        record.bytes += interval.bytes;
        record.samples += interval.samples;
    }

    /// Assigns intervals without an epoch to the epoch that had begun last.
    fn assign_to_epochs(&mut self) {
        let began = |stages: &BTreeMap<Stage, StageRecord>| {
            stages.values().flat_map(|record| record.tracks.values().flatten()).map(|span| span.start).min()
        };
        let began: Vec<(u32, u64, u64)> = self
            .epochs
            .iter()
            .filter_map(|(&(process, epoch), stages)| Some((process, began(stages)?, epoch)))
            .collect();
        for interval in std::mem::take(&mut self.without_epoch) {
            let of_process = || began.iter().filter(|(process, ..)| *process == interval.process);
            let before = of_process().filter(|(_, began, _)| *began <= interval.span.start);
            let last = before.max_by_key(|(_, began, _)| began).or_else(|| of_process().min_by_key(|b| b.1));
            self.put(last.map_or(0, |(_, _, epoch)| *epoch), &interval);
        }
    }
}
