//! The quota holds at every instant, with files that have no name and files that are gone but open.

use super::model::Model;
use super::world::{open, record, small};
use crate::common::Ending;
use crate::store::world::{on_tmpfs, taken};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What may be used; the file system has more.
const QUOTA: u64 = 2 << 20;

fn watched(path: &Path, nameless: bool, steps: u64) {
    let (directory, ended, looks, over_by) =
        (path.join(nameless.to_string()), AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // What other directories of the file system take.
    let before = taken(path);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !ended.load(Relaxed) {
                let bytes = taken(path) - before;
                most = most.max(bytes);
                over_by.fetch_max(bytes.saturating_sub(QUOTA), Relaxed);
                looks.fetch_add(1, Relaxed);
                // Others need the processor, too.
                std::thread::sleep(Duration::from_micros(20));
            }
            most
        });
        let ending = Ending(&ended);
        let mut model = Model::new(17, &directory, QUOTA, nameless);
        println!("seed 17, nameless {nameless}");
        for _ in 0..steps {
            model.step();
            assert_eq!(over_by.load(Relaxed), 0, "bytes beyond the quota, nameless {nameless}");
        }
        drop(ending);
        let most = watcher.join().unwrap();
        println!("{most} of {QUOTA} bytes at most, looked at {} times", looks.load(Relaxed));
        assert!(most > QUOTA * 9 / 10 && looks.load(Relaxed) > 1000);
        model.assert_many_things_happened();
    });
}

#[test]
fn what_was_read_last_does_not_keep_its_bytes() {
    on_tmpfs(16 << 20, |path| {
        let before = taken(path);
        let mut store = open(&small(path.join("own"), QUOTA));
        let places: Vec<_> = (0..50).map(|number| store.append(&record(number)).unwrap()).collect();
        store.publish().unwrap();
        assert!(taken(path) - before > 300_000);
        for place in &places {
            store.read(place).unwrap();
            store.free(place).unwrap();
        }
        assert_eq!((taken(path) - before, store.used()), (4096, 4096), "the lock file is left");
    });
}

#[test]
fn the_quota_holds_at_every_instant() {
    on_tmpfs(16 << 20, |path| {
        watched(path, true, 6000);
        watched(path, false, 6000);
    });
}
