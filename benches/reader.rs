//! Runs only the reader, at full speed over a dataset in the order of its epochs; prints one JSON object.
//!
//! `cargo bench --bench reader -- DIR [--epochs N] [--depth N] [--io auto|uring|pread] [--cache auto|bypass|use]`.
//! `--iolog FILE` writes the same reads, widened to what O_DIRECT needs, for `fio --read_iolog`:
//! `benches/limits/run.py` replays them. Without a dataset nothing is measured; criterion's flags do not apply.

use clap::{Parser, ValueEnum};
use foreload::testing::dataset::{DatasetIndex, Extent, IndexOptions};
use foreload::testing::io::{self, Completion, Direct, IoChoice, ReadRequest};
use foreload::testing::schedule::Order;
use foreload::testing::slot::{PAGE, SlotPool};
use foreload::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The ratio of slots to reads in flight, so that a free slot is always available.
const SLACK: usize = 2;

#[derive(Clone, Copy, ValueEnum)]
enum Io {
    Auto,
    Uring,
    Pread,
}

#[derive(Clone, Copy, ValueEnum)]
enum Cache {
    Auto,
    Bypass,
    Use,
}

/// Reads every sample of a dataset in shuffled order and throws the bytes away.
#[derive(Parser)]
struct Arguments {
    /// The dataset; without it nothing is measured
    dir: Option<PathBuf>,
    /// Reads in flight
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Epochs, each in an order of its own
    #[arg(long, default_value_t = 4)]
    epochs: u64,
    /// Which way to read
    #[arg(long, value_enum, default_value = "auto")]
    io: Io,
    /// Whether to bypass the page cache
    #[arg(long, value_enum, default_value = "bypass")]
    cache: Cache,
    /// Write the reads as an fio I/O log here instead of doing them
    #[arg(long)]
    iolog: Option<PathBuf>,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let Some(dir) = &arguments.dir else {
        eprintln!("reader: no dataset given, nothing measured (cargo bench --bench reader -- DIR)");
        return Ok(());
    };
    let index = Arc::new(DatasetIndex::open(dir, &IndexOptions::default())?);
    let extents = extents(&index, arguments.epochs);
    match &arguments.iolog {
        Some(file) => {
            std::fs::write(file, fio_log(&index, &extents)).map_err(|error| Error::io("write", file, error))
        }
        None => measure(&index, &extents, &arguments),
    }
}

/// The extents of all samples, epoch after epoch, in the order in which training uses them.
fn extents(index: &DatasetIndex, epochs: u64) -> Vec<Extent> {
    let mut extents = Vec::new();
    for epoch in 0..epochs {
        let order = Order::shuffled(&index.fingerprint(), 0, epoch, index.len());
        extents.extend((0..index.len()).map(|position| index.extent(order.sample(position))));
    }
    extents
}

/// The reads in fio's format, version 2.
fn fio_log(index: &DatasetIndex, extents: &[Extent]) -> String {
    let files: BTreeMap<u32, String> =
        extents.iter().map(|extent| (extent.file.0, index.path(extent.file).display().to_string())).collect();
    let mut log = String::from("fio version 2 iolog\n");
    let mut line = |path: &str, action: &str| writeln!(log, "{path} {action}").expect("memory takes it");
    for action in ["add", "open"] {
        files.values().for_each(|path| line(path, action));
    }
    let page = PAGE as u64;
    for extent in extents {
        let start = extent.offset / page * page;
        let end = (extent.offset + u64::from(extent.length)).next_multiple_of(page);
        line(&files[&extent.file.0], &format!("read {start} {}", end - start));
    }
    files.values().for_each(|path| line(path, "close"));
    log
}

fn measure(index: &Arc<DatasetIndex>, extents: &[Extent], arguments: &Arguments) -> Result<()> {
    let io = match arguments.io {
        Io::Auto => IoChoice::Auto,
        Io::Uring => IoChoice::Uring,
        Io::Pread => IoChoice::Pread,
    };
    let direct = match arguments.cache {
        Cache::Auto => Direct::Auto,
        Cache::Bypass => Direct::On,
        Cache::Use => Direct::Off,
    };
    let slots = SlotPool::new(SLACK * arguments.depth * (index.largest() as usize + 2 * PAGE))?;
    let mut reader = io::open(index, &slots, io, direct, arguments.depth)?;
    let mut arrived: Vec<Completion> = Vec::with_capacity(arguments.depth);
    let (mut asked, mut sample_bytes, mut reads) = (0, 0, 0);
    let (started, cpu_before) = (Instant::now(), cpu_seconds());
    while reads < extents.len() {
        while asked < extents.len() && reader.room() > 0 {
            let extent = extents[asked];
            let Some(slot) = slots.try_take(extent.length as usize) else { break };
            reader.submit(ReadRequest::new(asked as u64, extent, slot));
            asked += 1;
        }
        reader.wait(&mut arrived)?;
        for completion in arrived.drain(..) {
            sample_bytes += completion.result?.len();
            reads += 1;
        }
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    // Counts the bytes from the storage, to compare with fio: the samples and the padding that O_DIRECT reads around
    // them.
    let bytes = reader.stats().bytes;
    let result = serde_json::json!({
        "reads": reads, "bytes": bytes, "sample_bytes": sample_bytes, "seconds": seconds, "cpu_seconds": cpu,
        "io": reader.describe(), "depth": arguments.depth,
    });
    println!("{result}");
    Ok(())
}

/// The user + system time of all threads of this process, including io_uring's own.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the result, and the clock exists on every Linux.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "the process's CPU clock can be read");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
