//! Samples whose bytes are in many places of files on a server.

use super::Served;
use crate::common::{Dataset, wait_for};
use crate::io::recorded::{Asked, Recorded, asked, read_records};
use foreload::testing::dataset::arrays::SampleRecord;
use foreload::testing::dataset::{Extent, FileId};
use foreload::testing::io::{Direct, Files, GatherReader, IoChoice, open, read_blocking};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::slot::SlotPool;

/// Records of up to ten pieces in two shards, some of them close to each other.
fn records(shards: &[Vec<u8>], random: &mut RandomStream) -> Vec<SampleRecord> {
    let mut record = |pieces| {
        let mut end = 0;
        SampleRecord::of((0..pieces).map(|_| {
            let file = random.below(shards.len() as u64) as usize;
            let length = 1 + random.below(5000) as usize;
            let room = shards[file].len() - length;
            let offset = match random.below(2) {
                0 => (end + random.below(9000) as usize) % room,
                _ => random.below(room as u64) as usize,
            };
            end = offset + length;
            Extent { file: FileId(file as u32), offset: offset as u64, length: length as u32 }
        }))
    };
    (0..20).map(|number| record(number % 11).unwrap()).collect()
}

fn bytes_of(shards: &[Vec<u8>], record: &SampleRecord) -> Vec<u8> {
    let bytes = |extent: Extent| {
        let start = extent.offset as usize;
        &shards[extent.file.0 as usize][start..start + extent.length as usize]
    };
    record.pieces.iter().flat_map(|piece| bytes(piece.extent)).copied().collect()
}

#[test]
fn pieces_are_requested_from_a_server() {
    let seed = 90;
    let mut random = RandomKey::new(b"records on servers", seed, 0, Use::Order).stream(0);
    let served = Served::new(Dataset::shards(40, 20));
    let (local, index) = (served.dataset.index(), served.index());
    let files = [0, 1].map(FileId);
    let shards: Vec<_> = files.map(|file| std::fs::read(local.path(file)).unwrap()).into();
    let names = |of: &dyn Files| files.map(|file| of.path(file).file_name().unwrap().to_owned());
    assert_eq!(names(&*index), names(&*local));
    let gap = 64 << 10;

    let records = records(&shards, &mut random);
    let recorded = Recorded::new(index.clone(), records.clone());
    let expected = |number: usize| bytes_of(&shards, &records[number]);
    let asked: Vec<Asked> = asked(&recorded, &mut random);
    for number in [5, 19] {
        assert!(read_blocking(&*recorded, recorded.extent(number)).unwrap() == expected(number));
    }
    let slots = SlotPool::new(16 << 20).unwrap();
    let mut requests = Vec::new();
    for (faults, gap) in [(vec![], 0), (vec![], gap), (vec!["status:0.1:503", "cut:0.1:1000"], 2000)] {
        let shown = format!("seed {seed}, gap {gap}, faults {faults:?}");
        served.fail(&faults);
        let inner = open(&index, &slots, IoChoice::Auto, Direct::Auto, 8).unwrap();
        let mut reader = GatherReader::new(recorded.clone(), inner, gap);
        let before = served.gets();
        let errors = read_records(&mut reader, &slots, &recorded, gap, &asked, &expected, &shown);
        assert!(errors.is_empty(), "{shown}: {errors:?}");
        requests.push(served.gets() - before);
        drop(reader);
        assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "{shown}");
    }
    assert!(requests[1] < requests[0] && requests[0] > asked.len() as u64, "{requests:?}");
    // A shard without most of its samples is another dataset.
    served.fail(&[]);
    let cut = &shards[1][..shards[1].len() / 2];
    std::fs::write(local.path(FileId(1)), cut).unwrap();
    let inner = open(&index, &slots, IoChoice::Auto, Direct::Auto, 8).unwrap();
    let mut reader = GatherReader::new(recorded.clone(), inner, gap);
    let whole: Vec<Asked> = (10..11).map(|number| (number, None)).collect();
    let errors = read_records(&mut reader, &slots, &recorded, gap, &whole, &expected, "cut");
    assert!(errors.len() == 1 && errors[0].to_string().contains("shard-001.tar"), "{errors:?}");
    drop(reader);
    wait_for("all slots are back", || slots.usage().in_use, |&used| used == 0);
}
