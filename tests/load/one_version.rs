//! All members of a sample come from the same version of its shard. This holds even if they are read one by one,
//! because they are far apart, and the shard is replaced in between. Tested with a cache, which stores the records, and
//! without.

use crate::common::{batches, tar_of, tick};
use foreload::CacheChoice;
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderConfig, LoaderOptions};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::io::{Completion, ReadRequest, ReadStats, Reader, Waker};
use foreload::testing::pipeline::Pipeline;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SAMPLES: usize = 12;

/// The distance between two members: too long a gap to be read in one request.
const BETWEEN: usize = 300 << 10;

/// Writes a shard whose samples each have a caption and a document with the `version`: all captions first, all
/// documents last.
fn write(path: &Path, version: u8) {
    let captions = (0..SAMPLES).map(|sample| (format!("{sample:02}.txt"), vec![version]));
    let between = [("between".to_owned(), vec![0; BETWEEN])];
    let documents = (0..SAMPLES).map(|sample| (format!("{sample:02}.json"), vec![b'"', version, b'"']));
    // Another thread may read the shard meanwhile, so it must never be there in part.
    let new = path.parent().unwrap().with_extension("new");
    std::fs::write(&new, tar_of(captions.chain(between).chain(documents))).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// A reader that replaces the shard whenever records have arrived, before members that are stored apart are read.
struct WritingReader {
    inner: Box<dyn Reader>,
    path: PathBuf,
    versions: std::iter::Cycle<std::ops::RangeInclusive<u8>>,
}

impl Reader for WritingReader {
    fn room(&self) -> usize {
        self.inner.room()
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn submit(&mut self, request: ReadRequest) {
        self.inner.submit(request);
    }
    fn wait(&mut self, out: &mut Vec<Completion>) -> foreload::Result<()> {
        let before = out.len();
        self.inner.wait(out)?;
        if out.len() > before {
            // The stamp must differ from that of the previous version.
            tick();
            write(&self.path, self.versions.next().unwrap());
        }
        Ok(())
    }
    fn waker(&self) -> Waker {
        self.inner.waker()
    }
    fn stats(&self) -> ReadStats {
        self.inner.stats()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// The versions of each sample's caption and document.
fn versions(config: &LoaderConfig, batch: &Batch) -> Vec<(u8, u8)> {
    let Some(FieldValue::Texts(texts)) = config.field(batch, "txt") else { panic!("no texts") };
    let Some(FieldValue::Json(documents)) = config.field(batch, "json") else { panic!("no documents") };
    texts
        .iter()
        .zip(&documents)
        .map(|(text, json)| match (text, json) {
            (Some(text), Some(json)) => (text.as_bytes()[0], json[1]),
            missing => panic!("{missing:?}"),
        })
        .collect()
}

#[test]
fn members_that_lie_apart_are_of_one_version() {
    check(false);
}

#[test]
fn members_in_a_cache_are_of_the_version_of_those_that_lie_apart() {
    check(true);
}

fn check(cached: bool) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data");
    std::fs::create_dir(&root).unwrap();
    let path = root.join("0.tar");
    write(&path, b'a');
    let fields = ["txt", "json"].map(FieldOptions::named).to_vec();
    let options = LoaderOptions {
        batch_size: 4,
        threads: Some(1),
        queue_depth: Some(2),
        device: "cpu".into(),
        index_dir: Some(directory.path().join("index")),
        fields: Some(fields),
        cache: match cached {
            true => CacheChoice::in_directory(directory.path().join("cache"), 10 << 20),
            false => CacheChoice::default(),
        },
        ..LoaderOptions::default()
    };
    let asked: IndexOptions = options.validate().unwrap().index_options(Contents::Images);
    let index = Arc::new(DatasetIndex::open(&root, &asked).unwrap());
    let config = options.check(&index).unwrap();
    let open = move |index: &_, slots: &_, config: &LoaderConfig| {
        let inner = foreload::testing::io::open(index, slots, config.io, config.direct, config.queue_depth)?;
        let versions = (b'a'..=b'z').cycle();
        Ok(Box::new(WritingReader { inner, path: path.clone(), versions }) as _)
    };
    let pipeline = Pipeline::with_reader(index, config, Box::new(open));
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..4 {
        for batch in batches(&pipeline, number) {
            for (text, json) in versions(pipeline.config(), &batch) {
                assert_eq!(text as char, json as char, "a caption and a document of two versions");
                seen.insert(text);
            }
        }
    }
    assert!(seen.len() > 2, "the shard was hardly ever replaced: {seen:?}");
}
