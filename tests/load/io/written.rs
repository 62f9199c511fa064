//! Files that somebody writes to while they are read.

use super::variants;
use super::world::{World, pool, read_all};
use foreload::Error;
use foreload::testing::dataset::FileId;
use foreload::testing::io::read_blocking;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest that a write may take: a reader sees when it began, and not when it ends. On a busy machine a writer may
/// be interrupted for longer. Then no reader can see that the file is half written.
const LONGEST_WRITE: Duration = Duration::from_millis(20);

/// Overwrites a file with one number after another, three at a time, until `end` is set. Counts in `slow` the writes
/// that took longer than [`LONGEST_WRITE`].
fn write_on(path: &Path, length: usize, end: &AtomicBool, slow: &AtomicUsize) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    for number in (0..=u8::MAX).cycle() {
        let bytes = vec![number; length];
        let began = Instant::now();
        file.write_all_at(&bytes, 0).unwrap();
        if began.elapsed() > LONGEST_WRITE {
            slow.fetch_add(1, Ordering::Relaxed);
        }
        if end.load(Ordering::Relaxed) {
            break;
        }
        if number % 3 == 0 {
            // Sometimes there is enough time to read it.
            std::thread::sleep(Duration::from_millis(60));
        }
    }
}

/// Ends the writing, also when an assertion failed.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_written_to_while_it_is_read_arrives_whole_or_is_refused() {
    let world = Arc::new(World::new(70));
    let largest = world.loose().into_iter().max_by_key(|extent| extent.length).unwrap();
    let path = world.path_of(largest.file);
    let (end, slow) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut torn = 0;
    std::thread::scope(|scope| {
        let _ending = Ending(&end);
        scope.spawn(|| write_on(&path, largest.length as usize, &end, &slow));
        for variant in variants() {
            let slots = pool();
            let mut reader = (variant.make)(&world, &slots, 2);
            let mut answers = Vec::new();
            (0..10).for_each(|_| answers.extend(read_all(&mut *reader, &slots, &[largest, largest])));
            torn += check(&variant.name, answers);
        }
        torn += check("plain calls", (0..20).map(|_| read_blocking(&*world, largest)).collect());
    });
    // The scope has waited for the writer.
    let slow = slow.into_inner();
    assert!(torn == 0 || slow > 0, "{torn} samples have two contents, and no write was interrupted");
}

/// Returns how many answers have two contents in one sample. All others are whole, or say that they could not be read.
fn check(name: &str, answers: Vec<Result<Vec<u8>, Error>>) -> usize {
    let (mut whole, mut torn) = (0, 0);
    for answer in answers {
        match answer {
            Ok(bytes) if bytes.iter().all(|byte| *byte == bytes[0]) => whole += 1,
            Ok(_) => {
                println!("{name}: two contents in one sample");
                torn += 1;
            }
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("is written to again and again while it is read"), "{name}: {said}");
            }
        }
    }
    assert!(whole > 0, "{name}: never read");
    torn
}

#[test]
fn what_was_written_a_moment_ago_is_read_once_more_at_most() {
    let world = Arc::new(World::new(71));
    let file = FileId(12);
    let extent = world.loose()[12];
    for variant in variants().iter().filter(|variant| !variant.name.contains("Some")) {
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 2);
        std::fs::write(world.path_of(file), world.expected(extent)).unwrap();
        let answers = read_all(&mut *reader, &slots, &[extent]);
        assert!(answers.into_iter().all(|answer| answer.unwrap() == world.expected(extent)));
        assert!(reader.stats().reads <= 2, "{}: {:?}", variant.name, reader.stats());
    }
}
