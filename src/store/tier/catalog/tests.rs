//! Tests the locations of copies, which of several copies is used, and what is held, in all orders of events.

use super::*;
use base::rng::{RandomKey, Use};
use std::collections::HashMap;

const STAMP: Stamp = Stamp { size: 10, mtime: 0, ctime: 0, inode: 0 };

fn row(sample: u64, offset: u32) -> SegmentRow {
    let (form, last_target) = (StorageFormat::AsIs, StorageFormat::AsIs);
    let (version, header_summary) = (FileVersion(9), [0; 32]);
    SegmentRow { sample, version, offset, length: 1, crc: offset ^ 77, form, last_target, header_summary }
}

#[test]
fn samples_are_where_the_last_living_segment_has_them() {
    let seed = 4;
    let mut random = RandomKey::new(b"catalog", seed, 0, Use::Order).stream(0);
    let mut catalog = Catalog::new(300);
    let mut expected: HashMap<u64, (u32, u32)> = HashMap::new();
    let mut indices = Vec::new();
    for number in 0..400 {
        assert!(catalog.announce(number), "a new number");
        let segment_index = catalog.publish(number, 0, &STAMP);
        assert!(!catalog.announce(number));
        let rows: Vec<SegmentRow> = (0..random.below(20)).map(|i| row(random.below(300), i as u32)).collect();
        catalog.place(segment_index, &rows, false);
        expected.extend(rows.iter().map(|row| (row.sample, (segment_index, row.offset))));
        indices.push(segment_index);
        if random.below(3) == 0 {
            let dying = indices.swap_remove(random.below(indices.len() as u64) as usize);
            assert!(catalog.forget(dying) && !catalog.forget(dying));
            expected.retain(|_, (segment_index, _)| *segment_index != dying);
        }
        for sample in 0..300 {
            let place = catalog.locate(sample).map(|(place, _)| (place.segment, place.offset));
            assert_eq!(place, expected.get(&sample).copied(), "seed {seed}, step {number}, sample {sample}");
        }
        assert_eq!(catalog.held(), (expected.len() as u64, 10 * indices.len() as u64), "seed {seed}");
    }
}

#[test]
fn a_sample_moves_to_another_group() {
    let mut catalog = Catalog::new(10);
    for (number, group) in [(1, 4), (2, 9)] {
        assert!(catalog.mark_pending(7, group), "group {group}");
        assert!(catalog.announce(number), "a new number");
        let segment_index = catalog.publish(number, group, &STAMP);
        catalog.place(segment_index, &[row(7, 0)], false);
    }
    let (place, _) = catalog.locate(7).expect("it is in the second");
    assert_eq!(catalog.segment(place.segment).map(|segment| segment.group), Some(9));
    assert!(catalog.forget(0) && catalog.locate(7) == Some((place, false)), "no reader misses the first");
    assert_eq!(catalog.held(), (1, 10));
}

#[test]
fn what_is_on_its_way_is_known_and_not_located() {
    let mut catalog = Catalog::new(70);
    assert!(catalog.mark_pending(69, 0) && !catalog.mark_pending(69, 0));
    assert!(catalog.keeps(69, 0) && catalog.is_pending(69) && catalog.locate(69).is_none());
    catalog.cancel_pending(69);
    assert!(!catalog.keeps(69, 0) && catalog.mark_pending(69, 0));
    assert!(catalog.announce(5), "a new number");
    let segment_index = catalog.publish(5, 0, &STAMP);
    catalog.place(segment_index, &[row(69, 3)], false);
    assert_eq!(catalog.locate(69).map(|(place, _)| place.offset), Some(3));
    catalog.cancel_pending(69);
    assert!(catalog.keeps(69, 0) && !catalog.keeps(69, 1), "it has come");
    assert_eq!(catalog.held(), (1, 10));
}

#[test]
fn copies_are_checked_once_and_the_latest_counts() {
    let mut catalog = Catalog::new(100);
    for number in [5, 9, 7] {
        assert!(catalog.announce(number), "a new number");
        let segment_index = catalog.publish(number, 0, &STAMP);
        catalog.place(segment_index, &[row(3, number as u32), row(number, 0)], false);
    }
    let place = |catalog: &Catalog| catalog.locate(3).map(|(place, checked)| (place.offset, checked));
    assert_eq!(place(&catalog), Some((9, false)), "the order in which they are loaded says nothing");
    catalog.confirm(3, 0);
    assert_eq!(place(&catalog), Some((9, false)), "another copy was meant");
    for _ in 0..2 {
        catalog.mark_unverified();
        assert_eq!(place(&catalog), Some((9, false)));
        catalog.confirm(3, 1);
        assert_eq!(place(&catalog), Some((9, true)));
    }
    assert_eq!(catalog.drop_stale(3, 1), (true, false));
    assert_eq!((place(&catalog), catalog.drop_stale(3, 1)), (None, (false, false)));
    assert_eq!(catalog.drop_stale(9, 1), (true, true), "nothing of the segment is left");
    assert!(catalog.announce(20), "a new number");
    let segment_index = catalog.publish(20, 0, &STAMP);
    catalog.place(segment_index, &[row(3, 20)], true);
    assert_eq!(place(&catalog), Some((20, true)));
    // A copy is converted to another storage format while it is verified.
    assert!(catalog.announce(21) && catalog.announce(22), "new numbers");
    let looked_at = catalog.publish(21, 0, &STAMP);
    catalog.place(looked_at, &[row(4, 21)], false);
    let converted = catalog.publish(22, 0, &STAMP);
    catalog.replace(looked_at, converted, &[row(4, 22)]);
    catalog.confirm(4, segment_index);
    assert_eq!(catalog.locate(4).map(|(_, checked)| checked), Some(false), "another copy was meant");
    catalog.confirm(4, looked_at);
    assert_eq!(catalog.locate(4).map(|(place, checked)| (place.offset, checked)), Some((22, true)));
}
