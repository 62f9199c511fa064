//! The choice of a reader if io_uring is refused or limited. The limits are set in a child process.

use super::world::{World, pool, random, read_all};
use crate::common::{child, passes};
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::io::uring::{UringOptions, UringReader};
use foreload::testing::io::{DataSource, Direct, IoChoice, Reader, open, open_source, probe};
use std::sync::Arc;

const ROLE: &str = "FORELOAD_IO_TEST_ROLE";

/// Runs `test` in its own process with `role`, and checks that it passes.
fn in_child(test: impl Fn(), role: &str) {
    passes(child(test).env(ROLE, role));
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

fn source(world: &Arc<World>, bytes: u64) -> DataSource {
    let root = world.dir.path().to_owned();
    DataSource { files: world.clone(), root, first: world.loose()[12], bytes }
}

fn check(reader: &mut dyn Reader, world: &World, slots: &foreload::testing::slot::SlotPool) {
    let mut random = random(1);
    let mut extents = world.loose();
    extents.extend((0..50).map(|_| world.random_extent(&mut random)));
    for (extent, answer) in extents.iter().zip(read_all(reader, slots, &extents)) {
        assert!(answer.unwrap() == world.expected(*extent));
    }
}

#[test]
fn the_users_choice_is_obeyed_and_described() {
    let (world, slots) = (Arc::new(World::new(30)), pool());
    let open = |io, direct, bytes| open_source(&source(&world, bytes), &slots, io, direct, 16).unwrap();
    let mut reader = open(IoChoice::Pread, Direct::Off, 0);
    assert_eq!(reader.describe(), "pread with 16 threads, buffered (io=pread; direct=off)");
    check(&mut *reader, &world, &slots);
    // A reader with blocking threads has the requested queue depth, up to a limit.
    for (depth, threads) in [(1, 1), (100, 100), (4000, 256)] {
        let mut reader =
            open_source(&source(&world, 0), &slots, IoChoice::Pread, Direct::Off, depth).unwrap();
        assert!(reader.describe().starts_with(&format!("pread with {threads} threads,")));
        assert_eq!(reader.room(), depth);
        check(&mut *reader, &world, &slots);
    }
    let mut reader = open(IoChoice::Auto, Direct::Auto, 1);
    assert!(reader.describe().contains("buffered ("), "{}", reader.describe());
    check(&mut *reader, &world, &slots);
    // This size is more than any memory, so the page cache cannot hold the dataset.
    let mut reader = open(IoChoice::Auto, Direct::Auto, 1 << 60);
    check(&mut *reader, &world, &slots);
    let storage = foreload::testing::io::storage::Storage::of(world.dir.path()).unwrap();
    let direct = storage.kind == foreload::testing::io::storage::StorageKind::Local
        && storage.direct_works == Some(true);
    assert_eq!(reader.describe().contains("O_DIRECT ("), direct, "{}: {storage:?}", reader.describe());
}

#[test]
fn a_first_sample_that_is_broken_does_not_decide_the_reader() {
    let (world, slots) = (Arc::new(World::new(31)), pool());
    let whole = open_source(&source(&world, 1), &slots, IoChoice::Auto, Direct::Off, 8).unwrap().describe();
    let mut broken = source(&world, 1);
    broken.first.length += 1;
    let described = open_source(&broken, &slots, IoChoice::Auto, Direct::Off, 8).unwrap().describe();
    assert_eq!(described, whole);
}

#[test]
fn a_deleted_first_sample_is_an_error_of_its_own() {
    let scene = tempfile::tempdir().unwrap();
    let root = scene.path().join("data");
    let options = IndexOptions { directory: Some(scene.path().join("index")), ..IndexOptions::default() };
    let directory = root.join("class/deep");
    std::fs::create_dir_all(&directory).unwrap();
    let bytes = |sample: u64| vec![sample as u8; 3000 + sample as usize];
    for sample in 0..5 {
        std::fs::write(directory.join(format!("{sample}.jpg")), bytes(sample)).unwrap();
    }
    let index = Arc::new(DatasetIndex::open(&root, &options).unwrap());
    let modified = std::fs::metadata(&directory).unwrap().modified().unwrap();
    std::fs::remove_file(index.path(index.extent(0).file)).unwrap();
    // Simulates a deletion between the listing of the directory and the read.
    std::fs::File::open(&directory).unwrap().set_modified(modified).unwrap();

    let (slots, extents) = (pool(), (0..5).map(|sample| index.extent(sample)).collect::<Vec<_>>());
    for io in [IoChoice::Auto, IoChoice::Pread] {
        let mut reader = open(&index, &slots, io, Direct::Auto, 8).unwrap();
        let mut answers = read_all(&mut *reader, &slots, &extents).into_iter();
        let error = answers.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("0.jpg") && error.contains("No such file"), "{io:?}: {error}");
        for (sample, answer) in (1..).zip(answers) {
            assert!(answer.unwrap() == bytes(sample), "{io:?}, sample {sample}");
        }
    }
    // The search for an existing directory ends at the root, above which there may be another file system.
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(open(&index, &slots, IoChoice::Auto, Direct::Auto, 8).is_ok());
    std::fs::remove_dir_all(&root).unwrap();
    let error = open(&index, &slots, IoChoice::Auto, Direct::Auto, 8).err().expect("no dataset").to_string();
    assert!(error.contains("0.jpg"), "{error}");
}

