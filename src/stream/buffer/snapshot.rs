//! The format of snapshots: the table of the reservoir, and the positions of the sources.
//!
//! ```text
//! header             bytes u32 · JSON
//! table              of each kept sample: id u64 · key u64 · class u32 · bytes u32 · uses u32
//! ```

use super::super::reservoir::{KeptSample, ReservoirPart};
use super::super::source::SourcePosition;
use super::super::state::SnapshotRef;
use base::crc::checksum;
use base::error::Error;
use serde::{Deserialize, Serialize};
use std::path::Path;

const ROW: usize = 28;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct BufferSnapshot {
    pub header: SnapshotHeader,
    pub kept: Vec<KeptSample>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotHeader {
    /// For each part of the reservoir, its part number and its threshold: the smallest (key, id) that was ever refused
    /// or evicted because the part was full.
    pub parts: Vec<ReservoirPart>,
    pub offered: u64,
    /// The failed samples: for each step, the ids of the samples that failed in its batch.
    pub failed: Vec<(u64, Vec<u64>)>,
    pub positions: Vec<SourcePosition>,
}

impl BufferSnapshot {
    /// Parses the snapshot of a state from `bytes` that were found in `directory`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the bytes do not belong to the state.
    pub(super) fn of(saved: &SnapshotRef, bytes: &[u8], directory: &Path) -> Result<Self, Error> {
        if (bytes.len() as u64, checksum(bytes)) != (saved.bytes, saved.crc) {
            return Err(saved.is_other(directory, "has different bytes"));
        }
        Self::decode(bytes).map_err(|what| saved.is_other(directory, &format!("is damaged ({what})")))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let header = serde_json::to_vec(&self.header).expect("numbers and texts are JSON");
        let mut bytes = Vec::with_capacity(4 + header.len() + self.kept.len() * ROW);
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        for KeptSample { id, order, class, bytes: length, uses } in &self.kept {
            bytes.extend([id, order].map(|value| value.to_le_bytes()).as_flattened());
            bytes.extend([class, length, uses].map(|value| value.to_le_bytes()).as_flattened());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "it is cut short".to_owned();
        let (length, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (header, table) = rest.split_at_checked(length).ok_or_else(cut)?;
        let header = serde_json::from_slice(header).map_err(|error| error.to_string())?;
        let (rows, []) = table.as_chunks::<ROW>() else { return Err(cut()) };
        let kept = rows.iter().map(|row| {
            let u64_at = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"));
            let u32_at = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"));
            KeptSample {
                id: u64_at(0),
                order: u64_at(8),
                class: u32_at(16),
                bytes: u32_at(20),
                uses: u32_at(24),
            }
        });
        Ok(Self { header, kept: kept.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_gives_back_what_it_was_made_of() {
        let divisions = vec![vec![Some("0-1".into()), None]];
        let position = SourcePosition { after: Some("a".into()), settled: vec!["b".into()], divisions };
        let header = SnapshotHeader {
            parts: vec![(0, None), (7, Some((u64::MAX - 1, 3)))],
            offered: 1 << 40,
            failed: vec![(3, vec![u64::MAX >> 1])],
            positions: vec![position, SourcePosition::default()],
        };
        let kept = |id| KeptSample { id, order: id << 20, class: u32::MAX, bytes: 110_000, uses: 2 };
        for count in [0, 1, 5] {
            let snapshot = BufferSnapshot { header: header.clone(), kept: (0..count).map(kept).collect() };
            let bytes = snapshot.encode();
            assert_eq!(BufferSnapshot::decode(&bytes).unwrap(), snapshot);
            (0..bytes.len()).for_each(|cut| drop(BufferSnapshot::decode(&bytes[..cut])));
        }
    }
}
