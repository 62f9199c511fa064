//! The real program on a slow file system makes the same batches and reads every byte once.
//!
//! If FUSE cannot be used, the tests say so and pass; with `FORELOAD_REQUIRE_FUSE=1` they fail.

use foreload::testing::config::parse_pfs;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::rng::{RandomKey, Use};
use serde_json::Value;
use slow_fs::{COUNTERS, SlowFs, UringReads};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The variable with the arguments of the program, one a line, in a child of this test.
const ROLE: &str = "SLOW_FS_TEST_ARGUMENTS";

const RATES: &str = "open=500us,read=200us,bandwidth=400MB,opens=8000,concurrency=64";

/// A few images of 16 to 80 pixels in two classes.
fn images(root: &Path) {
    let key = RandomKey::new(b"slow images", 1, 0, Use::Augment);
    for image in 0..120u64 {
        let mut random = key.stream(image);
        let side = 16 + random.below(64) as u16;
        let pixels: Vec<u8> =
            (0..3 * usize::from(side) * usize::from(side)).map(|_| random.below(256) as u8).collect();
        let directory = root.join(format!("class-{}", image % 2));
        std::fs::create_dir_all(&directory).unwrap();
        let encoder = jpeg_encoder::Encoder::new_file(directory.join(format!("{image:03}.jpg")), 90).unwrap();
        encoder.encode(&pixels, side, side, jpeg_encoder::ColorType::Rgb).unwrap();
    }
}

/// Starts `slow-fs` in its own process. If the system refuses FUSE, prints the reason and returns `None`.
fn slow_fs(source: &Path, mountpoint: &Path, more: &[&str]) -> Option<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slow-fs"));
    command.args([source, mountpoint]).arg(RATES).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line == "ready\n" {
        return Some(child);
    }
    let said = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(std::env::var_os("FORELOAD_REQUIRE_FUSE").is_none(), "no FUSE: {said}");
    println!("skipped: no FUSE: {said}");
    None
}

/// Ends `slow-fs` by closing its input; returns its counters.
fn end(mut child: Child) -> Value {
    drop(child.stdin.take());
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    serde_json::from_str(&said).unwrap()
}

#[test]
fn the_program_in_this_process() {
    let Ok(arguments) = std::env::var(ROLE) else { return };
    let arguments = std::iter::once("foreload").chain(arguments.lines());
    std::process::exit(foreload::cli::main(arguments.map(Into::into).collect(), None));
}

