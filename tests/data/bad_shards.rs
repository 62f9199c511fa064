//! Shards that cannot be read, in every layout and on a server. An error names all of them; `files=` with only good
//! shards works; `bad_shards="skip"` skips them; and the next start notices a repaired shard.

use crate::common::scene::{Scene, summary};
use crate::common::succeeds;
use foreload::testing::dataset::{Contents, DatasetIndex, FileId, IndexOptions, IndexOrigin, Select};
use foreload::{BadShards, Result};
use range_server::{Fault, Options, RangeServer};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// Fixtures with one shard. Each dataset of this test has three copies of it.
const COPIED: [(&str, &str, Contents); 9] = [
    ("webdataset/shards/files/train-000000.tar", "tar", Contents::Images),
    ("webdataset/gzip/files/train-000000.tar.gz", "tar.gz", Contents::Images),
    ("imagenet/train/files/ILSVRC2012_img_train.tar", "tar", Contents::Images),
    ("tfrecord/plain/files/train.tfrecord", "tfrecord", Contents::Images),
    ("tfrecord/plain/files/train.tfrecord", "tfrecord", Contents::Files),
    ("parquet/bytes/files/part-0.parquet", "parquet", Contents::Images),
    ("parquet/zstd/files/part-0.parquet", "parquet", Contents::Images),
    ("arrow/file/files/part-0.arrow", "arrow", Contents::Images),
    ("arrow/stream/files/part-0.arrow", "arrow", Contents::Images),
];

/// A dataset of at least two shards. The second one is never damaged.
struct ShardedSet {
    directory: String,
    contents: Contents,
    /// The shards with their bytes, by name.
    shards: Vec<(PathBuf, Vec<u8>)>,
    /// Whether the dataset has a file that lists its shards.
    listed: bool,
}

impl ShardedSet {
    fn at(scene: &Scene, directory: String, contents: Contents) -> Self {
        let files = fs::read_dir(scene.root.join(&directory)).unwrap().map(|entry| entry.unwrap().path());
        let (lists, mut shards): (Vec<_>, Vec<_>) =
            files.partition(|path| path.extension().is_some_and(|extension| extension == "json"));
        shards.sort();
        let shards = shards.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        Self { directory, contents, shards, listed: !lists.is_empty() }
    }

    fn bad(&self) -> impl Iterator<Item = &(PathBuf, Vec<u8>)> {
        self.shards.iter().enumerate().filter(|(number, _)| *number != 1).map(|(_, shard)| shard)
    }

    fn repair(&self) {
        self.bad().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
}

fn datasets(scene: &Scene) -> Vec<ShardedSet> {
    let mut made = Vec::new();
    for (number, (fixture, extension, contents)) in COPIED.into_iter().enumerate() {
        let directory = format!("{number}-{extension}");
        let bytes = fs::read(Path::new(FIXTURES).join(fixture)).unwrap();
        for copy in 0..3 {
            scene.write(format!("{directory}/s-{copy}.{extension}"), &bytes);
        }
        made.push(ShardedSet::at(scene, directory, contents));
    }
    for file in ["index.json", "shard.00000.mds", "shard.00001.mds"] {
        let bytes = fs::read(Path::new(FIXTURES).join("mds/all/files").join(file)).unwrap();
        scene.write(format!("mds/{file}"), &bytes);
    }
    made.push(ShardedSet::at(scene, "mds".to_owned(), Contents::Images));
    let [from, to] = [&made[0].directory, "packed"].map(|name| scene.root.join(name));
    let mut pack = Command::new(env!("CARGO_BIN_EXE_foreload"));
    pack.arg("pack").args([&from, &to]).args(["--shard-size", "3000", "--index-dir"]);
    succeeds(pack.arg(scene.root.parent().unwrap().join("other")));
    made.push(ShardedSet::at(scene, "packed".to_owned(), Contents::Images));
    made
}

/// The dataset at one place: a directory or a URL.
struct Place<'a> {
    scene: &'a Scene,
    set: &'a ShardedSet,
    root: PathBuf,
}

