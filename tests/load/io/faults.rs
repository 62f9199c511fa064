//! Faults injected above and below the readers: every request is answered once, with right bytes or an error.

use super::world::{World, pool, random, read_all, shared};
use crate::common::fault::{FaultOptions, FaultReader};
use foreload::testing::io::pread::{PreadOptions, PreadReader};
use foreload::testing::io::uring::{UringOptions, UringReader};
use foreload::testing::io::{Completion, ReadRequest, Reader};
use foreload::testing::slot::SlotPool;
use std::sync::Arc;

fn faulty(world: &Arc<World>, slots: &SlotPool, seed: u64) -> FaultReader {
    let (direct, short_reads) = (seed.is_multiple_of(2), Some(seed));
    let inner: Box<dyn Reader> = if seed.is_multiple_of(3) {
        let options = PreadOptions { direct, short_reads, ..PreadOptions::default() };
        Box::new(PreadReader::new(world.clone(), 24, options).unwrap())
    } else {
        let options = UringOptions { direct, short_reads, ..UringOptions::default() };
        match UringReader::new(world.clone(), slots, 24, options) {
            Ok(reader) => Box::new(reader),
            Err(_) => Box::new(PreadReader::new(world.clone(), 24, PreadOptions::default()).unwrap()),
        }
    };
    FaultReader::new(inner, FaultOptions::everything(seed))
}

#[test]
fn thousands_of_requests_are_answered_once_each() {
    let (world, slots) = shared(20);
    for seed in 0..6 {
        let mut random = random(seed);
        let mut extents: Vec<_> = (0..700).map(|_| world.random_extent(&mut random)).collect();
        extents.extend(world.loose().into_iter().cycle().take(300));
        let mut reader = faulty(&world, &slots, seed);
        let (mut right, mut failed) = (0, 0);
        for (extent, answer) in extents.iter().zip(read_all(&mut reader, &slots, &extents)) {
            match answer {
                Ok(bytes) => {
                    assert!(bytes == world.expected(*extent), "seed {seed}: {extent:?} has other bytes");
                    right += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("injected"), "seed {seed}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(right > 800 && failed > 40, "seed {seed}: {right} right, {failed} failed");
        drop(reader);
        assert_eq!(slots.usage().in_use, 0, "seed {seed}");
    }
}

#[test]
fn every_request_that_fails_gives_its_slot_back() {
    let (world, slots) = shared(24);
    let extents = world.loose();
    for seed in 0..6 {
        let mut reader = faulty(&world, &slots, seed);
        let (mut out, mut failed) = (Vec::new(), 0);
        for (token, &extent) in extents.iter().cycle().take(400).enumerate() {
            let slot = slots.try_take(extent.length as usize).unwrap();
            reader.submit(ReadRequest::new(token as u64, extent, slot));
            while reader.in_flight() > 0 {
                reader.wait(&mut out).unwrap();
            }
            for Completion { result, slot, .. } in out.drain(..) {
                assert_eq!(result.is_err(), slot.is_some(), "seed {seed}");
                failed += usize::from(result.is_err());
            }
        }
        assert!(failed > 10, "seed {seed}: {failed} failed");
    }
}

#[test]
fn faults_depend_on_the_seed_alone() {
    let (world, slots) = shared(21);
    let mut random = random(21);
    let extents: Vec<_> = (0..100).map(|_| world.random_extent(&mut random)).collect();
    // There is one request at a time, so that the order of the draws is fixed.
    let failures = |seed| {
        let mut reader = faulty(&world, &slots, seed);
        let answer = |&extent| read_all(&mut reader, &slots, &[extent]).remove(0).is_err();
        extents.iter().map(answer).collect::<Vec<_>>()
    };
    assert_eq!(failures(7), failures(7));
    assert_ne!(failures(7), failures(8));
}

#[test]
fn dropped_in_the_middle_nothing_is_lost() {
    let (world, slots) = (Arc::new(World::new(22)), pool());
    for seed in 0..30 {
        let mut random = random(seed);
        let mut reader = faulty(&world, &slots, seed);
        let mut out = Vec::new();
        let mut loose = world.loose().into_iter().cycle();
        for step in 0..random.below(60) {
            if reader.room() > 0 {
                let extent = match random.below(2) {
                    0 => world.random_extent(&mut random),
                    _ => loose.next().unwrap(),
                };
                if let Some(slot) = slots.try_take(extent.length as usize) {
                    reader.submit(ReadRequest::new(step, extent, slot));
                }
            } else {
                reader.wait(&mut out).unwrap();
            }
        }
        drop(reader);
        // Completions outlive the reader.
        drop(out);
        assert_eq!(slots.usage().in_use, 0, "seed {seed}");
    }
}

#[test]
fn a_reader_may_be_made_used_and_dropped_in_different_threads() {
    let (world, slots) = (Arc::new(World::new(23)), pool());
    let extents = world.loose();
    for seed in [1, 3] {
        let mut reader: Box<dyn Reader> = Box::new(faulty(&world, &slots, seed));
        for _ in 0..3 {
            let (slots, extents) = (slots.clone(), extents.clone());
            reader = std::thread::spawn(move || {
                read_all(&mut *reader, &slots, &extents);
                reader
            })
            .join()
            .unwrap();
        }
        for (token, &extent) in extents.iter().take(10).enumerate() {
            let slot = slots.try_take(extent.length as usize).unwrap();
            reader.submit(ReadRequest::new(token as u64, extent, slot));
        }
        drop(reader);
        assert_eq!(slots.usage().in_use, 0);
    }
}