/// Runs `foreload` with `arguments` in a process of its own; returns its JSON.
fn foreload(arguments: &[&str]) -> Value {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_program_in_this_process", "--nocapture"]);
    let output = command.env(ROLE, arguments.join("\n")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    let json = said.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(json.unwrap_or_else(|| panic!("{arguments:?}: {said}"))).unwrap()
}

#[test]
fn every_way_to_read_gives_the_same_batches_and_reads_each_byte_once() {
    let scene = tempfile::tempdir().unwrap();
    let (fast, slow, kept) =
        (scene.path().join("fast"), scene.path().join("slow"), scene.path().join("index"));
    std::fs::create_dir(&slow).unwrap();
    images(&fast);
    let Some(mounted) = slow_fs(&fast, &slow, &[]) else { return };
    let counters =
        || -> Value { serde_json::from_str(&std::fs::read_to_string(slow.join(COUNTERS)).unwrap()).unwrap() };
    let bench = |root: &Path, more: &[&str]| {
        let fixed = ["bench", root.to_str().unwrap(), "--index-dir", kept.to_str().unwrap(), "--json"];
        let small = ["--epochs", "1", "--batch-size", "10", "--image-size", "32", "--checksum"];
        foreload(&[&fixed[..], &small[..], more].concat())
    };
    let plain = bench(&fast, &[]);
    let options = IndexOptions { directory: Some(kept.clone()), ..IndexOptions::default() };
    let index = DatasetIndex::open(&slow, &options).unwrap();
    let (bytes, first) = (index.total_bytes(), index.extent(0).length);
    for (io, direct) in [("pread", "off"), ("pread", "auto"), ("auto", "auto"), ("auto", "off")] {
        let before = counters();
        let report = bench(&slow, &["--io", io, "--direct", direct]);
        assert_eq!(report["epochs"][0]["sha256"], plain["epochs"][0]["sha256"], "{io}, {direct}: {report}");
        let after = counters();
        let more = |what: &str| after[what].as_u64().unwrap() - before[what].as_u64().unwrap();
        // The first sample is read up to five times more, to probe O_DIRECT and io_uring.
        let opens = more("opens");
        assert!((120..=125).contains(&opens), "{io}, {direct}: {opens} opens");
        let most = bytes + 5 * u64::from(first);
        let reader = report["io"].as_str().unwrap();
        assert_eq!(reader.starts_with("io_uring"), io == "auto", "{io}, {direct}: {reader}");
        assert!(
            (bytes..=most).contains(&more("bytes")),
            "{io}, {direct}: {} of {bytes} bytes",
            more("bytes")
        );
    }
    let total = end(mounted);
    assert!(total["busy_seconds"].as_f64().unwrap() > 0.0, "{total}");
    assert!(std::fs::read_dir(&slow).unwrap().next().is_none(), "unmounted");

    let Some(mounted) = slow_fs(&fast, &slow, &["one-by-one"]) else { return };
    let report = bench(&slow, &[]);
    assert_eq!(report["epochs"][0]["sha256"], plain["epochs"][0]["sha256"], "{report}");
    // Older kernels give such reads to threads of their own, and do not read past the end.
    let reader = report["io"].as_str().unwrap();
    assert!(reader.starts_with("io_uring") || reader.contains("FUSE_ASYNC_DIO"), "{reader}");
    end(mounted);
}

#[test]
fn a_mount_in_this_process_shows_what_is_there() {
    let scene = tempfile::tempdir().unwrap();
    let (fast, slow) = (scene.path().join("fast"), scene.path().join("slow"));
    std::fs::create_dir_all(fast.join("a/b")).unwrap();
    std::fs::create_dir(&slow).unwrap();
    std::fs::write(fast.join("a/b/large"), vec![7; 3_000_000]).unwrap();
    std::fs::write(fast.join("a/empty"), b"").unwrap();
    let mounted = match SlowFs::mount(&fast, &slow, parse_pfs("rates", RATES).unwrap(), UringReads::AtOnce) {
        Ok(mounted) => mounted,
        Err(error) => {
            assert!(std::env::var_os("FORELOAD_REQUIRE_FUSE").is_none(), "no FUSE: {error}");
            println!("skipped: no FUSE: {error}");
            return;
        }
    };
    let same = |path: &str| {
        let (there, here) = (fast.join(path).metadata().unwrap(), slow.join(path).metadata().unwrap());
        assert_eq!(
            (there.len(), there.modified().unwrap()),
            (here.len(), here.modified().unwrap()),
            "{path}"
        );
    };
    ["", "a", "a/b", "a/b/large", "a/empty"].iter().for_each(|path| same(path));
    let mut names: Vec<_> =
        std::fs::read_dir(slow.join("a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "empty"]);
    assert_eq!(mounted.stats().reads.opens, 0, "looking is free");
    assert!(std::fs::read(slow.join("a/b/large")).unwrap() == vec![7; 3_000_000]);
    assert!(std::fs::read(slow.join("a/empty")).unwrap().is_empty());
    let stats = mounted.stats();
    assert_eq!((stats.reads.opens, stats.reads.bytes), (2, 3_000_000), "{stats:?}");
    assert!(std::fs::write(slow.join("a/new"), b"x").is_err(), "read-only");
    assert!(std::fs::read(slow.join("a/none")).unwrap_err().kind() == std::io::ErrorKind::NotFound);
}