#[test]
fn a_seccomp_filter_leads_to_threads_and_says_so() {
    let Some(role) = role() else {
        in_child(a_seccomp_filter_leads_to_threads_and_says_so, "EPERM");
        return in_child(a_seccomp_filter_leads_to_threads_and_says_so, "ENOSYS");
    };
    refuse_io_uring(if role == "EPERM" { libc::EPERM } else { libc::ENOSYS });
    let (world, slots) = (Arc::new(World::new(32)), pool());
    let mut reader = open_source(&source(&world, 1), &slots, IoChoice::Auto, Direct::Auto, 8).unwrap();
    let described = reader.describe();
    assert!(
        described.starts_with("pread with 8 threads, buffered (") && described.contains(&role),
        "{described}"
    );
    check(&mut *reader, &world, &slots);
    what_is_slower_is_said(&slots, &role);
    let refused = open_source(&source(&world, 1), &slots, IoChoice::Uring, Direct::Auto, 8);
    let error = refused.err().expect("io_uring is refused").to_string();
    assert!(error.starts_with("config: io: is io_uring, but ") && error.contains(&role), "{error}");
    let report = probe();
    assert_eq!(report.io_uring.mode, None);
    assert!(report.io_uring.problem.as_ref().is_some_and(|problem| problem.contains(&role)), "{report:?}");
    assert_eq!(report.choice(world.dir.path(), 1).unwrap().io, IoChoice::Pread);
}

/// There is one warning if the reader is not the one that was asked for, and none otherwise.
fn what_is_slower_is_said(slots: &foreload::testing::slot::SlotPool, role: &str) {
    let scene = tempfile::tempdir().unwrap();
    let options = IndexOptions { directory: Some(scene.path().join("index")), ..IndexOptions::default() };
    std::fs::create_dir_all(scene.path().join("data/class")).unwrap();
    std::fs::write(scene.path().join("data/class/0.jpg"), [7; 5000]).unwrap();
    let index = Arc::new(DatasetIndex::open(&scene.path().join("data"), &options).unwrap());
    open(&index, slots, IoChoice::Pread, Direct::Off, 8).unwrap();
    assert_eq!(index.notices().next(), None);
    for _ in 0..2 {
        open(&index, slots, IoChoice::Auto, Direct::Off, 8).unwrap();
    }
    let said = index.notices().take();
    let [only] = &said[..] else { panic!("{said:?}") };
    assert!(only.contains(role) && only.contains("io=\"pread\""), "{only}");
}

#[test]
fn a_low_memlock_limit_leaves_buffers_unregistered() {
    if role().is_none() {
        return in_child(a_low_memlock_limit_leaves_buffers_unregistered, "memlock");
    }
    let (world, slots) = (Arc::new(World::new(33)), pool());
    let limit = rustix::process::Rlimit { current: Some(64 << 10), maximum: Some(64 << 10) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).unwrap();
    if rustix::process::getuid().is_root() {
        become_nobody(&world);
    }
    if let Err(error) = std::fs::metadata(world.path_of(world.loose()[0].file)) {
        return println!("skipped: only root may read the build directory: {error}");
    }
    let reader = UringReader::new(world.clone(), &slots, 8, UringOptions::default());
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return println!("skipped: no io_uring here: {error}"),
    };
    assert!(
        reader.describe().contains("buffers not registered: the locked-memory limit"),
        "{}",
        reader.describe()
    );
    check(&mut reader, &world, &slots);
    // Only the owner of a file may use O_NOATIME. After the first refusal, the reader does not ask for it again.
    let opens = reader.stats().opens;
    assert!(opens <= (world.loose().len() + world.shards().len()) as u64 + 16, "{opens} opens");
}

/// Makes io_uring_setup fail with `error` from here on, as Docker's default profile does.
fn refuse_io_uring(error: i32) {
    let statement = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        // The number of the system call is the first word that the filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: both calls only read their arguments; the program outlives the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Gives up root, and with it the right to lock memory. The world stays readable.
fn become_nobody(world: &World) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(world.dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // SAFETY: plain system calls without pointers. `setresuid` of libc changes all threads.
    unsafe {
        assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
        assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
    }
}
