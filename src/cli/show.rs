//! The command `foreload show`, which draws the images that a network sees.

use super::output;
use super::settings::{Settings, TakesSettings};
use base::error::{Error, Result};
use data::dataset::{Contents, DatasetIndex};
use engine::pipeline::Pipeline;
use engine::show::{SheetRequest, sheet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `foreload show` takes all settings that have a flag, with `cpu` as the default device.
impl TakesSettings for ShowArgs {
    const DEFAULTS: &'static [(&'static str, &'static str)] = &[("device", "cpu")];
}

/// The arguments of `foreload show`.
#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    #[arg(value_name = "DATASET", help = super::DATASET)]
    dir: PathBuf,
    /// A recipe of Python's foreload.recipes, such as simclr or deit, instead of --transforms, --mix and --repeats
    #[arg(long, conflicts_with_all = ["transforms", "mix", "repeats"])]
    recipe: Option<String>,
    /// The PNG to write
    #[arg(long, default_value = "sheet.png")]
    out: PathBuf,
    /// The samples to show: their numbers, separated by commas [default: the first that the epoch draws]
    #[arg(long, value_delimiter = ',')]
    samples: Vec<u64>,
    /// Number of samples to show if --samples is not given
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// The first epoch to show
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Number of epochs to show side by side, each with new random draws
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// The image field to show [default: the first]
    #[arg(long)]
    field: Option<String>,
    #[command(flatten)]
    settings: Settings<ShowArgs>,
}

/// Runs the command.
///
/// # Errors
/// The errors of the loader and of [`sheet`]. [`Error::Io`] for the output file. [`Error::Config`] for an output name
/// that is not a PNG's, and for a recipe: only the program of the Python package can resolve a recipe to transforms.
pub(super) fn run(args: &ShowArgs) -> Result<()> {
    if let Some(name) = &args.recipe {
        let message = format!(
            "is {name:?}, but only the foreload command of the Python package has recipes: pass --transforms"
        );
        return Err(Error::config("recipe", message));
    }
    check_suffix(&args.out)?;
    let checked = args.settings.validate()?;
    let index = Arc::new(DatasetIndex::open(&args.dir, &checked.index_options(Contents::Images))?);
    let config = checked.check(&index)?;
    output::print_notices(index.notices());
    let pipeline = Pipeline::new(index, config);
    let request = SheetRequest {
        samples: args.samples.clone(),
        rows: args.rows,
        epoch: args.epoch,
        epochs: args.epochs,
        field: args.field.clone(),
        ..SheetRequest::default()
    };
    let png = sheet(&pipeline, &request)?;
    std::fs::write(&args.out, png).map_err(|error| Error::io("write", &args.out, error))?;
    output::print(&args.out.display().to_string())
}

/// Checks that the name of the file has no suffix of another format. A name without a suffix is accepted.
///
/// # Errors
/// [`Error::Config`] for `out`.
fn check_suffix(out: &Path) -> Result<()> {
    match out.extension() {
        Some(suffix) if !suffix.eq_ignore_ascii_case("png") => {
            let (named, png) = (out.display(), out.with_extension("png"));
            Err(Error::config("out", format!("is {named}, but a sheet is a PNG: name it {}", png.display())))
        }
        _ => Ok(()),
    }
}
