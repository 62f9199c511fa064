//! What takes the place of a sample that failed: with `on_error = skip` a substitute.

use super::{EpochRun, PipelineShared};
use crate::batch::Ticket;
use crate::config::OnError;
use base::error::{Error, Result};
use base::tier_name::TierName;
use store::io::ReadStats;

/// The number of substitutes that are tried for one place before the failure is final. With half of all samples broken,
/// one place in 2^32 fails.
const ATTEMPTS: u32 = 32;

impl PipelineShared {
    /// Notes that the `sample` of a place has failed, and says what its images become. Its other fields are zeros
    /// already, where that is what is asked for.
    pub(super) fn note_failure(&self, sample: u64, error: Error, ticket: &mut Ticket) -> OnError {
        ticket.fail(sample, self.sample_error(sample, error), false);
        let instead = self.config.on_error;
        if instead == OnError::Zero {
            self.blank_fields(sample, ticket);
        }
        instead
    }
}

/// Draws another sample of the epoch, by the same weights, for the place at `position`. Returns its id and what `make`
/// makes of its id and bytes. It is drawn from (dataset, seed, epoch, position), so that it is the same on every rank,
/// in every run and on every machine. It is read here, so that nothing flows back to the reading thread; this is rare.
///
/// # Errors
/// [`Error::Dataset`] when none of the samples that were tried is good either.
pub(super) fn substitute<T>(
    shared: &PipelineShared,
    run: &EpochRun,
    position: u64,
    mut make: impl FnMut(u64, Vec<u8>) -> Result<T>,
) -> Result<(u64, T)> {
    let index = &shared.index;
    let mut stream = run.substitutes.stream(position);
    let mut last = None;
    for _ in 0..ATTEMPTS {
        if run.stopped() {
            break;
        }
        let sample = run.course.substitute(index, position, &mut stream)?;
        let outcome = shared.read_blocking(sample).and_then(|(bytes, tier)| {
            if tier == TierName::SOURCE {
                run.counters.add_reads(shared.one_read(sample, bytes.len() as u64));
            }
            make(sample, bytes)
        });
        match outcome {
            Ok(made) => return Ok((sample, made)),
            Err(error) => last = Some(shared.sample_error(sample, error)),
        }
    }
    let last = last.map_or_else(|| "the epoch was stopped".into(), |error| error.to_string());
    let message =
        format!("none of {ATTEMPTS} samples tried in place of a bad one is good either; the last: {last}");
    Err(Error::dataset(index.root(), message))
}

impl PipelineShared {
    /// What a thread that read so many bytes of a sample by itself has done.
    pub(super) fn one_read(&self, sample: u64, bytes: u64) -> ReadStats {
        let is_remote = self.index.remote(self.index.extent(sample).file).is_some();
        let (opens, requests) = if is_remote { (0, 1) } else { (1, 0) };
        ReadStats { bytes, reads: 1, opens, requests, ..ReadStats::default() }
    }
}
