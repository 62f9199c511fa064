//! Appended samples can be read at once and later, by the store and by readers; who may use a directory; full stores.

use super::world::{assert_is, bytes_in_pages, files, id, leftovers, numbers_in, open, record, small};
use foreload::testing::io::read_blocking;
use foreload::testing::stream::Record;
use foreload::testing::stream::segments::{AppendError, RecordPlace, SegmentOptions, SegmentStore};
use foreload::{Error, Notices};
use std::collections::HashSet;
use std::fs;

const PLENTY: u64 = 64 << 20;

/// Options with and without files that have no name until they are complete.
fn both(directory: &std::path::Path, quota: u64) -> [SegmentOptions; 2] {
    [true, false]
        .map(|nameless| SegmentOptions { nameless, ..small(directory.join(nameless.to_string()), quota) })
}

#[test]
fn samples_are_read_at_once_from_files_and_by_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    for options in both(directory.path(), PLENTY) {
        let what = format!("nameless {}", options.nameless);
        let mut store = open(&options);
        let mut places = Vec::new();
        for number in 0..200 {
            places.push(store.append(&record(number)).unwrap());
            assert_is(&store, &places[number as usize / 2], number / 2, &what);
            assert_is(&store, &places[number as usize], number, &what);
        }
        let published = places.iter().filter(|place| store.extent(place).is_some()).count();
        assert!(published > 100 && published < 200, "{published}");
        store.publish().unwrap();
        assert_eq!(store.used(), bytes_in_pages(&options.directory), "{what}");
        let reader = store.as_files();
        for (place, number) in places.iter().zip(0..) {
            assert_is(&store, place, number, &what);
            let bytes = read_blocking(&*reader, store.extent(place).unwrap()).unwrap();
            assert!(bytes == record(number).bytes(), "{what}: {number}");
        }
        drop(store);
        assert!(leftovers(&options.directory).is_empty());
        let store = open(&options);
        assert_eq!(store.used(), bytes_in_pages(&options.directory), "{what}");
        let found: Vec<_> = store.places().collect();
        assert_eq!(found.len(), 200);
        for ((stored, place), number) in found.iter().zip(&places).zip(0..) {
            assert_eq!((stored.id, stored.label, stored.place), (id(number), record(number).label, *place));
            assert_is(&store, place, number, &what);
        }
    }
}

#[test]
fn places_that_no_sample_has_are_refused_by_the_segments_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&small(directory.path(), PLENTY));
    let place = store.append(&record(2)).unwrap();
    for published in [false, true] {
        let wrong = [
            RecordPlace { segment: place.segment + 1, ..place },
            RecordPlace { offset: 1, ..place },
            RecordPlace { length: place.length - 1, ..place },
            RecordPlace { length: u32::MAX, ..place },
            RecordPlace { crc: !place.crc, ..place },
        ];
        for wrong in wrong {
            let error = store.read(&wrong).unwrap_err().to_string();
            assert!(error.contains(".seg no longer has a sample of "), "{published}: {error}");
        }
        store.publish().unwrap();
    }
}

#[test]
fn a_directory_is_for_one_process_and_for_stores_alone() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |options: &SegmentOptions| match SegmentStore::open(options, &Notices::default()) {
        Ok(_) => panic!("{} is taken", options.directory.display()),
        Err(error) => error.to_string(),
    };
    let own = small(directory.path().join("own"), PLENTY);
    let store = open(&own);
    assert!(refused(&own).contains("is in use by another process: choose a directory for each process"));
    drop(store);
    drop(open(&own));
    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("00000001.seg"), b"somebody's").unwrap();
    assert!(refused(&small(&foreign, PLENTY)).contains("another program: choose another directory"));
    assert_eq!(fs::read(foreign.join("00000001.seg")).unwrap(), b"somebody's");
    for (name, content) in [("cache", b"FLCACHE\n________________".to_vec()), ("text", b"hello".to_vec())] {
        let path = directory.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), content).unwrap();
        assert!(refused(&small(&path, PLENTY)).contains("is not a file of Foreload"));
    }
    let mut version = fs::read(own.directory.join("lock")).unwrap();
    version[8] = 9;
    fs::write(own.directory.join("lock"), version).unwrap();
    assert!(refused(&own).contains("has format 9, but this program uses 1: choose another directory"));
    assert!(refused(&small(directory.path().join("x"), 1000)).starts_with("config: capacity: is 1000 bytes"));
}

#[test]
fn what_is_full_says_so_and_takes_again_what_is_freed() {
    let directory = tempfile::tempdir().unwrap();
    for options in both(directory.path(), 1 << 20) {
        let mut store = open(&options);
        let mut places = Vec::new();
        let full = loop {
            match store.append(&record(places.len() as u64)) {
                Ok(place) => places.push(place),
                Err(AppendError::Full(full)) => break full,
                Err(AppendError::Failed(error)) => panic!("{error}"),
            }
        };
        assert_eq!((full.quota, full.path.as_path()), (1 << 20, options.directory.as_path()));
        let message = Error::from(full).to_string();
        assert!(message.contains(" of 1048576 are free: raise its size, or keep less"), "{message}");
        // All but a twentieth is used. The reserve is enough to withdraw everything.
        assert!(store.live_bytes() > 800_000, "{}", store.live_bytes());
        assert!(matches!(store.append(&huge()), Err(AppendError::Full(_))));
        for (place, number) in places.iter().zip(0..) {
            assert_is(&store, place, number, "full");
        }
        let first = places[0].segment;
        for place in places.iter().filter(|place| place.segment == first) {
            store.free(place).unwrap();
        }
        assert!(!options.directory.join(format!("{first:08}.seg")).exists());
        store.append(&record(1)).unwrap();
        let all: HashSet<u64> = (0..places.len() as u64).map(id).collect();
        store.withdraw(&all, &mut Vec::new()).unwrap();
        assert_eq!((store.used(), store.places().count()), (4096, 0), "the lock file is left");
        assert_eq!(files(&options.directory).len(), 1);
    }
}

