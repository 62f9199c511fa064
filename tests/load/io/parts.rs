//! Parts of extents: every reader stores the wanted parts at their places, and reports which parts it has read.

use super::variants;
use super::world::{World, pool, random};
use foreload::testing::io::ReadRequest;
use foreload::testing::parts::WantedBytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[test]
fn parts_arrive_in_their_places() {
    for variant in variants() {
        let name = &variant.name;
        let mut random = random(8);
        let world = Arc::new(World::new(8));
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 8);
        let mut wanted = 0;
        for round in 0..60 {
            let mut asked = Vec::new();
            while asked.len() < 8 {
                let extent = world.random_extent(&mut random);
                let Some(length) = extent.length.checked_sub(3) else { continue };
                let mut below = |limit: u32| random.below(u64::from(limit) + 1) as u32;
                let head = 1 + below(length.min(600));
                let start = head + below(extent.length - 1 - head);
                let parts = WantedBytes::new(head, start..start + 1 + below(extent.length - start - 1));
                let mut slot = slots.try_take(extent.length as usize).unwrap();
                slot.bytes_mut().fill(0xA5);
                let request = ReadRequest::new(asked.len() as u64, extent, slot);
                reader.submit(ReadRequest { parts: Some(parts), ..request });
                asked.push((extent, parts));
                wanted += u64::from(parts.bytes());
            }
            let (mut out, mut count) = (Vec::new(), 0);
            while count < asked.len() {
                reader.wait(&mut out).unwrap();
                for completion in out.drain(..) {
                    let (extent, parts) = asked[completion.token as usize];
                    let filled = completion.result.unwrap_or_else(|error| panic!("{name}: {error}"));
                    let ((bytes, read), expected) = (filled.in_parts(), world.expected(extent));
                    assert_eq!(bytes.len(), expected.len(), "{name}, round {round}");
                    for range in [0..parts.head, parts.start..parts.end] {
                        let range = range.start as usize..range.end as usize;
                        assert!(read.is_none_or(|read| read.holds(&range)), "{name}: {parts:?} of {read:?}");
                        assert!(bytes[range.clone()] == expected[range], "{name}, round {round}: {parts:?}");
                    }
                    // Panics print a backtrace and are slow, so test this only once.
                    if round == 0 && count == 0 {
                        let whole = catch_unwind(AssertUnwindSafe(|| filled.len()));
                        assert_eq!(whole.is_ok(), read.is_none(), "{name}: parts are not all bytes");
                    }
                    count += 1;
                }
            }
        }
        let stats = reader.stats();
        assert!(stats.skipped > 0 && stats.bytes >= wanted, "{name}: {stats:?} of {wanted}");
    }
}
