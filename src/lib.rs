//! Foreload: a data loader for people who train on GPUs. It knows the epoch's order and loads ahead.
//!
//! All settings are fields of [`LoaderOptions`], with the same defaults as in Python. [`LoaderOptions::validate`]
//! checks them without a dataset. [`CheckedOptions::check`] resolves them for one dataset and this machine. A
//! [`Pipeline`] then makes the batches of each epoch:
//!
//! ```
//! use foreload::{Contents, DType, DatasetIndex, FieldOptions, FieldValue, LoaderOptions, Pipeline};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! fn train(root: &Path, index_dir: &Path) -> foreload::Result<u64> {
//!     let options = LoaderOptions {
//!         batch_size: 4,
//!         image_size: (32, 48),
//!         dtype: DType::U8,
//!         fields: Some(vec![FieldOptions::named("image"), FieldOptions::named("label")]),
//!         index_dir: Some(index_dir.to_owned()),
//!         ..LoaderOptions::default()
//!     };
//!     let checked = options.validate()?;
//!     let index = Arc::new(DatasetIndex::open(root, &checked.index_options(Contents::Images))?);
//!     let pipeline = Pipeline::new(index.clone(), checked.check(&index)?);
//!     let mut samples = 0;
//!     for number in 0..2 {
//!         // This process is rank 0 of 1, and begins with the epoch's first step.
//!         let mut epoch = pipeline.epoch(number, 0, 1, 0)?;
//!         while let Some(batch) = epoch.next_batch()? {
//!             let field = |name| pipeline.config().field(&batch, name);
//!             let Some(FieldValue::Tensor(images)) = field("image") else { panic!("images of one size") };
//!             let Some(FieldValue::Tensor(labels)) = field("label") else { panic!("class directories") };
//!             assert_eq!(images.shape(), [4, 3, 32, 48]);
//!             assert_eq!(images.bytes().len(), 4 * 3 * 32 * 48);
//!             assert_eq!(labels.shape(), [4]);
//!             samples += batch.len() as u64;
//!         }
//!     }
//!     Ok(samples)
//! }
//! # let folder = tempfile::tempdir().unwrap();
//! # for number in 0..8 {
//! #     let class = folder.path().join(["data/cat", "data/dog"][number % 2]);
//! #     std::fs::create_dir_all(&class).unwrap();
//! #     let file = std::fs::File::create(class.join(format!("{number}.png"))).unwrap();
//! #     let mut encoder = png::Encoder::new(file, 60, 50);
//! #     encoder.set_color(png::ColorType::Rgb);
//! #     encoder.write_header().unwrap().write_image_data(&[number as u8; 60 * 50 * 3]).unwrap();
//! # }
//! # let (data, index_dir) = (folder.path().join("data"), folder.path().join("index"));
//! # assert_eq!(train(&data, &index_dir).unwrap(), 2 * 8);
//! ```
//!
//! Data flows one way: `dataset` → `schedule` → `tier` → `io` → `decode` → `augment` → `batch` → hand-off by `dlpack`.
//! Only `pipeline` uses every stage. `ARCHITECTURE.md` gives the overview; the `//!` page of each module gives its
//! design.

#![warn(missing_docs, unreachable_pub)]

#[cfg(feature = "python")]
mod dlpack;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "testing")]
pub mod testing;

/// The command line.
pub mod cli {
    pub use ::cli::{FindsJob, FoundJob, JobQuestion};
    use std::ffi::OsString;

    /// Runs the command line `args` (program name first) and returns the exit code: 0 for success, 1 if the work
    /// failed, 2 for bad usage. Results go to stdout, everything else to stderr. Commands that join a job of several
    /// processes (`--peers`) use `finder` to find the other processes, and fail without one.
    pub fn main(args: Vec<OsString>, finder: Option<&dyn FindsJob>) -> i32 {
        base::version::set(env!("FORELOAD_VERSION"));
        ::cli::main(args, finder)
    }
}

pub use base::error::{DecodeError, Error, Result};
pub use base::notices::Notices;
pub use base::tier_name::TierName;
pub use base::trace::Trace;
pub use data::dataset::{
    BadShard, BadShards, Changed, ClassRef, Contents, DatasetIndex, FieldKind, Fingerprint, IndexOptions,
    Layout, Select,
};
pub use data::schedule::{Draw, LastBatch, Order, Schedule, Shuffling};
pub use data::state::State;
pub use engine::batch::{Batch, Element, Place, Tensor};
pub use engine::config::choices::*;
pub use engine::config::{
    CheckedOptions, CpuDecode, Device, FieldOptions, FieldValue, GpuDecoder, Labels, LoaderConfig,
    LoaderKind, LoaderOptions, OnError, Peers, SharingPolicy, Weights,
};
pub use engine::pipeline::{
    Cursor, Epoch, EpochStats, FailureLog, Pipeline, Poll, Progress, SampleFailure, Start,
};
pub use pixels::augment::{DType, Fidelity, ImageTransforms, MemoryFormat, Mixing, Transform, Transforms};
pub use pixels::decode::{Damaged, Orientation};
pub use store::io::{Direct, IoChoice};
pub use store::tier::{
    CacheOptions, FillChoice, FormChoice, NoForms, PeersOptions, RankMeeting, RanksMet, TierOptions, Verify,
};
