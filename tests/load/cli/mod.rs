//! The command line as a user runs it, with its output, exit code and files.

mod fields;
mod kept;
mod show;
mod tables;

use crate::common::{Dataset, files_below};
use foreload::testing::rng::{RandomKey, Use};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

fn foreload(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreload"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Parses stdout, which must be one JSON object and nothing else.
fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value.is_object(), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    value
}

/// Three "photographs", PNG files: waves of random direction and length, and noise.
static PHOTOS: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let key = RandomKey::new(b"photographs", 0, 0, Use::Augment);
    [(0, 640, 480), (1, 512, 512), (2, 700, 400)].map(|(number, width, height): (u64, u32, u32)| {
        let mut random = key.stream(number);
        let waves: Vec<[f64; 5]> = (0..40)
            .map(|_| {
                let length = random.uniform(1.0, 6.0).exp();
                let angle = random.uniform(0.0, std::f64::consts::TAU);
                let phase = random.uniform(0.0, std::f64::consts::TAU);
                [angle.cos() / length, angle.sin() / length, phase, length.sqrt(), random.unit()]
            })
            .collect();
        let mut pixels = Vec::new();
        for i in 0..width * height {
            let (x, y) = (f64::from(i % width), f64::from(i / width));
            let mut rgb = [128.0; 3];
            for [dx, dy, phase, height, hue] in &waves {
                let value = 2.0 * height * (x * dx + y * dy + phase).sin();
                rgb.iter_mut().zip([1.0, 0.5 + hue, 1.5 - hue]).for_each(|(v, gain)| *v += gain * value);
            }
            pixels.extend(rgb.map(|v| (v + random.uniform(-6.0, 6.0)).clamp(0.0, 255.0) as u8));
        }
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        file
    })
});

/// A directory to make datasets in.
struct Workshop {
    directory: TempDir,
}

impl Workshop {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `foreload synth` into `name`, on the photographs in `photos`, which the first call writes.
    fn synth(&self, name: &str, args: &[&str]) -> Output {
        let (target, photos) = (self.path(name), self.path("photos"));
        if !photos.exists() {
            fs::create_dir(&photos).unwrap();
            for (number, photo) in PHOTOS.iter().enumerate() {
                fs::write(photos.join(format!("{number}.png")), photo).unwrap();
            }
        }
        let fixed = ["synth", target.to_str().unwrap(), "--photos", photos.to_str().unwrap(), "--json"];
        foreload(&[&fixed[..], args].concat())
    }

    /// Writes small images of three classes into `name`: a folder, or tar shards of `each` images.
    fn images(&self, name: &str, layout: &str, count: usize, each: usize) {
        let made = if layout == "tar" { Dataset::shards(count, each) } else { Dataset::folder(count) };
        fs::rename(made.beside("data"), self.path(name)).unwrap();
    }

    /// The files below `name` by their relative path.
    fn files(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let root = self.path(name);
        let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
        files_below(&root).iter().map(|path| (relative(path), fs::read(path).unwrap())).collect()
    }
}

/// The columns and rows of a JPEG, and the red, green and blue of its pixels.
fn decode(jpeg: &[u8]) -> (u32, u32, Vec<u8>) {
    let header = foreload::testing::decode::parse_header(jpeg).unwrap();
    let (pixels, warnings) =
        libjpeg_reference::pixels(jpeg, libjpeg_reference::J_COLOR_SPACE::JCS_RGB).unwrap();
    assert_eq!(warnings, 0);
    (header.width, header.height, pixels)
}

/// Whether a JPEG file is progressive, and its number of components.
fn frame(jpeg: &[u8]) -> (bool, u8) {
    let mut at = 2;
    while !matches!(jpeg[at + 1], 0xC0 | 0xC2) {
        at += 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
    }
    (jpeg[at + 1] == 0xC2, jpeg[at + 9])
}

fn scans(jpeg: &[u8]) -> usize {
    jpeg.windows(2).filter(|w| w == b"\xFF\xDA").count()
}

