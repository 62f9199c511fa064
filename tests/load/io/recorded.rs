//! Files with records whose bytes are known, and a driver that reads records of them.

use super::world::World;
use foreload::Result;
use foreload::testing::dataset::arrays::{Piece, RecordRanges, SampleRecord};
use foreload::testing::dataset::{BlockCache, Extent, FileBlock, FileId, Stamp};
use foreload::testing::io::{Completion, Files, Filled, ReadRequest, Reader, RemoteFile, record_room};
use foreload::testing::rng::RandomStream;
use foreload::testing::slot::SlotPool;
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Files, and records of them.
pub struct Recorded {
    files: Arc<dyn Files>,
    pub records: Vec<SampleRecord>,
}

/// The address of the first record.
const RECORDS: u64 = 1 << 62;

impl Recorded {
    pub fn new(files: Arc<dyn Files>, records: Vec<SampleRecord>) -> Arc<Self> {
        Arc::new(Self { files, records })
    }

    pub fn extent(&self, record: usize) -> Extent {
        let length = self.records[record].length;
        Extent { file: FileId(0), offset: RECORDS + record as u64, length }
    }
}

impl Files for Recorded {
    fn path(&self, file: FileId) -> PathBuf {
        self.files.path(file)
    }
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        self.files.stamp(file)
    }
    fn accept(&self, file: FileId, difference: String) -> Result<()> {
        self.files.accept(file, difference)
    }
    fn remote(&self, file: FileId) -> Option<RemoteFile> {
        self.files.remote(file)
    }
    fn block(&self, extent: Extent) -> Option<FileBlock> {
        self.files.block(extent)
    }
    fn unpacked(&self) -> Option<&BlockCache> {
        self.files.unpacked()
    }
    fn record(&self, extent: Extent) -> Option<SampleRecord> {
        self.records.get(usize::try_from(extent.offset.checked_sub(RECORDS)?).ok()?).cloned()
    }
}

/// A read of some ranges of a record, or of all of it.
pub type Asked = (usize, Option<Vec<Range<u32>>>);

/// Requests for each record: of the whole, and of random ranges.
pub fn asked(recorded: &Recorded, random: &mut RandomStream) -> Vec<Asked> {
    let mut asked = Vec::new();
    for (number, SampleRecord { length, .. }) in recorded.records.iter().enumerate() {
        asked.push((number, None));
        let range = |_| {
            let start = random.below(u64::from(*length) + 1) as u32;
            start..start + random.below(u64::from(length - start).min(20_000) + 1) as u32
        };
        asked.push((number, Some((0..5).map(range).collect())));
    }
    asked
}

/// Panics if a byte of the wanted ranges is not what `expected` says. The bytes of a piece are in one place.
fn check(filled: &Filled, record: &SampleRecord, ranges: &[Range<u32>], expected: &[u8], shown: &str) {
    for Piece { extent, at } in &record.pieces {
        for range in ranges {
            let range = range.start.max(*at)..range.end.min(at + extent.length);
            if !range.is_empty() {
                let bytes = filled.piece(range.clone()).unwrap_or_else(|| panic!("{shown}: no {range:?}"));
                assert!(*bytes == expected[range.start as usize..range.end as usize], "{shown}: {range:?}");
            }
        }
    }
}

/// Reads all of `asked`, as many at a time as the reader and the pool allow, and checks the bytes. Returns the errors.
pub fn read_records(
    reader: &mut dyn Reader,
    slots: &SlotPool,
    recorded: &Recorded,
    gap: u64,
    asked: &[Asked],
    expected: &dyn Fn(usize) -> Vec<u8>,
    shown: &str,
) -> Vec<foreload::Error> {
    let (mut next, mut answered, mut out, mut errors) = (0, 0, Vec::new(), Vec::new());
    let mut places = HashMap::new();
    while answered < asked.len() {
        while next < asked.len() && reader.room() > 0 {
            let (number, ranges) = &asked[next];
            let ranges = ranges.clone().map(|ranges| Arc::new(RecordRanges::of(ranges)));
            let room = record_room(recorded, &recorded.records[*number], ranges.as_deref(), gap);
            let Some(mut slot) = slots.try_take(room) else { break };
            slot.bytes_mut().fill(0xA5);
            places.insert(next as u64, (slot.as_mut_ptr() as usize, slot.capacity()));
            let request = ReadRequest::new(next as u64, recorded.extent(*number), slot);
            reader.submit(ReadRequest { ranges, ..request });
            next += 1;
        }
        assert_eq!(reader.in_flight(), next - answered, "{shown}");
        reader.wait(&mut out).unwrap();
        for Completion { token, result, slot, .. } in out.drain(..) {
            let place = places.remove(&token).unwrap_or_else(|| panic!("{shown}: {token} answered twice"));
            answered += 1;
            let (number, ranges) = &asked[token as usize];
            let shown = format!("{shown}, {:?} of record {number}", ranges);
            match result {
                Ok(filled) => {
                    let record = &recorded.records[*number];
                    let expected = expected(*number);
                    let whole = std::iter::once(0..record.length).collect();
                    check(&filled, record, ranges.as_ref().unwrap_or(&whole), &expected, &shown);
                    assert_eq!(filled.room(), place.1, "{shown}");
                    if record.pieces.len() == 1 && ranges.is_none() {
                        assert!(filled[..] == expected, "{shown}");
                    }
                }
                Err(error) => {
                    let mut slot = slot.unwrap_or_else(|| panic!("{shown}: {error}: the slot is lost"));
                    assert_eq!((slot.as_mut_ptr() as usize, slot.capacity()), place, "{shown}");
                    errors.push(error);
                }
            }
        }
    }
    assert_eq!(reader.in_flight(), 0, "{shown}");
    errors
}

/// Records of random extents: near each other, far away, in shards and in files of their own.
pub fn records(world: &World, random: &mut RandomStream, count: usize) -> Vec<SampleRecord> {
    let loose: Vec<_> = world.loose().into_iter().filter(|extent| extent.length < 200_000).collect();
    let (first, size) = (world.shards()[0], 6_000_000);
    let mut record = || {
        let mut at = random.below(size - 500_000);
        let pieces = random.below(12);
        SampleRecord::of((0..pieces).map(|_| match random.below(6) {
            0 => loose[random.below(loose.len() as u64) as usize],
            _ => {
                at = match random.below(5) {
                    0 => random.below(size - 500_000),
                    1 => at,
                    _ => at + random.below(20_000),
                };
                let length = 1 + random.below(15_000);
                at += length;
                Extent { file: FileId(first), offset: at - length, length: length as u32 }
            }
        }))
    };
    (0..count).map(|_| record().unwrap()).collect()
}

/// The bytes of a record.
pub fn expected(world: &World, record: &SampleRecord) -> Vec<u8> {
    record.pieces.iter().flat_map(|piece| world.expected(piece.extent)).copied().collect()
}