/// A sample that is too large for a small store.
fn huge() -> Record {
    Record::new("camera", "huge", &[("bin", &vec![1; 1 << 20])]).unwrap()
}

#[test]
fn no_segment_ever_has_the_number_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = None;
    for number in 0..4 {
        let mut store = open(&small(directory.path(), PLENTY));
        let place = store.append(&record(number)).unwrap();
        assert!(Some(place.segment) > last);
        last = Some(place.segment);
        store.publish().unwrap();
        store.release(place.segment).unwrap();
    }
}

#[test]
fn a_sample_larger_than_a_segment_has_one_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&small(directory.path(), 8 << 20));
    let places =
        [store.append(&record(1)), store.append(&huge()), store.append(&record(2))].map(Result::unwrap);
    assert!(places[0].segment < places[1].segment && places[1].segment < places[2].segment);
    assert!(store.read(&places[1]).unwrap() == huge().bytes());
    let mut moved = Vec::new();
    assert_eq!(store.withdraw(&HashSet::from([huge().id]), &mut moved).unwrap(), 1);
    assert_eq!(moved, [], "nothing else was in its segment");
    assert_is(&store, &places[2], 2, "after the huge one");
}

#[test]
fn samples_that_pass_through_leave_nothing_and_make_few_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&small(directory.path(), 1 << 20));
    let mut waiting = std::collections::VecDeque::new();
    for number in 0..3000 {
        waiting.push_back((store.append(&record(number)).unwrap(), number));
        if waiting.len() > number as usize % 40 {
            let (place, number) = waiting.pop_front().unwrap();
            assert_is(&store, &place, number, "first in, first out");
            store.free(&place).unwrap();
        }
    }
    while let Some((place, number)) = waiting.pop_front() {
        assert_is(&store, &place, number, "first in, first out");
        store.free(&place).unwrap();
    }
    assert_eq!(store.places().count(), 0);
    let last = store.append(&record(0)).unwrap().segment;
    let bytes: usize = (0..3000).map(|number| record(number).bytes().len()).sum();
    let files = bytes / (24 << 10);
    assert!((last as usize) < files, "{last} segments of {bytes} bytes");
}

#[test]
fn snapshots_are_whole_counted_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    for options in both(directory.path(), 1 << 20) {
        let options = SegmentOptions { snapshot_bytes: 300_000, ..options };
        let mut store = open(&options);
        for number in 0.. {
            if store.append(&record(number)).is_err() {
                break;
            }
        }
        for number in [7, 3, 7] {
            store.write_snapshot(number, &vec![number as u8; 90_000]).unwrap();
        }
        assert_eq!(store.snapshots(), [3, 7]);
        let error = store.write_snapshot(9, &vec![0; 400_000]).unwrap_err().to_string();
        assert!(error.contains("is full") && store.snapshots() == [3, 7], "{error}");
        store.publish().unwrap();
        assert_eq!(store.used(), bytes_in_pages(&options.directory));
        drop(store);
        let mut store = open(&options);
        assert_eq!((store.snapshots(), store.used()), (vec![3, 7], bytes_in_pages(&options.directory)));
        assert!(store.read_snapshot(7).unwrap() == [7; 90_000]);
        store.remove_snapshot(7).unwrap();
        store.remove_snapshot(8).unwrap();
        assert_eq!(store.snapshots(), [3]);
        let error = store.read_snapshot(7).unwrap_err().to_string();
        assert!(error.contains("00000007.snap"), "{error}");
        assert_eq!(store.used(), bytes_in_pages(&options.directory));
    }
}

#[test]
fn readers_are_never_led_to_what_took_a_segments_place() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&small(directory.path(), PLENTY));
    let places: Vec<_> = (0..4).map(|number| store.append(&record(number)).unwrap()).collect();
    store.publish().unwrap();
    let (reader, before) = (store.as_files(), store.extent(&places[3]).unwrap());
    let gone = reader.gone();
    let mut moved = Vec::new();
    store.withdraw(&HashSet::from([id(1)]), &mut moved).unwrap();
    assert!(numbers_in(directory.path()).iter().eq(&[0, 2, 3]));
    let to = moved.iter().find(|moved| moved.id == id(3)).unwrap().to.unwrap();
    assert_eq!((to.segment, to.length, to.crc), (places[3].segment, places[3].length, places[3].crc));
    assert!(store.read(&places[3]).is_err() && reader.is_gone(before.file) && reader.gone() > gone);
    let error = read_blocking(&*reader, before).unwrap_err().to_string();
    assert!(error.contains("a segment that was removed"), "{error}");
    assert!(read_blocking(&*reader, store.extent(&to).unwrap()).unwrap() == record(3).bytes());
}
