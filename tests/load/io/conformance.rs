//! The rules that every reader must follow.

use super::variants;
use super::world::{World, pool, random, read_all, shared, stamp};
use crate::common::{Ending, wait_for};
use foreload::testing::dataset::{Extent, FileId};
use foreload::testing::io::{Completion, ReadRequest, Reader};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn bytes_are_right() {
    let seed = 1;
    let (world, slots) = shared(seed);
    let mut random = random(seed);
    let mut extents = world.loose();
    extents.extend((0..300).map(|_| world.random_extent(&mut random)));
    for shard in world.shards() {
        let length = world.files[shard as usize].bytes.len() as u32;
        extents.push(Extent { file: FileId(shard), offset: 0, length });
        extents.push(Extent { file: FileId(shard), offset: u64::from(length), length: 0 });
    }
    for variant in variants() {
        let name = &variant.name;
        let mut reader = (variant.make)(&world, &slots, 32);
        let answers = read_all(&mut *reader, &slots, &extents);
        for (extent, answer) in extents.iter().zip(answers) {
            let bytes = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(bytes == world.expected(*extent), "{name}, seed {seed}: {extent:?} has other bytes");
        }
        assert_eq!(slots.usage().in_use, 0, "{name}");
        let stats = reader.stats();
        assert!(stats.reads >= extents.len() as u64, "{name}: {stats:?}");
        assert!(!reader.describe().is_empty());
    }
}

#[test]
fn one_open_and_one_read_for_each_file_and_one_open_for_each_shard() {
    let (world, slots) = shared(2);
    let loose = world.loose();
    let mut random = random(2);
    let ranged: Vec<Extent> = (0..200).map(|_| world.random_extent(&mut random)).collect();
    for variant in variants().iter().filter(|variant| !variant.name.contains("Some")) {
        let mut reader = (variant.make)(&world, &slots, 8);
        read_all(&mut *reader, &slots, &loose);
        let first = reader.stats();
        assert_eq!((first.opens, first.reads), (loose.len() as u64, loose.len() as u64), "{}", variant.name);
        let bytes: usize = loose.iter().map(|extent| extent.length as usize).sum();
        assert_eq!(first.bytes, bytes as u64, "{}", variant.name);
        read_all(&mut *reader, &slots, &ranged);
        let second = reader.stats();
        assert_eq!(second.opens - first.opens, world.shards().len() as u64, "{}", variant.name);
        assert_eq!(second.reads - first.reads, ranged.len() as u64, "{}", variant.name);
    }
}

#[test]
fn files_that_changed_are_named_and_their_neighbours_arrive() {
    for variant in variants() {
        let name = &variant.name;
        let world = World::new(3);
        let loose = world.loose();
        let (deleted, shrunk, grown, emptied, replaced) = (10, 11, 12, 13, 14);
        let path = |file: usize| world.files[file].path.clone();
        std::fs::remove_file(path(deleted)).unwrap();
        let length = world.files[shrunk].bytes.len() as u64;
        let file = std::fs::File::options().write(true).open(path(shrunk)).unwrap();
        file.set_len(length - 1).unwrap();
        let length = world.files[grown].bytes.len() as u64;
        std::fs::File::options().write(true).open(path(grown)).unwrap().set_len(length + 1).unwrap();
        std::fs::File::create(path(emptied)).unwrap();
        std::fs::remove_file(path(replaced)).unwrap();
        std::fs::create_dir(path(replaced)).unwrap();

        let world = Arc::new(world);
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 16);
        let answers = read_all(&mut *reader, &slots, &loose);
        for (file, answer) in answers.into_iter().enumerate() {
            let path = world.files[file].path.display().to_string();
            let expected = match file {
                _ if file == deleted => format!("open {path}: No such file"),
                _ if file == shrunk => format!("{path}: is {} bytes, was", loose[shrunk].length - 1),
                _ if file == grown => format!("{path}: is longer than the {} bytes", loose[grown].length),
                _ if file == emptied => format!("{path}: is 0 bytes, was"),
                _ if file == replaced => {
                    format!("read {} bytes at 0 of {path}: Is a dir", loose[replaced].length)
                }
                _ => {
                    let bytes = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(bytes == world.expected(loose[file]), "{name}: file {file}");
                    continue;
                }
            };
            let said = answer.expect_err(name).to_string();
            assert!(said.contains(&expected), "{name}: {said:?} should say {expected:?}");
        }
        drop(reader);
        assert_eq!(slots.usage().in_use, 0, "{name}");
    }
}

