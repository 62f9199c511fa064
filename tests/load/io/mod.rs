//! One conformance suite for every reader, and the ways in which reading fails.

mod chunks;
mod conformance;
mod fallback;
mod faults;
mod own_thread;
mod parts;
pub mod recorded;
mod records;
mod throttled;
mod world;
mod written;

use crate::common::fault::{FaultOptions, FaultReader};
use foreload::testing::io::pread::{PreadOptions, PreadReader};
use foreload::testing::io::uring::{RingMode, UringOptions, UringReader};
use foreload::testing::io::{
    DelayedReader, GatherReader, OwnThread, ParallelFsModel, ParallelFsRates, Reader, Waker,
};
use foreload::testing::slot::SlotPool;
use own_thread::Beside;
use std::sync::Arc;
use std::time::Duration;
use world::World;

/// A reader under test, by name.
struct Variant {
    name: String,
    make: Box<Make>,
}

/// Makes a reader for a world, a pool and a depth.
type Make = dyn Fn(&Arc<World>, &SlotPool, usize) -> Box<dyn Reader>;

/// All readers.
fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for direct in [false, true] {
        for short_reads in [None, Some(3)] {
            let name = format!("pread, direct {direct}, short reads {short_reads:?}");
            let options = PreadOptions { direct, short_reads, ..PreadOptions::default() };
            variants.push(Variant {
                name,
                make: Box::new(move |world, _, depth| {
                    Box::new(PreadReader::new(world.clone(), depth, options.clone()).unwrap())
                }),
            });
        }
    }
    for mode in RingMode::PREFERENCE {
        if let Err(why) = uring_is_there(mode) {
            println!("skipped: {mode:?} ring: {why}");
            continue;
        }
        for (register, direct, short_reads) in [
            (true, false, None),
            (true, true, None),
            (false, true, None),
            (true, false, Some(5)),
            (false, true, Some(6)),
        ] {
            let name =
                format!("{mode:?} ring, registered {register}, direct {direct}, short reads {short_reads:?}");
            let options =
                UringOptions { mode: Some(mode), register, direct, short_reads, ..UringOptions::default() };
            variants.push(Variant {
                name,
                make: Box::new(move |world, slots, depth| {
                    Box::new(UringReader::new(world.clone(), slots, depth, options.clone()).unwrap())
                }),
            });
        }
    }
    // Each reader is also tested inside of a reader that delays and reorders: the guarantees must not depend on the
    // order.
    let plain: Vec<Variant> = std::mem::take(&mut variants);
    for (number, Variant { name, make }) in plain.into_iter().enumerate() {
        let make: std::rc::Rc<Make> = make.into();
        if number % 3 == 1 {
            let make = make.clone();
            variants.push(Variant {
                name: format!("{name}, on a thread of its own"),
                make: Box::new(move |world, slots, depth| {
                    // Rings and threads can be created on any thread; only the thread that drives them matters.
                    let inner = make(world, slots, depth);
                    let idle = Waker(Arc::new(|| {}));
                    Box::new(OwnThread::new("second", move || Ok(inner), idle).unwrap())
                }),
            });
        }
        if number % 5 == 0 {
            let make = make.clone();
            let rates = ParallelFsRates {
                open: Duration::from_micros(40),
                read: Duration::from_micros(20),
                bandwidth: Some(4e9),
                opens: Some(1e5),
                concurrency: Some(8),
            };
            variants.push(Variant {
                name: format!("{name}, throttled"),
                make: Box::new(move |world, slots, depth| {
                    let inner = make(world, slots, depth);
                    let pfs = Arc::new(ParallelFsModel::new(rates));
                    Box::new(DelayedReader::new(inner, world.clone(), pfs).unwrap())
                }),
            });
        }
        if number % 4 == 0 {
            for loose_here in [true, false] {
                let make = make.clone();
                variants.push(Variant {
                    name: format!("{name}, and beside it the same, loose files here: {loose_here}"),
                    make: Box::new(move |world, slots, depth| {
                        let (here, there) = (make(world, slots, depth), make(world, slots, depth));
                        Box::new(Beside::new(world.clone(), here, there, loose_here))
                    }),
                });
            }
        }
        if number % 4 == 1 {
            let make = make.clone();
            variants.push(Variant {
                name: format!("{name}, below a reader of records"),
                make: Box::new(move |world, slots, depth| {
                    Box::new(GatherReader::new(world.clone(), make(world, slots, depth), 0))
                }),
            });
        }
        if number % 3 == 0 {
            let make = make.clone();
            let seed = number as u64;
            variants.push(Variant {
                name: format!("{name}, reordered by seed {seed}"),
                make: Box::new(move |world, slots, depth| {
                    let inner = make(world, slots, depth);
                    Box::new(FaultReader::new(inner, FaultOptions::reordering(seed)))
                }),
            });
        }
        variants.push(Variant { name, make: Box::new(move |world, slots, depth| make(world, slots, depth)) });
    }
    variants
}

/// Whether this system permits a ring of this mode. Old kernels lack some modes, sandboxes refuse all; a mode that is
/// refused cannot be tested here.
fn uring_is_there(mode: RingMode) -> std::io::Result<()> {
    let options = UringOptions { mode: Some(mode), ..UringOptions::default() };
    UringReader::new(Arc::new(World::empty()), &SlotPool::new(1).unwrap(), 1, options).map(drop)
}
