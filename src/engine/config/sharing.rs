//! The settings of `shared=`: which loaders can share batches with other processes, and the policy for loaders that are
//! too slow.

use super::{CpuDecode, GpuDecoder, LoaderOptions};
use base::error::{Error, Result};
use base::names::named;

/// Policy for a loader that is too slow for the loaders with which it shares batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingPolicy {
    /// The other loaders continue without the slow loader.
    Leave,
    /// The other loaders wait for the slow loader.
    Wait,
}

named!(SharingPolicy: "leave" => Leave, "wait" => Wait);

impl LoaderOptions {
    /// Returns the decoder for images on a GPU. Shared images are decoded before they reach the GPU, so nvJPEG is not
    /// needed.
    pub(super) fn gpu_decoder(&self) -> GpuDecoder {
        if self.shared.is_some() { GpuDecoder::Own } else { self.decoder }
    }

    pub(super) fn check_shared(&self) -> Result<()> {
        if self.shared.is_none() {
            return Ok(());
        }
        let refused = |message: &str| Err(Error::config("shared", message));
        if self.peers.on {
            return refused(
                "cannot be combined with peers, because the process that makes the batches is not a rank of the job: \
                 remove one of the two",
            );
        }
        if !self.decoded {
            return refused(
                "cannot be combined with decoded=False: the page cache already shares undecoded files",
            );
        }
        if self.cpu_decode == CpuDecode::Never {
            return refused(
                "decodes on the CPU for all consumers, but cpu_decode is never: remove one of the two",
            );
        }
        Ok(())
    }
}