#[test]
fn a_failed_read_gives_its_slot_back() {
    for variant in variants() {
        let name = &variant.name;
        let world = World::new(7);
        let (loose, shards) = (world.loose(), world.shards());
        let (deleted, shrunk) = (loose[10], loose[11]);
        std::fs::remove_file(world.path_of(deleted.file)).unwrap();
        std::fs::write(world.path_of(shrunk.file), b"short").unwrap();
        std::fs::write(world.path_of(FileId(shards[0])), b"another shard").unwrap();
        let lost = Extent { file: FileId(shards[0]), offset: 7, length: 100_000 };
        let world = Arc::new(world);
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 4);
        for failing in [deleted, shrunk, lost] {
            // A reader with a second source for the same bytes does this.
            let wanted = loose[12];
            let mut slot = slots.try_take(failing.length.max(wanted.length) as usize).unwrap();
            let address = slot.as_mut_ptr();
            reader.submit(ReadRequest::new(1, failing, slot));
            let failed = next(&mut *reader);
            assert!(failed.result.is_err(), "{name}");
            let mut slot = failed.slot.unwrap_or_else(|| panic!("{name}: {failing:?} lost its slot"));
            assert_eq!(slot.as_mut_ptr(), address, "{name}");
            reader.submit(ReadRequest::new(2, wanted, slot));
            let arrived = next(&mut *reader);
            assert!(arrived.slot.is_none(), "{name}");
            let filled = arrived.result.unwrap();
            assert!(filled[..] == *world.expected(wanted), "{name}");
            assert_eq!(filled.into_slot().expect("the only one").as_mut_ptr(), address, "{name}");
        }
        assert_eq!(slots.usage().in_use, 0, "{name}");
    }
}

/// The only completion that is due.
fn next(reader: &mut dyn Reader) -> Completion {
    let mut out = Vec::new();
    while out.is_empty() {
        reader.wait(&mut out).unwrap();
    }
    assert_eq!((out.len(), reader.in_flight()), (1, 0));
    out.remove(0)
}

#[test]
fn shards_that_changed_are_named() {
    for variant in variants() {
        let name = &variant.name;
        let mut world = World::new(4);
        let shards = world.shards();
        let at = |file: u32, offset, length| Extent { file: FileId(file), offset, length };
        // One shard has another size, one has another time, and one shrinks and grows again after it was opened.
        let resized = &world.files[shards[0] as usize];
        std::fs::write(&resized.path, &resized.bytes[..5_000_000]).unwrap();
        let indexed = world.files[shards[1] as usize].stamp.as_mut().unwrap();
        indexed.mtime -= 1_500_000_000;
        let world = Arc::new(world);
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 16);
        let extents: Vec<_> =
            shards.iter().flat_map(|&shard| [at(shard, 7, 100), at(shard, 1000, 3000)]).collect();
        let answers = read_all(&mut *reader, &slots, &extents);
        let said: Vec<_> =
            answers.into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect();
        for said in &said[..2] {
            assert!(
                said.as_ref().unwrap_err().contains("is 5000000 bytes, was 6000000 when indexed"),
                "{name}: {said:?}"
            );
        }
        for said in &said[2..4] {
            assert!(said.as_ref().unwrap_err().contains("was modified at"), "{name}: {said:?}");
        }
        assert_eq!(said[5].as_ref().unwrap(), world.expected(extents[5]), "{name}");

        let last = &world.files[shards[2] as usize];
        std::fs::File::options().write(true).open(&last.path).unwrap().set_len(1500).unwrap();
        assert_ne!(stamp(&last.path), last.stamp.unwrap());
        let answer = read_all(&mut *reader, &slots, &extents[5..]).remove(0);
        let said = answer.expect_err(name).to_string();
        assert!(said.contains("is 1500 bytes, was 4096 when indexed"), "{name}: {said}");
        // This shard is overwritten while it is open.
        std::fs::write(&last.path, vec![7; last.bytes.len()]).unwrap();
        let answer = read_all(&mut *reader, &slots, &extents[5..]).remove(0);
        let said = answer.expect_err(name).to_string();
        assert!(said.contains("was modified at"), "{name}: {said}");
    }
}

