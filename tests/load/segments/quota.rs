//! The quota holds at every instant, including files without a name and files that are deleted but open.

use super::model::Model;
use super::world::{open, record, small};
use crate::common::{Ending, child, passes, wait_until};
use crate::store::world::{on_tmpfs, taken};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The quota; the file system is larger.
const QUOTA: u64 = 2 << 20;

fn watched(path: &Path, nameless: bool, steps: u64) {
    let (directory, ended, looks, over_by) =
        (path.join(nameless.to_string()), AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // The space that other directories of the file system use.
    let before = taken(path);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !ended.load(Relaxed) {
                let bytes = taken(path) - before;
                most = most.max(bytes);
                over_by.fetch_max(bytes.saturating_sub(QUOTA), Relaxed);
                looks.fetch_add(1, Relaxed);
                // Leave the processor to the other threads.
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
        wait_until("only the lock file is left", || taken(path) - before == 4096);
        assert_eq!(store.used(), 4096);
    });
}

/// Processes that other tests start have this process's files open until they execute. This includes deleted files,
/// whose bytes then still count as used.
#[test]
fn the_quota_holds_at_every_instant() {
    passes(&mut child(the_quota_holds_where_nothing_is_started));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn the_quota_holds_where_nothing_is_started() {
    on_tmpfs(16 << 20, |path| {
        watched(path, true, 6000);
        watched(path, false, 6000);
    });
}
