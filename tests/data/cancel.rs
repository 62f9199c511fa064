//! Indexing may be interrupted at any moment.

use crate::common::scene::Scene;
use crate::common::tar_of;
use foreload::Error;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn assert_interrupted(result: Result<DatasetIndex, Error>, root: &Path) {
    match result.err().expect("it was interrupted") {
        Error::Dataset { path, message } => {
            assert!(path == root && message.starts_with("indexing was interrupted"), "{path:?}: {message}");
        }
        other => panic!("{other}"),
    }
}

/// The files in the index directory except the lock file, which is never removed.
fn left_behind(options: &IndexOptions) -> Vec<PathBuf> {
    let entries = fs::read_dir(options.directory.as_ref().unwrap()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_none_or(|extension| extension != "lock")).collect()
}

/// Interrupts building later and later, until a build ends before its interruption.
fn interrupt_everywhere(scene: &Scene, samples: u64) {
    let (mut delay, mut interrupted) = (Duration::ZERO, 0);
    loop {
        let cancel = Arc::new(AtomicBool::new(delay.is_zero()));
        let result = std::thread::scope(|scope| {
            let cancel = &cancel;
            // The thread ends early when `_done` is dropped.
            let (_done, is_done) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                let _ = is_done.recv_timeout(delay);
                cancel.store(true, Ordering::SeqCst);
            });
            DatasetIndex::open_all(&[&scene.root], &scene.options, cancel)
        });
        if let Ok(index) = result {
            assert_eq!(index.len(), samples);
            break;
        }
        assert_interrupted(result, &scene.root);
        assert_eq!(left_behind(&scene.options), [] as [PathBuf; 0], "after {delay:?}");
        interrupted += 1;
        delay = delay * 3 / 2 + Duration::from_micros(300);
    }
    assert!(interrupted > 0);
    // An index that exists needs no building.
    let cancel = Arc::new(AtomicBool::new(true));
    assert!(DatasetIndex::open_all(&[&scene.root], &scene.options, &cancel).is_ok());
}

#[test]
fn folders_can_be_interrupted_anywhere() {
    let scene = Scene::new();
    for class in ["large", "small"] {
        for image in 0..if class == "large" { 5000 } else { 50 } {
            scene.write(format!("{class}/{image}.jpg"), b"x");
        }
    }
    interrupt_everywhere(&scene, 5050);
}

#[test]
fn shards_can_be_interrupted_anywhere() {
    let scene = Scene::new();
    for shard in 0..4 {
        let images = (0..1000).map(|image| (format!("{image:04}.jpg"), [0; 600]));
        scene.write(format!("{shard}.tar"), &tar_of(images));
    }
    interrupt_everywhere(&scene, 4000);
}

#[test]
fn waiting_for_another_builder_can_be_interrupted() {
    let scene = Scene::new();
    scene.write("class/1.jpg", b"x");
    let cancel = Arc::new(AtomicBool::new(true));
    assert_interrupted(DatasetIndex::open_all(&[&scene.root], &scene.options, &cancel), &scene.root);
    let entries = fs::read_dir(scene.options.directory.as_ref().unwrap()).unwrap();
    let lock = fs::File::open(entries.last().unwrap().unwrap().path()).unwrap();
    // The lock was released, but a process that another test is starting shares our descriptors for a moment.
    lock.lock().expect("the lock");
    assert_interrupted(DatasetIndex::open_all(&[&scene.root], &scene.options, &cancel), &scene.root);
    cancel.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| DatasetIndex::open_all(&[&scene.root], &scene.options, &cancel));
        std::thread::sleep(Duration::from_millis(30));
        cancel.store(true, Ordering::SeqCst);
        assert_interrupted(waiting.join().unwrap(), &scene.root);
    });
    lock.unlock().unwrap();
    assert_eq!(DatasetIndex::open(&scene.root, &scene.options).unwrap().len(), 1);
}
