//! The thread that writes the file: an array of events, one event per line. The file is complete up to the last flush,
//! even after a crash.
//!
//! Format: "Trace Event Format" (Google, the JSON array form, whose closing bracket may be missing): `X` is an interval
//! in microseconds, `C` a counter, `M` the name of a process or track.

use super::{Gauge, PeersRecord, Stage, StageWork, TraceTotals, peers};
use crate::error::{Error, Result};
use crate::threads::start_thread;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of chunks that may wait for the disk. While so many wait, new chunks are dropped.
const MAX_WAITING_CHUNKS: usize = 1024;

/// How long written events may stay in memory. A killed run loses them.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// The distance between the track ids of consecutive stages, and between the sort indexes of consecutive rows.
const LANES_PER_STAGE: u32 = 10_000;

/// An interval of a track. Times are in nanoseconds since the log began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceEvent {
    pub stage: Stage,
    pub start: u64,
    pub end: u64,
    pub busy: u64,
    pub work: StageWork,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct GaugeSample {
    pub gauge: Gauge,
    pub moment: u64,
    pub value: u64,
}

pub(super) struct TraceChunk {
    pub thread: Arc<str>,
    pub lane: u32,
    pub events: Vec<TraceEvent>,
    pub samples: Vec<GaugeSample>,
    pub peers: Vec<(u64, PeersRecord)>,
}

pub(super) struct TraceLog {
    pub origin: Instant,
    sender: Mutex<Option<Sender<TraceChunk>>>,
    lanes: AtomicU32,
    dropped: AtomicU64,
    writer: Mutex<Option<JoinHandle<std::io::Result<u64>>>>,
    path: PathBuf,
}

impl TraceLog {
    pub(super) fn create(path: &Path, process: &str) -> Result<Arc<Self>> {
        let file = File::create(path).map_err(|error| Error::io("create", path, error))?;
        let (sender, chunks) = bounded(MAX_WAITING_CHUNKS);
        let writer = TraceWriter::new(BufWriter::with_capacity(1 << 18, file));
        let process = process.to_owned();
        let thread = start_thread("foreload-trace", "a thread", move || writer.run(&process, &chunks))?;
        Ok(Arc::new(Self {
            origin: Instant::now(),
            sender: Mutex::new(Some(sender)),
            lanes: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            writer: Mutex::new(Some(thread)),
            path: path.to_owned(),
        }))
    }

    pub(super) fn next_lane(&self) -> u32 {
        self.lanes.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a chunk to the writer. Never waits for the disk.
    pub(super) fn send(&self, chunk: TraceChunk) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = match sender.map(|sender| sender.try_send(chunk)) {
            Some(Err(TrySendError::Full(chunk))) => chunk.events.len(),
            // The chunk was sent, or the writer has ended. If the writer failed, `finish` reports the error.
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) | None => 0,
        };
        self.dropped.fetch_add(refused as u64, Ordering::Relaxed);
    }

    pub(super) fn finish(&self) -> Result<TraceTotals> {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return Ok(TraceTotals::default()) };
        let written = writer.join().map_err(|panic| Error::panicked("writing the trace", &*panic))?;
        let intervals = written.map_err(|error| Error::io("write", &self.path, error))?;
        Ok(TraceTotals { intervals, dropped: self.dropped.load(Ordering::Relaxed) })
    }
}

impl Drop for TraceLog {
    fn drop(&mut self) {
        // A caller that needs the result has called `finish` before.
        let _ = self.finish();
    }
}

struct TraceWriter<W: Write> {
    file: W,
    process: u32,
    named: HashSet<u32>,
    /// The stages in the file, in the order of their first events. A track id contains the index of its stage in this
    /// list.
    stages: Vec<Stage>,
    intervals: u64,
}

impl<W: Write> TraceWriter<W> {
    fn new(file: W) -> Self {
        Self { file, process: std::process::id(), named: HashSet::new(), stages: Vec::new(), intervals: 0 }
    }

