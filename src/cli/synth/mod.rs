//! The command `foreload synth`, which makes a dataset with the statistics of a profile from real photographs.
//!
//! The same seed gives the same bytes with any number of threads: every image has its own random stream.

mod encode;
mod exif;
mod huffman;
mod photos;
mod profile;
mod recipe;
mod store;
mod summary;
mod warp;

use super::output;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use crossbeam_channel::bounded;
use photos::Photo;
use profile::Profile;
use recipe::PhotoRecipe;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The arguments of `foreload synth`.
#[derive(Debug, clap::Args)]
pub(crate) struct SynthArgs {
    /// Directory to create; it must be missing or empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Statistics of the images: codings, sizes, qualities and bits per pixel
    #[arg(long, value_enum, default_value = "imagenet")]
    profile: Profile,
    /// Number of images
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    images: u64,
    /// How to store them: a directory per class, or tar shards with .jpg and .cls members
    #[arg(long, value_enum, default_value = "folder")]
    layout: store::SynthLayout,
    /// Number of classes; image i is of class i modulo this
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    classes: u32,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Directories of JPEG and PNG photographs to make them from [default: those that scikit-image and
    /// scikit-learn ship]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    photos: Vec<PathBuf>,
    /// Images in a tar shard
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    shard_size: u64,
    /// Threads [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the statistics as one JSON object
    #[arg(long)]
    json: bool,
}

struct MadeImage {
    index: u64,
    recipe: PhotoRecipe,
    encoded: encode::EncodedImage,
}

struct SynthContext {
    photos: Vec<Photo>,
    grain: encode::Grain,
    key: RandomKey,
    /// The start of the golden-ratio sequence that chooses each image's coding, in [0, 1).
    start: f64,
    profile: Profile,
}

pub(crate) fn run(args: &SynthArgs) -> Result<()> {
    let began = Instant::now();
    let mut store =
        store::DatasetWriter::create(&args.directory, args.layout, args.classes, args.shard_size)?;
    let studio = SynthContext::open(args)?;
    let threads =
        args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let bar = output::bar(args.images, "images");
    let mut statistics = summary::Statistics::default();
    studio.make_all(args.images, threads, |made| {
        store.add(made.index, (made.index % u64::from(args.classes)) as u32, &made.encoded.bytes)?;
        statistics.add(&made);
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    store.publish()?;
    let summary = statistics.summary(args, began.elapsed());
    output::print_report(&summary, args.json, ToString::to_string)
}

impl SynthContext {
    fn open(args: &SynthArgs) -> Result<Self> {
        let mut photos = Vec::new();
        for path in photos::find(&args.photos)? {
            photos.extend(Photo::load(&path)?);
        }
        if photos.is_empty() {
            return Err(Error::config("photos", "every photograph is smaller than 64 pixels on a side"));
        }
        let key = RandomKey::new(b"synth", args.seed, 0, Use::Augment);
        // Image i uses random stream i. Draws that all images share use the last stream.
        let mut random = key.stream(u64::MAX);
        let start = random.unit();
        let grain = encode::Grain::new(&mut random);
        Ok(Self { photos, grain, key, start, profile: args.profile })
    }

    fn make(&self, index: u64) -> Result<MadeImage> {
        let mut random = self.key.stream(index);
        let recipe = PhotoRecipe::draw(self.profile, index, self.start, &mut random);
        let photo = &self.photos[random.below(self.photos.len() as u64) as usize];
        let image = warp::view(photo, recipe.width, recipe.height, &mut random);
        let encoded = encode::encode(&image, &recipe, &self.grain, &mut random)
            .map_err(|error| Error::dataset(&photo.path, format!("encoding image {index}: {error}")))?;
        Ok(MadeImage { index, recipe, encoded })
    }

    fn make_all(
        &self,
        images: u64,
        threads: usize,
        mut keep: impl FnMut(MadeImage) -> Result<()>,
    ) -> Result<()> {
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (sender, receiver) = bounded(2 * threads);
            for number in 1..=threads {
                let sender = sender.clone();
                let work = || {
                    let sender = sender;
                    while !stop.load(Ordering::Relaxed) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= images || sender.send(self.make(index)).is_err() {
                            break;
                        }
                    }
                };
                std::thread::Builder::new().spawn_scoped(scope, work).map_err(|error| {
                    stop.store(true, Ordering::Relaxed);
                    Error::config(
                        "threads",
                        format!("thread {number} of {threads} cannot be started: {error}"),
                    )
                })?;
            }
            drop(sender);
            // Images that were finished before a slower predecessor wait here.
            let mut early = BTreeMap::new();
            let mut due = 0;
            for made in receiver {
                let kept = made.and_then(|made| {
                    early.insert(made.index, made);
                    while let Some(made) = early.remove(&due) {
                        keep(made)?;
                        due += 1;
                    }
                    Ok(())
                });
                if kept.is_err() {
                    stop.store(true, Ordering::Relaxed);
                    return kept;
                }
            }
            Ok(())
        })
    }
}