impl Place<'_> {
    fn open(&self, bad_shards: BadShards, bad_shards_later: bool) -> Result<DatasetIndex> {
        let (contents, directory) = (self.set.contents, self.scene.options.directory.clone());
        let options =
            IndexOptions { contents, directory, bad_shards, bad_shards_later, ..IndexOptions::default() };
        DatasetIndex::open(&self.root, &options)
    }

    /// Checks that opening fails with an error that names all bad shards, each on its own line if there are several.
    fn refused(&self) {
        let error = self.open(BadShards::Error, false).map(|index| index.len()).unwrap_err().to_string();
        let named = |name: &str| error.lines().filter(|line| line.contains(name)).count();
        let names: Vec<&str> =
            self.set.bad().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        assert!(names.iter().all(|name| named(name) == 1), "{error}");
        assert!(names.len() == 1 || error.contains(" shards cannot be read:\n"), "{error}");
        assert!(error.contains("bad_shards=\"skip\""), "{error}");
    }

    /// The samples that a list with only this shard selects.
    fn listed(&self, shard: &Path) -> Result<Option<Vec<u32>>> {
        let list = self.scene.root.parent().unwrap().join("list.txt");
        fs::write(&list, shard.file_name().unwrap().as_encoded_bytes()).unwrap();
        let select = Select { files: Some(list), ..Select::default() };
        select.resolve(&self.open(BadShards::Error, true)?)
    }

    fn skipped(&self) -> (DatasetIndex, String) {
        let index = self.open(BadShards::Skip, false).unwrap();
        let said = std::iter::from_fn(|| index.notices().next()).map(|notice| notice.message);
        let said = said.collect::<Vec<_>>().join("\n");
        (index, said)
    }

    fn check(&self) {
        let name = self.root.display();
        let whole = self.open(BadShards::Error, false).unwrap();
        let good = whole.samples_of(FileId(1));
        assert!(!good.is_empty() && good.end - good.start < whole.len(), "{name}");
        for (path, bytes) in self.set.bad() {
            fs::write(path, &bytes[..bytes.len() * 2 / 3]).unwrap();
        }
        self.refused();
        let (index, said) = self.skipped();
        let labels = |index: &DatasetIndex, samples: std::ops::Range<u64>| {
            samples.map(|sample| (index.label(sample), index.extent(sample))).collect::<Vec<_>>()
        };
        assert_eq!(labels(&index, 0..index.len()), labels(&whole, good.clone()), "{name}");
        assert_ne!(index.fingerprint(), whole.fingerprint(), "{name}");
        let bad = self.set.bad().count();
        let told = format!("{bad} of its {} shards cannot be read and are left out", self.set.shards.len());
        assert!(said.contains(&told), "{name}: {said}");
        assert_eq!(summary(&self.skipped().0).origin, IndexOrigin::Loaded, "{name}");
        assert_eq!(index.verify().map_err(|error| error.to_string()), Ok(()), "{name}");
        // Without `bad_shards="skip"`, shards that an earlier start skipped are an error.
        self.refused();
        if !self.root.ends_with("packed") {
            let selected = self.listed(&self.set.shards[1].0).unwrap().unwrap();
            assert_eq!(selected.len() as u64, good.end - good.start, "{name}");
            let error = self.listed(&self.set.shards[0].0).unwrap_err().to_string();
            assert!(error.contains("line 1: ") && error.contains("cannot be read: "), "{name}: {error}");
        }
        self.set.repair();
        let (index, said) = self.skipped();
        assert_eq!((index.len(), index.fingerprint()), (whole.len(), whole.fingerprint()), "{name}");
        assert!(said.contains("can be read now, but could not be read when"), "{name}: {said}");
        if self.set.listed {
            fs::remove_file(&self.set.shards[0].0).unwrap();
            let (index, said) = self.skipped();
            assert!(index.len() < whole.len() && said.contains("(does not exist)"), "{name}: {said}");
            assert_eq!(summary(&self.skipped().0).origin, IndexOrigin::Loaded, "{name}");
            self.set.repair();
            assert_eq!(self.skipped().0.fingerprint(), whole.fingerprint(), "{name}");
        }
    }
}

#[test]
fn shards_that_cannot_be_read_are_named_listed_around_or_left_out() {
    let scene = Scene::new();
    let server = RangeServer::start(&scene.root, Options::default()).unwrap();
    for set in datasets(&scene) {
        let url = format!("{}/{}", server.url(), set.directory);
        for root in [scene.root.join(&set.directory), PathBuf::from(url)] {
            Place { scene: &scene, set: &set, root }.check();
        }
    }
}

#[test]
fn reads_that_fail_are_never_taken_for_bad_shards() {
    let scene = Scene::new();
    let server = RangeServer::start(&scene.root, Options::default()).unwrap();
    let bytes = fs::read(Path::new(FIXTURES).join(COPIED[0].0)).unwrap();
    for name in ["a.tar", "b.tar"] {
        scene.write(format!("tars/{name}"), &bytes);
    }
    let set = ShardedSet::at(&scene, "tars".to_owned(), Contents::Images);
    let place = Place { scene: &scene, set: &set, root: format!("{}/tars", server.url()).into() };
    server.set_faults(vec!["/tars/b.tar status:always:403".parse::<Fault>().unwrap()]);
    let error = place.open(BadShards::Skip, false).map(|index| index.len()).unwrap_err().to_string();
    assert!(error.contains("b.tar") && error.contains("403"), "{error}");
}

#[test]
fn verification_names_all_that_changed_and_all_that_is_damaged() {
    let scene = Scene::new();
    let tar = fs::read(Path::new(FIXTURES).join(COPIED[0].0)).unwrap();
    let parquet = fs::read(Path::new(FIXTURES).join("parquet/checksums/files/part-0.parquet")).unwrap();
    for (extension, bytes) in [("tar", &tar), ("parquet", &parquet)] {
        for name in ["a", "b", "c"] {
            scene.write(format!("{extension}/{name}.{extension}"), bytes);
        }
        let root = scene.root.join(extension);
        let index = DatasetIndex::open(&root, &scene.options).unwrap();
        index.verify().unwrap();
        for name in ["a", "c"] {
            let mut bytes = bytes.clone();
            match extension {
                "tar" => bytes.truncate(900),
                // The first bytes of a page; its header has a checksum of the page.
                _ => bytes[60..70].iter_mut().for_each(|byte| *byte ^= 0x55),
            }
            scene.write(format!("{extension}/{name}.{extension}"), &bytes);
        }
        let error = index.verify().unwrap_err().to_string();
        let named = |name: &str| error.contains(&format!("/{name}.{extension}: "));
        assert!(named("a") && !named("b") && named("c"), "{error}");
    }
}
