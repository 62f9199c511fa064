//! Files that another process writes while they are read.

use super::variants;
use super::world::{World, pool, read_all};
use crate::common::Ending;
use foreload::Error;
use foreload::testing::dataset::FileId;
use foreload::testing::io::read_blocking;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest time of a write. A reader sees when a write began, but not when it ends. On a busy machine a writer may
/// be interrupted for longer. Then no reader can see that the file is half written.
const LONGEST_WRITE: Duration = Duration::from_millis(20);

/// Overwrites a file with one number after another, three at a time, until `end` is set. Adds the numbers whose writes
/// took longer than [`LONGEST_WRITE`] to `slow`.
fn write_on(path: &Path, length: usize, end: &AtomicBool, slow: &Mutex<Vec<u8>>) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    for number in (0..=u8::MAX).cycle() {
        let bytes = vec![number; length];
        let began = Instant::now();
        file.write_all_at(&bytes, 0).unwrap();
        if began.elapsed() > LONGEST_WRITE {
            slow.lock().unwrap().push(number);
        }
        if end.load(Ordering::Relaxed) {
            break;
        }
        if number % 3 == 0 {
            // Sometimes there is enough time to read the file.
            std::thread::sleep(Duration::from_millis(60));
        }
    }
}

#[test]
fn what_is_written_to_while_it_is_read_arrives_whole_or_is_refused() {
    let world = Arc::new(World::new(70));
    let largest = world.loose().into_iter().max_by_key(|extent| extent.length).unwrap();
    let path = world.path_of(largest.file);
    let (end, slow) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut torn = Vec::new();
    std::thread::scope(|scope| {
        let _ending = Ending(&end);
        scope.spawn(|| write_on(&path, largest.length as usize, &end, &slow));
        for variant in variants() {
            let slots = pool();
            let mut reader = (variant.make)(&world, &slots, 2);
            let mut answers = Vec::new();
            (0..10).for_each(|_| answers.extend(read_all(&mut *reader, &slots, &[largest, largest])));
            torn.extend(check(&variant.name, answers));
        }
        torn.extend(check("plain calls", (0..20).map(|_| read_blocking(&*world, largest)).collect()));
    });
    // The scope has waited for the writer.
    let slow = slow.into_inner().unwrap();
    for number in torn {
        assert!(
            slow.contains(&number),
            "a sample has two contents, and the write of {number} was not interrupted"
        );
    }
}

/// Returns the first byte of each result that mixes two contents: the number that was being written. All other results
/// are whole, or errors.
fn check(name: &str, answers: Vec<Result<Vec<u8>, Error>>) -> Vec<u8> {
    let (mut whole, mut torn) = (0, Vec::new());
    for answer in answers {
        match answer {
            Ok(bytes) if bytes == vec![bytes[0]; bytes.len()] => whole += 1,
            Ok(bytes) => {
                println!("{name}: two contents in one sample");
                torn.push(bytes[0]);
            }
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("was written to during every attempt to read it"), "{name}: {said}");
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
