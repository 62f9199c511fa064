//! Batches of several sizes: each image has the pixels that the same recipe gives it at a fixed size.

use crate::common::{Dataset, batches};
use foreload::testing::augment::{ImageSize, ImageTransforms};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::schedule::LastBatch;
use std::collections::{BTreeMap, HashMap};

const SIZES: [(u32, u32); 3] = [(24, 48), (32, 32), (48, 24)];

fn options(transforms: Option<&str>) -> LoaderOptions {
    let mut options = LoaderOptions {
        batch_size: 4,
        threads: Some(3),
        seed: 5,
        last_batch: Some(LastBatch::Partial),
        transforms: transforms.map(|text| ImageTransforms::from_json(text).unwrap()),
        ..LoaderOptions::default()
    };
    options.buckets.sizes = SIZES.to_vec();
    options
}

/// An image of each sample by its id: the shape, and the bytes.
type Images = HashMap<u64, (Vec<i64>, Vec<u8>)>;

fn images(pipeline: &Pipeline, world: u32) -> Images {
    let mut images = Images::new();
    for rank in 0..world {
        let mut epoch = pipeline.epoch(2, rank, world, 0).unwrap();
        while let Some(batch) = epoch.next_batch().unwrap() {
            let tensor = batch.images();
            let each = tensor.bytes().len() / batch.len().max(1);
            let (ids, mask) = (batch.sample_ids(), batch.mask());
            let ids = ids.bytes().as_chunks().0.iter().map(|id| u64::from_ne_bytes(*id));
            for ((id, bytes), valid) in ids.zip(tensor.bytes().chunks(each)).zip(mask.bytes()) {
                if *valid == 1 {
                    assert!(images.insert(id, (tensor.shape()[1..].to_vec(), bytes.to_vec())).is_none());
                }
            }
        }
    }
    images
}

#[test]
fn pixels_are_those_of_the_same_recipe_at_a_fixed_size() {
    let dataset = Dataset::folder(61);
    let lists = [
        r#"[{"ResizeToCover": {"size": "bucket"}}, {"RandomCrop": {"size": "bucket"}}, {"RandomHorizontalFlip": {}},
            {"ToDtype": {"dtype": "float32", "scale": true}}]"#,
        r#"[{"RandomResizedCrop": {"size": "bucket"}}, {"ColorJitter": {"brightness": 0.4}}]"#,
    ];
    for list in lists {
        let pipeline = dataset.pipeline(&options(Some(list)));
        let found = images(&pipeline, 1);
        assert_eq!(found.len(), 61);
        assert!(images(&pipeline, 2) == found, "ranks take slices of the same batches");
        let mut of_shape: BTreeMap<Vec<i64>, Images> = BTreeMap::new();
        for (id, image) in found {
            of_shape.entry(image.0.clone()).or_default().insert(id, image);
        }
        assert!(of_shape.len() > 1, "the photographs have several shapes");
        for (shape, found) in of_shape {
            let fixed = ImageTransforms::from_json(list).unwrap();
            let size = ImageSize { height: shape[1] as u32, width: shape[2] as u32 };
            let mut asked = options(None);
            (asked.transforms, asked.buckets.sizes) = (fixed.in_bucket(size), Vec::new());
            let all = images(&dataset.pipeline(&asked), 1);
            for (id, image) in found {
                assert!(all[&id] == image, "sample {id} of {shape:?}");
            }
        }
    }
}

#[test]
fn an_evaluation_takes_each_sample_once_also_if_one_is_damaged() {
    let dataset = Dataset::folder(30);
    dataset.damage(3);
    let asked = LoaderOptions { train: Some(false), on_error: OnError::Zero, ..options(None) };
    let found = images(&dataset.pipeline(&asked), 3);
    assert_eq!(found.len(), 29);
    assert!(!found.contains_key(&3));
    let skipped = LoaderOptions { on_error: OnError::Skip, last_batch: Some(LastBatch::Pad), ..asked };
    for batch in batches(&dataset.pipeline(&skipped), 0) {
        assert!(
            SIZES.map(|(h, w)| vec![4, 3, h.into(), w.into()]).contains(&batch.images().shape().to_vec())
        );
    }
}

#[test]
fn what_buckets_cannot_do_is_refused() {
    let dataset = Dataset::folder(8);
    let message = |options: LoaderOptions| options.check(&dataset.index()).unwrap_err().to_string();
    let fixed = message(options(Some(r#"[{"RandomResizedCrop": {"size": 32}}]"#)));
    assert!(fixed.contains("has no size=\"bucket\""), "{fixed}");
    let own = message(options(Some(r#"[{"ResizeToCover": {"size": "bucket"}}]"#)));
    assert!(own.contains("of varying size"), "{own}");
    let mut none = options(Some(r#"[{"CenterCrop": {"size": "bucket"}}]"#));
    none.buckets.sizes.clear();
    assert!(message(none).contains("buckets is not set"));
    for (name, change) in [
        ("repeats", (|options| options.repeats = 2) as fn(&mut LoaderOptions)),
        ("shuffle", |options| options.shuffle = Some(foreload::Shuffling::Blocks)),
        ("image_size", |options| options.image_size = (99, 99)),
        ("epoch_size", |options| options.epoch_size = Some(5)),
        ("device", |options| options.device = "cuda".into()),
        ("batch_size", |options| (options.batch_size, options.last_batch) = (64, Some(LastBatch::Drop))),
    ] {
        let mut options = options(None);
        change(&mut options);
        let error = match options.check(&dataset.index()) {
            Err(error) => error.to_string(),
            Ok(_) => dataset.pipeline(&options).epoch(0, 0, 1, 0).err().unwrap().to_string(),
        };
        assert!(error.starts_with(&format!("config: {name}:")), "{error}");
    }
}
