//! One conformance suite for every way to read, and the ways reading fails.

mod conformance;
mod world;

use foreload::io::Reader;
use foreload::io::pread::{PreadOptions, PreadReader};
use foreload::io::uring::{RingMode, UringOptions, UringReader};
use foreload::slot::SlotPool;
use std::sync::Arc;
use world::World;

/// A reader under test, by name.
struct Variant {
    name: String,
    make: Box<Make>,
}

/// Makes it for a world, a pool and a depth.
type Make = dyn Fn(&Arc<World>, &SlotPool, usize) -> Box<dyn Reader>;

/// Every reader there is.
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
    for mode in RingMode::LADDER {
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
    variants
}
