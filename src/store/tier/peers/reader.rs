//! Reads samples from the nodes that keep them.

use super::super::convert::most_bytes;
use super::super::reader::Unconfirmed;
use super::PeersShared;
use crate::io::{Completion, ListeningReader, ReadRequest, ReadStats, Reader, Waker};
use crate::peers::{HttpTransfer, Miss, PeerAnswer, PeerRead};
use base::error::{Error, Result};
use base::names::NamedValue;
use std::sync::Arc;

/// Reads samples that other nodes keep. In the extents of its requests, `file` is the index of the node, and `offset`
/// is the sample id.
pub(super) struct PeersReader {
    shared: Arc<PeersShared>,
    transfer: HttpTransfer,
    answers: Vec<PeerAnswer>,
    stats: ReadStats,
}

impl PeersReader {
    pub(super) fn new(shared: Arc<PeersShared>, transfer: HttpTransfer) -> Self {
        Self { shared, transfer, answers: Vec::new(), stats: ReadStats::default() }
    }

    fn pass_on(&mut self, out: &mut Vec<Completion>) {
        let mut answers = std::mem::take(&mut self.answers);
        for PeerAnswer { token, peer, result, slot } in answers.drain(..) {
            out.push(match result {
                Ok(copy) => {
                    self.stats.bytes += copy.bytes.len() as u64;
                    let version = Some(copy.version);
                    Completion { version, ..Completion::arrived(token, copy.bytes) }
                }
                Err(miss) => Completion::failed(token, self.missed(miss, peer), slot),
            });
        }
        self.answers = answers;
    }

    fn missed(&self, miss: Miss, peer: usize) -> Error {
        let node = &self.shared.network.nodes[peer].name;
        let failed = |why| Error::io("read", format!("a sample of node {node}"), why);
        match miss {
            Miss::Absent | Miss::Stale => failed(std::io::ErrorKind::NotFound.into()),
            Miss::Unconfirmed => failed(std::io::Error::other(Unconfirmed)),
            _ => Error::Unavailable(format!("a sample of node {node} could not be read: {}", miss.name())),
        }
    }
}

impl Reader for PeersReader {
    fn room(&self) -> usize {
        self.transfer.room()
    }

    fn in_flight(&self) -> usize {
        self.transfer.in_flight()
    }

    fn submit(&mut self, ReadRequest { token, extent, slot, version, .. }: ReadRequest) {
        let (peer, sample, length) = (extent.file.0 as usize, extent.offset, extent.length);
        // A node sends a copy in the storage format that the node keeps, which may be larger than the sample.
        let most = most_bytes(length).min(u32::try_from(slot.capacity()).unwrap_or(u32::MAX));
        self.stats.reads += 1;
        self.transfer.post(PeerRead { token, peer, sample, length, most, version, slot });
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.transfer.wait_until(None, &mut self.answers)?;
        self.pass_on(out);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.transfer.waker()
    }

    fn stats(&self) -> ReadStats {
        self.stats
    }

    fn describe(&self) -> String {
        self.transfer.describe()
    }
}

impl ListeningReader for PeersReader {
    fn listen(&mut self) -> bool {
        self.transfer.listen()
    }

    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.transfer.try_answers(&mut self.answers);
        self.pass_on(out);
        Ok(())
    }
}
