//! What can be shared with other processes, and what happens to those that fall behind.

use super::{CpuDecode, GpuDecoder, LoaderOptions};
use base::error::{Error, Result};
use base::names::named;

/// What happens to a loader that falls behind the others with which it shares batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingPolicy {
    /// The others go on without it.
    Leave,
    /// The others wait for it.
    Wait,
}

named!(SharingPolicy: "leave" => Leave, "wait" => Wait);

impl LoaderOptions {
    /// Who decodes on a GPU. Images that are shared come there decoded.
    pub(super) fn decoder_there(&self) -> GpuDecoder {
        if self.shared.is_some() { GpuDecoder::Own } else { self.decoder }
    }

    /// Checks whether batches can be shared, where that is asked for.
    ///
    /// # Errors
    /// [`Error::Config`] for `shared`.
    pub(super) fn check_shared(&self) -> Result<()> {
        if self.shared.is_none() {
            return Ok(());
        }
        let refused = |message: &str| Err(Error::config("shared", message));
        if self.peers.on {
            return refused(
                "cannot be given with peers: whoever makes the batches is no rank of the job; leave one out",
            );
        }
        if !self.decoded {
            return refused(
                "cannot be given with decoded=False: files that are not decoded are shared by the page cache",
            );
        }
        if self.cpu_decode == CpuDecode::Never {
            return refused(
                "has the CPU decode, for all who share, and cpu_decode is never: leave one of them out",
            );
        }
        Ok(())
    }
}
