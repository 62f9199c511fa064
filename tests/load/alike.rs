//! Files that begin like packed or indexed images, but were not made by Foreload. Wherever they are stored, they are
//! treated as any other file and delivered unchanged.

use crate::common::{self, ids, jpeg, succeeds, tar_of_samples, wait_for};
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions};
use foreload::testing::dataset::Contents;
use foreload::testing::decode::forms::{ConvertedFormat, FormatConverter};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::FormChoice;
use foreload::{CacheChoice, TierName};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The number of files of each kind: enough to fill more than one block of memory.
const EACH: u64 = 60;

/// Contents of files: real images, packed and indexed images, and data that only begins like these.
fn contents() -> Vec<Vec<u8>> {
    let mut maker = FormatConverter::default();
    let mut files = Vec::new();
    for number in 0..EACH {
        let image = jpeg(number);
        for form in [ConvertedFormat::Packed, ConvertedFormat::Indexed] {
            let mut made = Vec::new();
            maker.make(form, &image, &mut made).unwrap();
            files.push([&made[..8], &[number as u8; 3000]].concat());
            files.push(made);
        }
        files.push(image);
    }
    files
}

struct Alike {
    directory: TempDir,
    files: Vec<Vec<u8>>,
}

impl Alike {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A folder of such files.
    fn folder() -> Self {
        let alike = Self { directory: tempfile::tempdir().unwrap(), files: contents() };
        std::fs::create_dir(alike.path("data")).unwrap();
        for (number, file) in alike.files.iter().enumerate() {
            std::fs::write(alike.path(&format!("data/{number:04}.bin")), file).unwrap();
        }
        alike
    }

    /// A tar shard whose samples each have an image, such a file, and a caption.
    fn shard() -> Self {
        let alike = Self { directory: tempfile::tempdir().unwrap(), files: contents() };
        std::fs::create_dir(alike.path("data")).unwrap();
        let tar = tar_of_samples((0..).zip(&alike.files).map(|(number, file)| {
            let members = [("jpg", jpeg(number)), ("bin", file.clone()), ("txt", b"caption".to_vec())];
            (format!("{number:04}"), members)
        }));
        std::fs::write(alike.path("data/0.tar"), tar).unwrap();
        alike
    }

    /// Packs the dataset, and returns the path of the result.
    fn packed(&self, more: &[&str]) -> PathBuf {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.arg("pack").args([self.path("data"), self.path("packed")]).args(more);
        succeeds(program.env("FORELOAD_INDEX_DIR", self.path("index")));
        self.path("packed")
    }

    fn pipeline(&self, root: &Path, contents: Contents, options: &LoaderOptions) -> Pipeline {
        common::open(root, self.path("index"), contents, options).unwrap()
    }

    /// Reads an epoch, checks that each sample has its own file, and returns the number of rebuilt files.
    fn check(&self, pipeline: &Pipeline, number: u64, files: impl Fn(&Batch) -> Vec<Vec<u8>>) -> u64 {
        let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
        let mut seen = 0;
        while let Some(batch) = epoch.next_batch().unwrap() {
            for (sample, file) in ids(&batch).into_iter().zip(files(&batch)) {
                assert!(file == self.files[sample as usize], "sample {sample}, epoch {number}");
                seen += 1;
            }
        }
        assert_eq!(seen, self.files.len());
        epoch.stats().rebuilt
    }
}

fn members(pipeline: &Pipeline, batch: &Batch) -> Vec<Vec<u8>> {
    match pipeline.config().field(batch, "bin").expect("the field").first_view() {
        FieldValue::Bytes(files) => files.into_iter().map(|file| file.expect("each has one")).collect(),
        _ => panic!("a field of another kind"),
    }
}

fn encoded(batch: &Batch) -> Vec<Vec<u8>> {
    batch.encoded().iter().map(|file| file.bytes().to_vec()).collect()
}

fn files() -> LoaderOptions {
    use foreload::testing::schedule::LastBatch;
    LoaderOptions {
        batch_size: 8,
        decoded: false,
        device: "cpu".into(),
        last_batch: Some(LastBatch::Partial),
        ..LoaderOptions::default()
    }
}

#[test]
fn a_folder_of_files_and_its_packed_shards_give_them_as_they_are() {
    let alike = Alike::folder();
    let plain = alike.pipeline(&alike.path("data"), Contents::Files, &files());
    assert_eq!(alike.check(&plain, 0, encoded), 0);
    let packed = alike.pipeline(&alike.packed(&["--files"]), Contents::Files, &files());
    assert_eq!(alike.check(&packed, 0, encoded), EACH, "real images are packed there");
}

#[test]
fn copies_in_a_cache_are_of_what_was_read() {
    let alike = Alike::folder();
    for tier in [TierName::NVME, TierName::RAM] {
        for form in [FormChoice::Indexed, FormChoice::Packed] {
            let mut cache = match tier == TierName::NVME {
                true => CacheChoice::in_directory(alike.path(&format!("cache {form:?}")), 64 << 20),
                false => CacheChoice::in_ram(64 << 20),
            };
            (cache.ram.form, cache.directory.form) = (form, form);
            let options = LoaderOptions { cache, ..files() };
            let pipeline = alike.pipeline(&alike.path("data"), Contents::Files, &options);
            assert_eq!(alike.check(&pipeline, 0, encoded), 0);
            let cache = pipeline.cache().expect("a cache");
            cache.flush();
            let what = format!("copies in {tier} are {form:?}");
            wait_for(&what, || cache.stats(), |stats| stats.all().converted_samples > 0);
            for number in 1..3 {
                alike.check(&pipeline, number, encoded);
            }
        }
    }
}

#[test]
fn members_of_samples_are_given_as_they_are() {
    let alike = Alike::shard();
    let options = LoaderOptions {
        decoded: true,
        fields: Some(["bin", "txt"].map(FieldOptions::named).to_vec()),
        ..files()
    };
    for root in [alike.path("data"), alike.packed(&[])] {
        for options in [
            options.clone(),
            LoaderOptions { fields: Some([FieldOptions::named("bin")].to_vec()), ..options.clone() },
        ] {
            let pipeline = alike.pipeline(&root, Contents::Images, &options);
            let rebuilt = alike.check(&pipeline, 0, |batch| members(&pipeline, batch));
            assert_eq!(rebuilt, if root == alike.path("data") { 0 } else { EACH });
        }
    }
}
