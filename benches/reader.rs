//! The reader against the storage: random extents of shards, cold, at a fixed depth.
//!
//! `cargo bench --bench reader -- SHARD… [--reads N] [--depth N] [--io uring|pread] [--buffered] [--seed N]
//! [--iolog FILE]` prints one JSON object. `--iolog` also writes the same extents, aligned as O_DIRECT asks, for
//! `fio --read_iolog`. Without shards nothing is measured: criterion's flags do not apply here.

use foreload::dataset::{Extent, FileId};
use foreload::error::Result;
use foreload::io::pread::{PreadOptions, PreadReader};
use foreload::io::uring::{UringOptions, UringReader};
use foreload::io::{Files, ReadRequest, Reader};
use foreload::rng::{Key, Use};
use foreload::slot::SlotPool;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sizes of samples in bytes: as ImageNet-like photographs have.
const SIZES: std::ops::Range<u64> = 10_000..150_000;

struct Shards(Vec<(PathBuf, (u64, i64))>);

impl Files for Shards {
    fn path(&self, file: FileId) -> PathBuf {
        self.0[file.0 as usize].0.clone()
    }
    fn stamp(&self, file: FileId) -> Option<(u64, i64)> {
        Some(self.0[file.0 as usize].1)
    }
    fn check_directory(&self, _file: FileId) -> Result<()> {
        Ok(())
    }
}

struct Options {
    shards: Vec<PathBuf>,
    reads: usize,
    depth: usize,
    uring: bool,
    direct: bool,
    seed: u64,
    iolog: Option<PathBuf>,
}

fn options() -> Options {
    let mut options = Options {
        shards: Vec::new(),
        reads: 20_000,
        depth: 32,
        uring: true,
        direct: true,
        seed: 0,
        iolog: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            // What `cargo bench` adds; JSON is all there is.
            "--bench" | "--json" => {}
            "--reads" => options.reads = value().parse().expect("--reads: a number"),
            "--depth" => options.depth = value().parse().expect("--depth: a number"),
            "--seed" => options.seed = value().parse().expect("--seed: a number"),
            "--io" => options.uring = value() == "uring",
            "--buffered" => options.direct = false,
            "--iolog" => options.iolog = Some(value().into()),
            _ => options.shards.push(argument.into()),
        }
    }
    options
}

fn main() {
    let options = options();
    if options.shards.is_empty() {
        eprintln!("reader: no shards given, nothing measured (cargo bench --bench reader -- SHARD…)");
        return;
    }
    let shards = options.shards.iter().map(|path| {
        let path = path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = std::fs::metadata(&path).expect("it was there");
        assert!(found.size() > SIZES.end, "{} is too small", path.display());
        (path, (found.size(), found.mtime() * 1_000_000_000 + found.mtime_nsec()))
    });
    let shards = Arc::new(Shards(shards.collect()));
    let extents = extents(&shards, &options);
    if let Some(path) = &options.iolog {
        std::fs::write(path, iolog(&shards, &extents)).expect("write the log for fio");
    }
    drop_from_cache(&shards);

    let slots = SlotPool::new(options.depth * 2 * SIZES.end as usize).expect("memory for slots");
    let mut reader: Box<dyn Reader> = if options.uring {
        let uring = UringOptions { direct: options.direct, ..UringOptions::default() };
        Box::new(UringReader::new(shards.clone(), &slots, options.depth, uring).expect("io_uring"))
    } else {
        let pread = PreadOptions { direct: options.direct, ..PreadOptions::default() };
        Box::new(PreadReader::new(shards.clone(), options.depth, pread).expect("threads"))
    };
    let (begun, cpu) = (Instant::now(), cpu_time());
    drive(&mut *reader, &slots, &extents);
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_time() - cpu);
    let bytes: u64 = extents.iter().map(|extent| u64::from(extent.length)).sum();
    let result = serde_json::json!({
        "io": reader.describe(),
        "depth": options.depth,
        "reads": extents.len(),
        "bytes": bytes,
        "seconds": seconds,
        "reads_per_s": extents.len() as f64 / seconds,
        "mb_per_s": bytes as f64 / 1e6 / seconds,
        "cpu_us_per_read": cpu.as_secs_f64() * 1e6 / extents.len() as f64,
    });
    println!("{result}");
}

fn extents(shards: &Shards, options: &Options) -> Vec<Extent> {
    let mut random = Key::new(b"reader bench", options.seed, 0, Use::Order).stream(0);
    let mut draw = || {
        let file = random.below(shards.0.len() as u64) as u32;
        let length = SIZES.start + random.below(SIZES.end - SIZES.start);
        let offset = random.below(shards.0[file as usize].1.0 - length);
        Extent { file: FileId(file), offset, length: length as u32 }
    };
    (0..options.reads).map(|_| draw()).collect()
}

fn drive(reader: &mut dyn Reader, slots: &SlotPool, extents: &[Extent]) {
    let mut out = Vec::new();
    let mut next = 0;
    while next < extents.len() || reader.in_flight() > 0 {
        while next < extents.len() && reader.room() > 0 {
            let extent = extents[next];
            let Some(slot) = slots.try_take(extent.length as usize) else { break };
            reader.submit(ReadRequest { token: next as u64, extent, slot });
            next += 1;
        }
        reader.wait(&mut out).expect("the reader works");
        for completion in out.drain(..) {
            completion.result.expect("shards are readable");
        }
    }
}

/// The same reads in fio's format, version 2.
fn iolog(shards: &Shards, extents: &[Extent]) -> String {
    let mut log = "fio version 2 iolog\n".to_owned();
    for (path, _) in &shards.0 {
        let path = path.display();
        writeln!(log, "{path} add\n{path} open").expect("to a string");
    }
    for extent in extents {
        let path = shards.0[extent.file.0 as usize].0.display();
        let start = extent.offset / 4096 * 4096;
        let length = (extent.offset + u64::from(extent.length)).next_multiple_of(4096) - start;
        writeln!(log, "{path} read {start} {length}").expect("to a string");
    }
    for (path, _) in &shards.0 {
        writeln!(log, "{} close", path.display()).expect("to a string");
    }
    log
}

/// Writes back and forgets the shards' pages.
fn drop_from_cache(shards: &Shards) {
    for (path, _) in &shards.0 {
        let file = std::fs::File::open(path).expect("it was there");
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// User and system time of this process, kernel threads that work for it included.
fn cpu_time() -> Duration {
    // SAFETY: all zeros is a value of this plain struct, and getrusage writes only into it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
