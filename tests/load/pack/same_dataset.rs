//! A packed dataset equals its source: samples, order, labels, fields, names and batches.

use super::Scene;
use crate::common::{self, Dataset, epoch_bytes, failure, small_images, succeeds};
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions};
use foreload::testing::dataset::{ClassRef, Contents, DatasetIndex, Layout};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::state::State;
use foreload::{Fidelity, Labels, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Packs `data` into a directory next to it, in shards of a few samples each.
fn packed(dataset: &Dataset) -> PathBuf {
    let into = dataset.beside("packed");
    let scene = Scene::new();
    let mut command = scene.command("pack", &dataset.beside("data"), &into, &["--shard-size", "8000"]);
    succeeds(&mut command);
    assert!(fs::read_dir(&into).unwrap().count() > 4, "several shards");
    into
}

fn open(dataset: &Dataset, root: &Path, options: &LoaderOptions) -> Result<Pipeline> {
    common::open(root, dataset.beside("index"), Contents::Images, options)
}

#[test]
fn batches_are_the_same_bytes() {
    for dataset in [Dataset::folder(60), Dataset::shards(60, 13)] {
        let into = packed(&dataset);
        for decode in [Fidelity::Fast, Fidelity::Exact] {
            let options = LoaderOptions { decode, ..small_images() };
            let [one, other] =
                [dataset.beside("data"), into.clone()].map(|root| open(&dataset, &root, &options).unwrap());
            let (index, source) = (other.index(), one.index());
            assert_eq!((index.len(), index.fingerprint()), (source.len(), source.fingerprint()));
            assert_eq!((index.classes(), index.num_classes()), (source.classes(), source.num_classes()));
            assert_ne!(index.identity(), source.identity(), "they are other files");
            for sample in 0..index.len() {
                assert_eq!(index.label(sample), source.label(sample));
                assert_eq!(index.sample_of(index.extent(sample)), Some(sample));
            }
            index.verify().unwrap();
            for epoch in 0..2 {
                assert!(epoch_bytes(&one, epoch) == epoch_bytes(&other, epoch), "epoch {epoch}");
            }
        }
    }
}

#[test]
fn a_state_goes_on_from_one_to_the_other() {
    let dataset = Dataset::shards(60, 13);
    let roots = [dataset.beside("data"), packed(&dataset)];
    let pipelines = roots.map(|root| open(&dataset, &root, &small_images()).unwrap());
    let ids = |batch: &Batch| batch.sample_ids().bytes().to_vec();
    for (saving, resuming) in [(&pipelines[0], &pipelines[1]), (&pipelines[1], &pipelines[0])] {
        let mut epoch = saving.epoch(1, 0, 1, 0).unwrap();
        epoch.next_batch().unwrap();
        let state = State::from_json(&epoch.progress().state(None).unwrap().to_json()).unwrap();
        let mut rest = resuming.resume(&state, 0, 1).unwrap();
        let mut batches = 0;
        while let Some(batch) = epoch.next_batch().unwrap() {
            let same = rest.next_batch().unwrap().unwrap();
            assert!(ids(&batch) == ids(&same) && batch.images().bytes() == same.images().bytes());
            batches += 1;
        }
        assert!(rest.next_batch().unwrap().is_none() && batches == 3, "{batches} batches");
    }
}

#[test]
fn a_cache_never_mixes_the_bytes_of_both() {
    for dataset in [Dataset::folder(60), Dataset::shards(60, 13)] {
        let plain = dataset.pipeline(&small_images());
        let options = dataset.cached(20.0, small_images());
        for root in [dataset.beside("data"), packed(&dataset)] {
            // The first run fills the cache from its own files; the second run reads the copies of the first one.
            for hits in [0, 60] {
                let pipeline = open(&dataset, &root, &options).unwrap();
                assert!(epoch_bytes(&pipeline, 0) == epoch_bytes(&plain, 0));
                let cache = pipeline.cache().expect("a cache");
                cache.flush();
                assert_eq!(cache.stats().all().hits, hits, "{}", root.display());
            }
        }
    }
}

/// A hash of all data of these fields in a batch.
fn digest(pipeline: &Pipeline, batch: &Batch, fields: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for name in fields {
        match pipeline.config().field(batch, name).expect("the field").first_view() {
            FieldValue::Tensor(tensor) => hash.update(tensor.bytes()),
            FieldValue::Texts(texts) => hash.update(format!("{texts:?}")),
            FieldValue::Bytes(bytes) => hash.update(format!("{bytes:?}")),
            _ => panic!("a field of another kind"),
        }
    }
    hash.finalize().into()
}

#[test]
fn fields_and_labels_of_members_are_the_same() {
    let dataset = Dataset::shards(60, 13);
    let roots = [dataset.beside("data"), packed(&dataset)];
    let fields = ["jpg", "cls", "label"];
    let asked = fields.map(FieldOptions::named).to_vec();
    let options = LoaderOptions { fields: Some(asked), ..small_images() };
    let [one, other] = roots.map(|root| open(&dataset, &root, &options).unwrap());
    let (mut first, mut second) = (one.epoch(0, 0, 1, 0).unwrap(), other.epoch(0, 0, 1, 0).unwrap());
    while let Some(batch) = first.next_batch().unwrap() {
        let same = second.next_batch().unwrap().unwrap();
        assert_eq!(digest(&one, &batch, &fields), digest(&other, &same, &fields));
    }
    let missing = LoaderOptions { fields: Some(vec![FieldOptions::named("npy")]), ..small_images() };
    let refused = |root: PathBuf| open(&dataset, &root, &missing).err().unwrap().to_string();
    let said = refused(dataset.beside("packed"));
    assert!(said.contains("which no sample of") && said.contains("\"cls\", \"jpg\""), "{said}");
}

#[test]
fn samples_are_named_as_before() {
    let dataset = Dataset::folder(30);
    let into = packed(&dataset);
    let name = |sample: usize| {
        let path = dataset.path(sample);
        path.strip_prefix(dataset.beside("data")).unwrap().to_str().unwrap().to_owned()
    };
    // Select by a list of files, and by a table of labels, with the extension or without.
    let chosen = [7, 3, 29, 12];
    let list: String = chosen.iter().map(|&sample| format!("{}\n", name(sample))).collect();
    fs::write(dataset.beside("list.txt"), &list).unwrap();
    let rows: String =
        (0..30).map(|sample| format!("{},{}\n", name(sample).trim_end_matches(".jpg"), 7 * sample)).collect();
    fs::write(dataset.beside("labels.csv"), format!("file_name,score\n{rows}")).unwrap();
    let options = LoaderOptions {
        files: Some(dataset.beside("list.txt")),
        labels: Some(Labels::File(dataset.beside("labels.csv"))),
        fields: Some(["image", "label", "score"].map(FieldOptions::named).to_vec()),
        ..small_images()
    };
    let epoch = |root: &Path| {
        let pipeline = open(&dataset, root, &options).unwrap();
        let batch = pipeline.epoch(0, 0, 1, 0).unwrap().next_batch().unwrap().unwrap();
        assert_eq!(batch.len(), chosen.len());
        (batch.sample_ids().bytes().to_vec(), digest(&pipeline, &batch, &["image", "label", "score"]))
    };
    assert_eq!(epoch(&dataset.beside("data")), epoch(&into));
    let classes = Some(vec![ClassRef::Name("class2".into())]);
    let options = LoaderOptions { classes, ..small_images() };
    let [one, other] = [&dataset.beside("data"), &into].map(|root| open(&dataset, root, &options).unwrap());
    assert!(epoch_bytes(&one, 0) == epoch_bytes(&other, 0));
    // The error for an unknown name shows a name that exists.
    fs::write(dataset.beside("list.txt"), "class0/nobody.jpg\n").unwrap();
    let options = LoaderOptions { files: Some(dataset.beside("list.txt")), ..small_images() };
    let said = open(&dataset, &into, &options).err().unwrap().to_string();
    assert!(said.contains(&format!("have names like {:?}", name(0))), "{said}");
}

#[test]
fn a_failure_names_shard_and_sample() {
    let dataset = Dataset::folder(30);
    dataset.spoil(8);
    let into = packed(&dataset);
    let pipeline = open(&dataset, &into, &small_images()).unwrap();
    let error = failure(&mut pipeline.epoch(0, 0, 1, 0).unwrap()).to_string();
    assert!(error.contains(".packed/class0/00008.jpg"), "{error}");
}

#[test]
fn what_is_not_finished_or_was_packed_for_something_else_says_so() {
    let dataset = Dataset::folder(30);
    let into = packed(&dataset);
    let refused = |root: &Path, contents| {
        let options = LoaderOptions { index_dir: Some(dataset.beside("index")), ..small_images() };
        let options = options.validate().unwrap().index_options(contents);
        DatasetIndex::open(root, &options).map(|index| index.len()).unwrap_err().to_string()
    };
    let said = refused(&into, Contents::Files);
    assert!(said.contains("pack it with `foreload pack --files`"), "{said}");
    let said = refused(&into.join("000000.packed"), Contents::Images);
    assert!(said.contains("is a shard of a packed dataset"), "{said}");
    let summary = open(&dataset, &into, &small_images()).unwrap().index().summaries().next().unwrap();
    assert_eq!((summary.layout, summary.notes.packed_of), (Layout::Packed, Some(Layout::Folder)));
    // A shard that is not the one in the manifest is refused.
    fs::copy(into.join("000001.packed"), into.join("000000.packed")).unwrap();
    let said = refused(&into, Contents::Images);
    assert!(said.contains("000000.packed") && said.contains("does not match its entry"), "{said}");
    fs::rename(into.join("foreload-packed.json"), into.join("foreload-packing.json")).unwrap();
    let said = refused(&into, Contents::Images);
    assert!(said.contains("is not finished: run `foreload pack` again"), "{said}");
}
