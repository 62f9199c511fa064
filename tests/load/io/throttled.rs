//! The emulated parallel file system gives the right bytes, never too early, with one queue for all its readers.

use super::recorded::Recorded;
use super::world::{World, random, read_all, shared};
use crate::common::fault::{FaultOptions, FaultReader};
use foreload::testing::dataset::arrays::SampleRecord;
use foreload::testing::dataset::{Extent, FileId};
use foreload::testing::io::pread::{PreadOptions, PreadReader};
use foreload::testing::io::{
    DelayedReader, GatherReader, ParallelFsModel, ParallelFsRates, ReadRequest, Reader, record_room,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RATES: ParallelFsRates = ParallelFsRates {
    open: Duration::from_millis(2),
    read: Duration::from_millis(1),
    bandwidth: Some(200e6),
    opens: None,
    concurrency: None,
};

fn pread(world: &Arc<World>) -> Box<dyn Reader> {
    Box::new(PreadReader::new(world.clone(), 16, PreadOptions::default()).unwrap())
}

#[test]
fn answers_come_no_earlier_than_a_slow_file_system_gives_them() {
    let (world, slots) = shared(50);
    let loose = &world.loose()[9..30];
    let pfs = Arc::new(ParallelFsModel::new(RATES));
    let begun = Instant::now();
    let mut reader = DelayedReader::new(pread(&world), world.clone(), pfs.clone()).unwrap();
    for (extent, answer) in loose.iter().zip(read_all(&mut reader, &slots, loose)) {
        assert!(answer.unwrap() == world.expected(*extent));
    }
    let took = begun.elapsed().as_secs_f64();
    let bytes: u64 = loose.iter().map(|extent| u64::from(extent.length)).sum();
    let stats = pfs.stats();
    assert_eq!((stats.reads.bytes, stats.reads.reads, stats.reads.opens), (bytes, 21, 21));
    // There are two rounds of at most 16 requests, and the bandwidth is a limit.
    let least = (bytes as f64 / 200e6).max(2.0 * 3e-3);
    assert!(took >= least, "{took} s for {bytes} bytes");
    // Sums of seconds are rounded. The tests of `ParallelFsModel` check, with their own clock, that it is not longer
    // than the run.
    assert!(stats.busy_seconds > least - 1e-9, "{stats:?}");
    assert!(reader.describe().ends_with("slowed to open 2ms, read 1ms, 200 MB/s"), "{}", reader.describe());
}

#[test]
fn a_shard_is_opened_once_by_each_reader_and_all_share_the_bandwidth() {
    let (world, slots) = shared(51);
    let mut random = random(51);
    let extents: Vec<_> = (0..60).map(|_| world.random_extent(&mut random)).collect();
    let bytes: u64 = extents.iter().map(|extent| u64::from(extent.length)).sum();
    let pfs = Arc::new(ParallelFsModel::new(ParallelFsRates {
        open: Duration::ZERO,
        read: Duration::ZERO,
        ..RATES
    }));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (world, slots, pfs, extents) = (&world, &slots, pfs.clone(), &extents);
            scope.spawn(move || {
                let mut reader = DelayedReader::new(pread(world), world.clone(), pfs).unwrap();
                for (extent, answer) in extents.iter().zip(read_all(&mut reader, slots, extents)) {
                    assert!(answer.unwrap() == world.expected(*extent));
                }
            });
        }
    });
    let took = begun.elapsed().as_secs_f64();
    assert!(took >= 2.0 * bytes as f64 / 200e6, "{took} s for twice {bytes} bytes");
    let stats = pfs.stats();
    assert_eq!((stats.reads.bytes, stats.reads.opens), (2 * bytes, 2 * world.shards().len() as u64));
}

#[test]
fn faults_beneath_it_are_answers_too() {
    let (world, slots) = shared(52);
    let fast =
        ParallelFsRates { open: Duration::from_micros(50), bandwidth: None, ..ParallelFsRates::default() };
    for seed in 0..5 {
        let inner = Box::new(FaultReader::new(pread(&world), FaultOptions::everything(seed)));
        let mut reader =
            DelayedReader::new(inner, world.clone(), Arc::new(ParallelFsModel::new(fast))).unwrap();
        let loose: Vec<_> = world.loose().into_iter().cycle().take(300).collect();
        let mut failed = 0;
        for (extent, answer) in loose.iter().zip(read_all(&mut reader, &slots, &loose)) {
            match answer {
                Ok(bytes) => assert!(bytes == world.expected(*extent), "seed {seed}"),
                Err(error) => failed += usize::from(error.to_string().contains("injected")),
            }
        }
        assert!(failed > 5, "seed {seed}: {failed} failed");
        let slot = slots.try_take(loose[0].length as usize).unwrap();
        reader.submit(ReadRequest::new(9, loose[0], slot));
        drop(reader);
        assert_eq!(slots.usage().in_use, 0, "seed {seed}");
    }
}

#[test]
fn each_read_of_a_record_counts() {
    let (world, slots) = shared(53);
    let file = FileId(world.shards()[0]);
    let extents = [0, 1 << 20, 2 << 20].map(|offset| Extent { file, offset, length: 100 });
    let recorded = Recorded::new(world.clone(), vec![SampleRecord::of(extents).unwrap()]);
    let pfs = Arc::new(ParallelFsModel::new(RATES));
    let inner = Box::new(GatherReader::new(recorded.clone(), pread(&world), 0));
    let mut reader = DelayedReader::new(inner, recorded.clone(), pfs.clone()).unwrap();
    let slot = slots.try_take(record_room(&*recorded, &recorded.records[0], None, 0)).unwrap();
    reader.submit(ReadRequest::new(1, recorded.extent(0), slot));
    let mut out = Vec::new();
    reader.wait(&mut out).unwrap();
    assert_eq!(out.remove(0).result.unwrap().arrived(), 300);
    let stats = pfs.stats();
    assert_eq!((stats.reads.bytes, stats.reads.reads, stats.reads.opens), (300, 3, 1));
}