    fn run(mut self, process: &str, chunks: &Receiver<TraceChunk>) -> std::io::Result<u64> {
        writeln!(self.file, "[")?;
        self.name("process_name", 0, process)?;
        let mut flushed = Instant::now();
        loop {
            match chunks.recv_timeout(FLUSH_INTERVAL) {
                Ok(chunk) => self.chunk(&chunk)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_INTERVAL {
                self.file.flush()?;
                flushed = Instant::now();
            }
        }
        // This is the last element of the array, so no comma follows.
        let pid = self.process;
        writeln!(self.file, r#"{{"name":"complete","ph":"M","pid":{pid},"tid":0,"args":{{}}}}"#)?;
        writeln!(self.file, "]")?;
        self.file.flush()?;
        Ok(self.intervals)
    }

    fn chunk(&mut self, chunk: &TraceChunk) -> std::io::Result<()> {
        for event in &chunk.events {
            let track = self.track(event.stage, chunk.lane);
            if self.named.insert(track) {
                self.name("thread_name", track, &format!("{}: {}", event.stage.name(), chunk.thread))?;
                let pid = self.process;
                write!(self.file, r#"{{"name":"thread_sort_index","ph":"M","pid":{pid},"tid":{track},"#)?;
                let index = event.stage.row() * LANES_PER_STAGE + chunk.lane;
                writeln!(self.file, r#""args":{{"sort_index":{index}}}}},"#)?;
            }
            self.event(track, event)?;
        }
        for GaugeSample { gauge, moment, value } in &chunk.samples {
            let (name, pid, ts) = (gauge.name(), self.process, Micros(*moment));
            writeln!(
                self.file,
                r#"{{"name":"{name}","ph":"C","pid":{pid},"tid":0,"ts":{ts},"args":{{"value":{value}}}}},"#
            )?;
        }
        for (moment, record) in &chunk.peers {
            for (name, numbers) in record.lines() {
                let (name, pid, ts) = (serde_json::Value::from(name), self.process, Micros(*moment));
                write!(self.file, r#"{{"name":{name},"cat":"{}","ph":"C","#, peers::CATEGORY)?;
                let numbers = serde_json::to_string(numbers)?;
                writeln!(self.file, r#""pid":{pid},"tid":0,"ts":{ts},"args":{numbers}}},"#)?;
            }
        }
        Ok(())
    }

    fn track(&mut self, stage: Stage, lane: u32) -> u32 {
        let place = self.stages.iter().position(|known| *known == stage).unwrap_or_else(|| {
            self.stages.push(stage);
            self.stages.len() - 1
        });
        (place as u32 + 1) * LANES_PER_STAGE + lane
    }

    fn event(&mut self, track: u32, event: &TraceEvent) -> std::io::Result<()> {
        let TraceEvent { stage, start, end, busy, work: StageWork { bytes, samples, epoch, step } } = *event;
        self.intervals += 1;
        write!(
            self.file,
            r#"{{"name":"{}","cat":"foreload","ph":"X","pid":{},"tid":{track},"ts":{},"dur":{},"args":{{"step":{step}"#,
            stage.name(),
            self.process,
            Micros(start),
            Micros(end - start),
        )?;
        if let Some(epoch) = epoch {
            write!(self.file, r#","epoch":{epoch}"#)?;
        }
        if samples > 0 {
            write!(self.file, r#","samples":{samples}"#)?;
        }
        if bytes > 0 {
            write!(self.file, r#","bytes":{bytes}"#)?;
        }
        if busy < end - start {
            write!(self.file, r#","busy":{}"#, Micros(busy))?;
        }
        writeln!(self.file, "}}}},")
    }

    fn name(&mut self, what: &str, track: u32, name: &str) -> std::io::Result<()> {
        let (pid, name) = (self.process, serde_json::Value::from(name));
        writeln!(
            self.file,
            r#"{{"name":"{what}","ph":"M","pid":{pid},"tid":{track},"args":{{"name":{name}}}}},"#
        )
    }
}

/// Nanoseconds that are formatted as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