#[test]
fn the_waker_ends_an_idle_wait() {
    for variant in variants() {
        let name = &variant.name;
        let world = Arc::new(with_fifo(World::new(5)));
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 4);
        let slow = submit_slow(&mut *reader, &world, &slots);
        let waker = reader.waker();
        let mut out = Vec::new();
        for _ in 0..3 {
            let waker = waker.clone();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(10));
                    (waker.0)();
                });
                reader.wait(&mut out).unwrap();
            });
            assert!(out.is_empty(), "{name}");
            assert_eq!(reader.in_flight(), 1, "{name}");
        }
        // A call before the wait counts too.
        (waker.0)();
        reader.wait(&mut out).unwrap();
        assert!(out.is_empty(), "{name}");
        release(&world.path_of(slow), || {
            while out.is_empty() {
                reader.wait(&mut out).unwrap();
            }
        });
        assert!(out[0].result.is_err(), "{name}");
        drop(out);
        drop(reader);
        assert_eq!(slots.usage().in_use, 0, "{name}");
        // Waking a dropped reader is harmless.
        (waker.0)();
    }
}

#[test]
fn dropping_with_reads_in_flight_does_not_wait_for_them_for_ever() {
    for variant in variants() {
        let name = &variant.name;
        let world = Arc::new(with_fifo(World::new(6)));
        let slots = pool();
        let mut reader = (variant.make)(&world, &slots, 32);
        let slow = submit_slow(&mut *reader, &world, &slots);
        for (token, extent) in
            world.loose().into_iter().filter(|extent| extent.file != slow).take(20).enumerate()
        {
            let slot = slots.try_take(extent.length as usize).unwrap();
            reader.submit(ReadRequest::new(token as u64, extent, slot));
        }
        let mut out = Vec::new();
        reader.wait(&mut out).unwrap();
        // The slow read ends only after this call returns: if the drop waited for the read, it would wait forever.
        drop(reader);
        drop(out);
        // Slots of a blocked thread come back when its system call ends; no other slot is missing.
        release(&world.path_of(slow), || {
            wait_for(&format!("{name}: all slots are back"), || slots.usage().in_use, |&used| used == 0);
        });
    }
}

/// Replaces the last sample's file by one that never delivers data.
fn with_fifo(mut world: World) -> World {
    let path = world.dir.path().join("slow");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    world.files.push(super::world::File { path, stamp: None, bytes: vec![0; 1000] });
    world
}

fn submit_slow(reader: &mut dyn Reader, world: &World, slots: &foreload::testing::slot::SlotPool) -> FileId {
    let file = FileId(world.files.len() as u32 - 1);
    let slot = slots.try_take(1000).unwrap();
    reader.submit(ReadRequest::new(1000, Extent { file, offset: 0, length: 1000 }, slot));
    file
}

/// Opens and closes the other end of a FIFO until `done` is true: each time lets one blocked open or read through.
fn release(path: &std::path::Path, done: impl FnOnce()) {
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::SeqCst) {
                drop(std::fs::File::options().read(true).write(true).open(path).unwrap());
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let _ending = Ending(&ended);
        done();
    });
}