#[test]
fn synth_makes_imagenet_like_files_whatever_the_threads() {
    let workshop = Workshop::new();
    let one = json(&workshop.synth("one", &["--images", "100", "--classes", "4", "--threads", "1"]));
    json(&workshop.synth("three", &["--images", "30", "--classes", "4", "--threads", "3"]));
    let files = workshop.files("one");
    let three = workshop.files("three");
    assert_eq!(three.len(), 30);
    assert!(
        three.iter().all(|(path, bytes)| files[path] == *bytes),
        "one thread and three make different files"
    );
    json(&workshop.synth("other", &["--images", "3", "--classes", "4", "--seed", "1"]));
    let other = workshop.files("other");
    assert!(other.iter().all(|(path, bytes)| files[path] != *bytes), "the seed changes nothing");

    assert_eq!(one["images"], 100);
    assert_eq!(one["bytes"], files.values().map(Vec::len).sum::<usize>());
    assert_eq!(one["width_median"], 500.0);
    let rate = one["bits_per_pixel_mean"].as_f64().unwrap();
    assert!((3.7..5.3).contains(&rate), "{rate} bits a pixel");
    assert_eq!(files.len(), 100);
    let mut codings = BTreeMap::new();
    for (path, jpeg) in &files {
        let (width, height, pixels) = decode(jpeg);
        assert_eq!(pixels.len(), 3 * (width * height) as usize);
        let (progressive, components) = frame(jpeg);
        let kind =
            if progressive { "progressive" } else { ["gray", "", "colour", "cmyk"][components as usize - 1] };
        *codings.entry(kind).or_insert(0) += 1;
        assert!(progressive || scans(jpeg) == 1, "{}", path.display());
        let name = path.to_str().unwrap();
        let index: usize = name[20..28].parse().unwrap();
        assert_eq!(name, format!("n{0:08}/n{0:08}_{index:08}.jpg", index % 4 + 1));
    }
    let of = |name: &str| one["codings"][name]["images"].as_u64().unwrap();
    assert_eq!(
        (codings["gray"], codings["colour"]),
        (of("gray"), of("yuv420") + of("yuv422") + of("yuv444"))
    );
    assert!(of("gray") >= 1 && of("yuv444") >= 74 && of("yuv420") >= 19, "{one}");

    let web = json(&workshop.synth("web", &["--profile", "web", "--images", "10"]));
    let progressive = workshop.files("web").values().filter(|jpeg| frame(jpeg).0).count();
    assert!(progressive >= 1);
    assert_eq!(web["codings"]["progressive"]["images"], progressive);
}

