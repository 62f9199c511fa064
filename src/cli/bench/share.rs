//! Lets `foreload bench` take its batches from another process.

use super::BenchArgs;
use crate::job::FindsJob;
use base::error::{Error, Result};
use engine::config::LoaderOptions;
use engine::pipeline::Pipeline;
use engine::sharing::Sharing;

pub(super) fn shared(
    pipeline: Pipeline,
    args: &BenchArgs,
    options: &LoaderOptions,
    finder: Option<&dyn FindsJob>,
) -> Result<Pipeline> {
    if options.shared.is_none() {
        return Ok(pipeline);
    }
    if args.emulate_pfs.is_some() || args.stall {
        let message = "reads in another process, so --emulate-pfs and --stall have no effect: remove them";
        return Err(Error::config("shared", message));
    }
    let (roots, settings) = (std::slice::from_ref(&args.dir), args.given());
    let opened = (&**pipeline.index(), pipeline.identity(), pipeline.config());
    let command = crate::job::own_command(finder)?;
    Ok(match Sharing::new(roots, &settings, options, opened, command)? {
        Some(sharing) => pipeline.sharing(sharing),
        None => pipeline,
    })
}
