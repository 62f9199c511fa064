//! Directories and sizes that cannot be a cache are refused with a message that says what to do.

use super::world::{World, make_read_only, on_tmpfs, random, shuffled, small, told};
use crate::common::child;
use foreload::testing::tier::store::{CopyFault, Offer, Store, StoreOptions};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

fn refused(world: &World, options: &StoreOptions) -> String {
    match Store::open(options, &world.index) {
        Ok(_) => panic!("opened {}", options.directory.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_quota_below_the_smallest_that_works() {
    let world = World::new(1, 50, 9000);
    // The largest sample, a 28-byte table entry and a 64-byte trailer take three pages.
    let expected = "config: cache_size: is 12287 bytes, must be at least 12288, to hold a segment with the largest \
        sample (9000 bytes)";
    assert_eq!(refused(&world, &world.options(12_287)), expected);
    assert!(!world.cache().exists(), "nothing was made");
    let store = world.open(12_288);
    world.store_all(&store, shuffled(50, &mut random(1)));
    assert!(world.check(&store, "smallest quota") > 0 && store.stats().used_bytes <= 12_288);
}

#[test]
fn a_directory_inside_the_dataset() {
    let world = World::new(2, 2, 100);
    for place in ["data", "data/cache", "data/a/b", "index/../data/cache"] {
        let error = refused(&world, &small(world.base.join(place), 1 << 20));
        assert!(error.starts_with("config: cache_dir: ") && error.contains("inside the dataset"), "{error}");
    }
    let link = world.base.join("link");
    std::os::unix::fs::symlink(world.base.join("data"), &link).unwrap();
    assert!(refused(&world, &small(link.join("cache"), 1 << 20)).contains("inside the dataset"));
    assert_eq!(fs::read_dir(world.base.join("data")).unwrap().count(), 1, "the dataset is as it was");
}

#[test]
fn somebody_elses_directory_or_another_format() {
    let world = World::new(3, 2, 100);
    fs::create_dir(world.cache()).unwrap();
    let lock = world.cache().join("lock");
    fs::write(&lock, "42\n").unwrap();
    let error = refused(&world, &world.options(1 << 20));
    assert!(error.starts_with("cache: ") && error.contains("is not a lock file of Foreload"), "{error}");
    assert_eq!(fs::read(&lock).unwrap(), b"42\n");
    fs::remove_file(&lock).unwrap();
    drop(world.open(1 << 20));
    File::options().write(true).open(&lock).unwrap().write_all_at(&[9], 8).unwrap();
    let error = refused(&world, &world.options(1 << 20));
    assert!(error.contains("has cache format 9, but this version of Foreload uses 4"), "{error}");
}

#[test]
fn a_tag_keeps_backups_away_but_not_from_what_was_there() {
    let world = World::new(4, 2, 100);
    drop(world.open(1 << 20));
    let tag = fs::read_to_string(world.cache().join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
    let full = world.base.join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "").unwrap();
    drop(world.open_with(&small(&full, 1 << 20)));
    assert!(!full.join("CACHEDIR.TAG").exists());
}

#[test]
fn a_file_in_the_place_of_the_directory() {
    let world = World::new(5, 2, 100);
    fs::write(world.cache(), "").unwrap();
    let error = refused(&world, &world.options(1 << 20));
    assert!(error.starts_with("create cache directory "), "{error}");
}

#[test]
fn a_directory_that_is_not_writable() {
    // The superuser may write anywhere, so a child process drops that right.
    let world = World::new(6, 2, 100);
    fs::create_dir(world.cache()).unwrap();
    for (path, mode) in [(world.cache(), 0o755), (world.base.clone(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let base = world.base.to_str().unwrap().to_owned();
    let output = child(without_rights).env("STORE_BASE", base).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("open ") && shown.contains("/cache/lock: Permission denied"), "{shown}");
    assert_eq!(fs::read_dir(world.cache()).unwrap().count(), 0);
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn without_rights() {
    let world = World::at(Path::new(&told("STORE_BASE")));
    // SAFETY: changes the user of this process, which ends soon; 65534 is the unprivileged user. Without the right to
    // change, the call has no effect.
    unsafe { libc::setuid(65534) };
    eprintln!("{}", refused(&world, &world.options(1 << 20)));
}

#[test]
fn what_a_read_only_file_system_has_is_read() {
    on_tmpfs(8 << 20, |path| {
        let world = World::new(7, 20, 100);
        let options = small(path.join("cache"), 1 << 20);
        let store = world.open_with(&options);
        world.offer_all(&store, 0..12);
        drop(store);
        make_read_only(path);
        let store = world.open_with(&options);
        let said = world.index.notices().take();
        assert!(said[0].contains("is read-only") && said[0].contains("Read-only file system"), "{said:?}");
        assert_eq!(world.check(&store, "read only"), 12);
        assert_eq!(store.offer(0, 15, world.version(), world.bytes(15)), Offer::Off);
        store.flush();
        store.damaged(3, store.locate(3).expect("it is there"), CopyFault::Checksum);
        store.flush();
        assert_eq!(store.locate(3), None, "whatever is wrong is not used");
        assert_eq!(store.stats().write_errors, 0);
        // Another dataset has no segments in this directory.
        let other = World::new(8, 20, 100);
        assert!(refused(&other, &options).contains("Read-only file system"));
    });
}

#[test]
fn what_is_there_is_read_while_another_holds_the_lock() {
    let world = World::new(9, 20, 100);
    let store = world.open(1 << 20);
    world.offer_all(&store, 0..20);
    drop(store);
    let lock = File::options().write(true).open(world.cache().join("lock")).unwrap();
    // SAFETY: a flock consists of integers, for which zeros are valid; it lives as long as the call.
    let held = unsafe {
        let mut range: libc::flock = std::mem::zeroed();
        (range.l_type, range.l_len) = (libc::F_WRLCK as _, 1);
        libc::fcntl(lock.as_raw_fd(), libc::F_OFD_SETLK, &raw mut range)
    };
    assert_eq!(held, 0);
    let store = world.open(1 << 20);
    let said = world.index.notices().take();
    assert!(said[0].contains("has been locked by another process"), "{said:?}");
    assert_eq!(world.check(&store, "locked"), 20);
    drop(lock);
    assert!(world.open(1 << 20).is_open(), "the lock is free again");
}