#[test]
fn tar_shards_hold_the_same_images_with_their_classes() {
    let workshop = Workshop::new();
    json(&workshop.synth("folder", &["--images", "23", "--classes", "3"]));
    let summary = json(
        &workshop
            .synth("tar", &["--images", "23", "--classes", "3", "--layout", "tar", "--shard-size", "10"]),
    );
    assert_eq!(summary["layout"], "tar");
    let folder = workshop.files("folder");
    let shards = workshop.files("tar");
    let names: Vec<_> = shards.keys().map(|p| p.to_str().unwrap()).collect();
    assert_eq!(names, ["shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]);
    let mut members = Vec::new();
    for shard in shards.values() {
        for entry in tar::Archive::new(&shard[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            assert!(entry.header().as_ustar().is_some());
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut data = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut data).unwrap();
            members.push((name, data));
        }
    }
    assert_eq!(members.len(), 46);
    for (index, pair) in members.chunks(2).enumerate() {
        let class = index % 3;
        assert_eq!(pair[0].0, format!("{index:08}.jpg"));
        assert_eq!(pair[1], (format!("{index:08}.cls"), class.to_string().into_bytes()));
        let loose = PathBuf::from(format!("n{0:08}/n{0:08}_{index:08}.jpg", class + 1));
        assert!(pair[0].1 == folder[&loose], "image {index} differs between the layouts");
    }
}

#[test]
fn synth_touches_nothing_that_is_there_and_leaves_nothing_half_done() {
    let workshop = Workshop::new();
    fs::create_dir(workshop.path("full")).unwrap();
    fs::write(workshop.path("full/mine"), "kept").unwrap();
    let refused = workshop.synth("full", &["--images", "1"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("is not empty"), "{}", stderr(&refused));
    assert_eq!(workshop.files("full").len(), 1);

    // Leftovers of a killed run are removed.
    fs::create_dir_all(workshop.path(".new.partial/n00000001")).unwrap();
    fs::write(workshop.path(".new.partial/n00000001/old.jpg"), "half").unwrap();
    fs::create_dir(workshop.path("new")).unwrap();
    json(&workshop.synth("new", &["--images", "2", "--classes", "2"]));
    assert_eq!(workshop.files("new").len(), 2);
    assert!(!workshop.path(".new.partial").exists());

    fs::write(workshop.path("photos/broken.jpg"), "\u{FFFD}no photograph").unwrap();
    let failed = workshop.synth("broken", &["--images", "2"]);
    assert_eq!(code(&failed), 1);
    assert!(stderr(&failed).contains("broken.jpg"), "{}", stderr(&failed));
    assert!(!workshop.path("broken").exists() && !workshop.path(".broken.partial").exists());
}

#[test]
fn bad_usage_has_exit_code_2_and_help_0() {
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("new").to_str().unwrap().to_owned();
    let nowhere = Path::new(&target).join("nowhere").to_str().unwrap().to_owned();
    let bad: &[&[&str]] = &[
        &[],
        &["sink"],
        &["synth"],
        &["synth", &target, "--images", "0"],
        &["synth", &target, "--images", "many"],
        &["synth", &target, "--layout", "zip"],
        &["synth", &target, "--classes", "0"],
        &["bench"],
        &["bench", &target, "--dtype", "float8"],
        &["bench", &target, "--emulate-pfs", "open=2"],
        &["bench", &target, "--emulate-pfs", "speed=2ms"],
        &["calibrate"],
        &["calibrate", "--seconds", "0", "--cache", &target],
        &["calibrate", &target, "--out", "machine.json"],
        &["index"],
        &["index", &target, "--verfy"],
        &["doctor", &target, &target],
        &["doctor", "--tls"],
    ];
    // Without a launcher these are refused for that reason, too.
    let said: [(&[&str], &str); 4] = [
        (&["doctor", &target, "--peers"], "cannot be used with"),
        (&["doctor", "--peers", "--sample-size", "1GB"], "must be 1 to"),
        (&["doctor", "--peers", "--seconds", "0"], "seconds: is 0, must be more"),
        (&["bench", &target, "--peers", "--rank", "1"], "cannot be used with"),
    ];
    for (args, says) in said {
        let output = foreload(args);
        assert_eq!(code(&output), 2, "{args:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    for args in bad {
        let output = foreload(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["synth", "--help"], &["--version"]] {
        let output = foreload(args);
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    let version = foreload(&["--version"]);
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.starts_with(concat!("foreload ", env!("CARGO_PKG_VERSION"))), "{version}");
    for args in [&["index", &nowhere][..], &["bench", &nowhere]] {
        let output = foreload(args);
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(stderr(&output).contains("nowhere"), "{}", stderr(&output));
    }
}

#[test]
fn a_slow_file_system_is_emulated_without_changing_a_byte() {
    let workshop = Workshop::new();
    for layout in ["folder", "tar"] {
        workshop.images(layout, layout, 30, 10);
        let (data, index) = (workshop.path(layout), workshop.path("index"));
        let bench = |more: &[&str]| {
            let fixed = [
                &["bench", data.to_str().unwrap(), "--index-dir", index.to_str().unwrap()][..],
                &["--epochs", "1", "--batch-size", "10", "--image-size", "32", "--checksum", "--json"],
            ];
            json(&foreload(&[&fixed.concat()[..], more].concat()))
        };
        let plain = bench(&[]);
        let spec = "open=1ms,read=1ms,bandwidth=1MB,opens=2000,concurrency=4";
        let slow = bench(&["--emulate-pfs", spec]);
        for same in ["sha256", "images", "source_bytes", "source_opens"] {
            assert_eq!(slow["epochs"][0][same], plain["epochs"][0][same], "{same}");
        }
        // Reading begins before the epoch's clock does, so the time to the first batch counts, too.
        let [first, rest] = [&slow["first_batch_seconds"], &slow["epochs"][0]["seconds"]]
            .map(|seconds| seconds.as_f64().unwrap());
        let bytes = slow["epochs"][0]["source_bytes"].as_f64().unwrap();
        assert!(first + rest >= bytes / 1e6, "{slow}");
        let io = slow["io"].as_str().unwrap();
        assert!(io.contains("slowed to open 1ms, read 1ms, 1 MB/s, 2000 opens/s, 4 at once"), "{io}");
    }
}

#[test]
fn bench_measures_something_or_refuses_and_says_what_is_noise() {
    let workshop = Workshop::new();
    json(&workshop.synth("folder", &["--images", "60"]));
    let (data, index) = (workshop.path("folder"), workshop.path("index"));
    let fixed =
        ["bench", data.to_str().unwrap(), "--index-dir", index.to_str().unwrap(), "--image-size", "32"];
    let bench = |more: &[&str]| foreload(&[&fixed[..], &["--batch-size", "10"], more].concat());
    for flag in ["--epochs", "--steps"] {
        let refused = bench(&[flag, "0"]);
        assert_eq!(code(&refused), 2);
        assert!(stderr(&refused).contains(&format!("'0' for '{flag}")), "{}", stderr(&refused));
    }
    // The pause at each opened file is several times as long as a decoding, and pauses come one after another, so
    // stalls are certain.
    let slow = ["--emulate-pfs", "open=15ms", "--queue-depth", "1", "--steps", "2", "--epochs", "1"];
    let report = json(&bench(&[&["--stall", "--json"], &slow[..]].concat()));
    let stall = &report["stall"];
    let counts = [&stall["epochs"], &stall["from_memory"], &report["epochs"]].map(|epochs| {
        let epochs = epochs.as_array().unwrap();
        assert!(epochs.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).eq(0..epochs.len() as u64));
        epochs.len() as u64
    });
    assert!(counts.iter().all(|&count| count == stall["pairs"].as_u64().unwrap() + 1), "{stall}");
    assert_eq!(stall["held_up_by"], "storage", "{stall}");
    let said = bench(&["--stall", "--steps", "1"]);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("longer than from memory (median of"), "{said}");

    // Without a batch size, there are fewer samples than in a batch; these samples are measured.
    let small = ["--epochs", "1", "--json"];
    let output = foreload(&[&fixed[..], &small].concat());
    assert!(stderr(&output).contains("an epoch has 60 samples, fewer than a global batch of 64"));
    let report = json(&output);
    assert_eq!((&report["batch_size"], &report["epochs"][0]["images"]), (&64.into(), &60.into()));
    let refused = foreload(&[&fixed[..], &small, &["--last-batch", "drop"]].concat());
    assert!(code(&refused) == 2 && stderr(&refused).contains("last_batch=\"drop\""), "{}", stderr(&refused));
}

#[test]
fn calibrate_measures_what_is_there_and_leaves_nothing_behind() {
    let workshop = Workshop::new();
    json(&workshop.synth("tar", &["--images", "60", "--layout", "tar", "--shard-size", "15"]));
    let (data, index, cache) = (workshop.path("tar"), workshop.path("index"), workshop.path("cache"));
    let out = workshop.path("machine.json");
    let [data, index, cache, file] = [&data, &index, &cache, &out].map(|path| path.to_str().unwrap());
    let quick = ["calibrate", "--seconds", "0.2", "--json"];
    let spec = "open=1ms,read=1ms,bandwidth=50MB";
    let args = [data, "--index-dir", index, "--cache", cache, "--out", file, "--emulate-pfs", spec];
    let found = json(&foreload(&[&quick[..], &args].concat()));
    let number = |pointer: &str| {
        found.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {found}"))
    };
    // No read ends early, so neither latency nor bandwidth can be measured as better than they were set.
    assert!(number("/source/one/median_seconds") >= 1e-3 && number("/source/opened/median_seconds") >= 2e-3);
    assert!(number("/source/rates/read_bandwidth") <= 50e6);
    assert!(number("/source/large/reads") >= 1.0 && number("/source/full/in_flight") == 32.0);
    for positive in ["/nvme/write_seconds", "/machine/nvme/write_bandwidth", "/machine/decode_bandwidth"] {
        assert!(number(positive) > 0.0, "{positive}: {found}");
    }
    let machine: foreload::testing::tier::Machine =
        serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(machine).unwrap(), found["machine"]);
    assert!(!Path::new(cache).exists(), "made for measuring, so gone with it");

    fs::create_dir(cache).unwrap();
    fs::write(Path::new(cache).join("mine"), "kept").unwrap();
    let only = json(&foreload(&[&quick[..], &["--cache", cache]].concat()));
    assert_eq!((&only["source"], &only["machine"]), (&Value::Null, &Value::Null));
    let left: Vec<_> = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["mine"]);
    let shown = foreload(&["calibrate", data, "--index-dir", index, "--seconds", "0.1"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("one at a time") && shown.contains("images/s"), "{shown}");
}

#[test]
fn doctor_says_what_is_chosen_and_why() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), [0; 1000]).unwrap();
    fs::create_dir(here.path().join("deep")).unwrap();
    fs::write(here.path().join("deep/b"), [0; 500]).unwrap();
    let path = here.path().to_str().unwrap();
    let found = json(&foreload(&["doctor", path, "--json"]));
    assert!(found["processors"].as_u64().unwrap() >= 1 && found["memory_bytes"].as_u64().unwrap() > 1 << 24);
    assert!(["portable", "avx2", "avx512"].contains(&found["simd"]["chosen"].as_str().unwrap()), "{found}");
    assert_eq!(found["path"]["bytes"], 1500);
    // `tests/gpu` covers all reasons why there can be no GPU.
    let (device, gpus) =
        (found["device"]["chosen"].as_str().unwrap(), found["gpu"]["devices"].as_array().unwrap());
    assert!(device == "cpu" || (device.starts_with("cuda:") && !gpus.is_empty()), "{found}");
    assert_eq!(found["path"]["direct"], false, "1500 bytes fit in memory: {found}");
    let shown = String::from_utf8(foreload(&["doctor", path]).stdout).unwrap();
    for word in ["io_uring", "huge pages", "simd", "reader", "1.50 KB"] {
        assert!(shown.contains(word), "{word} is missing: {shown}");
    }
    let mut lowered = Command::new(env!("CARGO_BIN_EXE_foreload"));
    let lowered =
        json(&lowered.args(["doctor", "--json"]).env("FORELOAD_SIMD", "portable").output().unwrap());
    assert_eq!((&lowered["simd"]["chosen"], &lowered["path"]), (&"portable".into(), &Value::Null));
    let nowhere = foreload(&["doctor", &format!("{path}/nowhere")]);
    assert_eq!(code(&nowhere), 1);
    assert!(stderr(&nowhere).contains("nowhere"));
}

#[test]
fn a_program_that_finds_no_other_processes_says_which_does() {
    for command in [&["doctor", "--peers=/tmp"][..], &["bench", "/tmp", "--peers"]] {
        let refused = foreload(command);
        assert_eq!(code(&refused), 2, "{command:?}");
        let said = stderr(&refused);
        assert!(said.contains("config: peers: needs the command of the Python package"), "{said}");
    }
}
