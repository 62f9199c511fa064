//! Ten million samples are indexed, loaded and read within 300 MB.

use crate::common::{child, passes};
use foreload::testing::dataset::build::{
    FileRow, GroupRows, IndexBuilder, IndexFacts, IndexGroup, SampleRow, ShardRows,
};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions, Layout, Stamp};
use std::path::{Path, PathBuf};
use std::time::Instant;

const SAMPLES: u64 = 10_000_000;
/// The most memory of the whole process, in bytes.
const LIMIT: u64 = 300 << 20;

/// The process's peak resident memory in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a peak");
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kilobytes << 10
}

fn build(target: &Path, layout: Layout, groups: u64) -> DatasetIndex {
    let start = Instant::now();
    let mut builder = IndexBuilder::new(target, layout, Contents::Images).expect("a builder");
    let each = SAMPLES / groups;
    // The groups are added in reverse, because threads finish groups in any order.
    for group in (0..groups).rev() {
        let rows = match layout {
            Layout::Folder => {
                let mut names = Vec::new();
                let files = (0..each)
                    .map(|i| {
                        let at = names.len() as u32;
                        names.extend(format!("n{group:08}_{i:05}.JPEG").bytes());
                        FileRow { name: at, name_length: names.len() as u32 - at, length: (group + i) as u32 }
                    })
                    .collect();
                GroupRows::Files { class: group as u32, names, files }
            }
            _ => {
                let packed = |i| SampleRow {
                    offset: 110_000 * i,
                    length: (group + i) as u32,
                    label: (i % 1000) as u32,
                };
                GroupRows::Shard(ShardRows {
                    samples: (0..each).map(packed).collect(),
                    ..ShardRows::default()
                })
            }
        };
        let path = format!("n{group:08}").into_bytes();
        builder.add(&IndexGroup { path, stamp: Stamp::default(), rows }).expect("a group");
    }
    let whole = IndexFacts { root: PathBuf::from("/data"), ..IndexFacts::default() };
    builder.finish(&whole).expect("an index");
    let built = start.elapsed();
    let start = Instant::now();
    let index = DatasetIndex::load(Path::new("/data"), target).expect("it loads");
    println!(
        "{layout:?}: {SAMPLES} samples in {groups} groups built in {built:?}, loaded in {:?}, {} bytes each",
        start.elapsed(),
        std::fs::metadata(target).expect("the index").len() / SAMPLES
    );
    index
}

#[test]
fn ten_million_samples_fit() {
    println!("{}", passes(&mut child(in_little_memory)));
}

#[test]
#[ignore = "run by the test above, in a process of its own: peak memory is the process's"]
fn in_little_memory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (layout, groups) in [(Layout::Folder, 1000), (Layout::Tar, 1000)] {
        let index = build(&directory.path().join("10m.index"), layout, groups);
        assert_eq!(index.len(), SAMPLES);
        let each = SAMPLES / groups;
        for sample in (0..SAMPLES).step_by(99_991) {
            let (group, i) = (sample / each, sample % each);
            let extent = index.extent(sample);
            assert_eq!(u64::from(extent.length), group + i);
            let path = match layout {
                Layout::Folder => format!("/data/n{group:08}/n{group:08}_{i:05}.JPEG"),
                _ => format!("/data/n{group:08}"),
            };
            assert_eq!(index.path(extent.file), PathBuf::from(path));
        }
        println!("peak {} MB", peak() >> 20);
        assert!(peak() <= LIMIT, "{} bytes", peak());
    }
}

#[test]
#[ignore = "a measurement: how long opening 1.28 million indexed files takes; some 300 MB of /dev/shm"]
fn opening_imagenet() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a file system in memory");
    let root = directory.path().join("data");
    let image = directory.path().join("image");
    std::fs::write(&image, b"x").expect("a file");
    for class in 0..1000 {
        let class = root.join(format!("n{class:08}"));
        std::fs::create_dir_all(&class).expect("a class");
        let name = class.file_name().expect("a name").to_string_lossy().into_owned();
        for number in 0..1281 {
            std::fs::hard_link(&image, class.join(format!("{name}_{number}.JPEG"))).expect("an image");
        }
    }
    let options = IndexOptions { directory: Some(directory.path().join("index")), ..IndexOptions::default() };
    for round in 0..6 {
        let start = Instant::now();
        let index = DatasetIndex::open(&root, &options).expect("a dataset");
        println!("{} samples, start {round}: {:?}", index.len(), start.elapsed());
    }
    let moved = root.join("n00000007/.nfs1");
    std::fs::write(&moved, b"").expect("a file");
    std::fs::remove_file(&moved).expect("no file");
    let start = Instant::now();
    DatasetIndex::open(&root, &options).expect("a dataset");
    println!("with a directory that was touched: {:?}", start.elapsed());
}
