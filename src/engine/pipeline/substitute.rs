//! Handles a sample that failed, as `on_error` says: with `skip` a substitute takes its place.

use super::{context::SampleContext, fields::blank_fields, run::EpochRun};
use crate::batch::Ticket;
use crate::config::OnError;
use base::error::{Error, Result};
use base::tier_name::TierName;

/// The number of substitutes that are tried for one place before the failure is final. If half of all samples are
/// broken, one place in 2^32 fails.
const ATTEMPTS: u32 = 32;

/// Records that the `sample` of a place has failed, and returns how to fill its images. With `on_error = zero`, fills
/// the other fields of the place with zeros.
pub(crate) fn note_failure(
    context: &SampleContext,
    sample: u64,
    error: Error,
    ticket: &mut Ticket,
) -> OnError {
    ticket.fail(sample, context.sample_error(sample, error), false);
    let instead = context.config.on_error;
    if instead == OnError::Zero {
        blank_fields(context, sample, ticket);
    }
    instead
}

/// Draws another sample of the epoch, with the same weights, for the place at `position`. Returns its id and what
/// `make` returns for its id and bytes. The draw depends on (dataset, seed, epoch, position) alone, so it is the same
/// on every rank, in every run and on every machine. This thread reads the sample itself, so that nothing flows back to
/// the reading thread; failures are rare.
///
/// # Errors
/// [`Error::Dataset`] if none of the samples that were tried can be used.
pub(crate) fn substitute<T>(
    run: &EpochRun,
    position: u64,
    mut make: impl FnMut(u64, Vec<u8>) -> Result<T>,
) -> Result<(u64, T)> {
    let (context, index) = (&run.context, &run.context.index);
    let mut stream = run.substitutes.stream(position);
    let mut last = None;
    for _ in 0..ATTEMPTS {
        if run.stopped() {
            break;
        }
        let sample = run.run_plan.substitute(index, position, &mut stream)?;
        let outcome = context.source.read_blocking(sample).and_then(|(bytes, tier)| {
            if tier == TierName::SOURCE {
                run.counters.add_reads(context.source.one_read(sample, bytes.len() as u64));
            }
            make(sample, bytes)
        });
        match outcome {
            Ok(made) => return Ok((sample, made)),
            Err(error) => last = Some(context.sample_error(sample, error)),
        }
    }
    let last = last.map_or_else(|| "the epoch was stopped".into(), |error| error.to_string());
    let message = format!("all {ATTEMPTS} substitutes for a failed sample failed, too; the last: {last}");
    Err(Error::dataset(index.root(), message))
}
