//! The table of a segment in memory: its samples, and which of them are still needed (live).

use super::RecordPlace;
use std::collections::HashSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordRow {
    pub id: u64,
    pub offset: u64,
    pub length: u32,
    pub crc: u32,
    /// The class, or 2^32 - 1 for none.
    pub label: u32,
    live: bool,
}

impl RecordRow {
    pub(super) fn new(id: u64, offset: u64, length: u32, crc: u32, label: u32) -> Self {
        Self { id, offset, length, crc, label, live: true }
    }

    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn place(&self, segment: u64) -> RecordPlace {
        RecordPlace { segment, offset: self.offset, length: self.length, crc: self.crc }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct RecordRows {
    rows: Vec<RecordRow>,
    live: usize,
    live_bytes: u64,
    payload: u64,
}

impl RecordRows {
    /// Adds a sample. Its offset must be the end of the sample that was added before.
    pub(super) fn push(&mut self, row: RecordRow) {
        debug_assert_eq!(row.offset, self.payload);
        self.payload += u64::from(row.length);
        self.live += 1;
        self.live_bytes += u64::from(row.length);
        self.rows.push(row);
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of all samples, needed or not.
    pub(super) fn payload(&self) -> u64 {
        self.payload
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &RecordRow> {
        self.rows.iter()
    }

    fn position(&self, place: &RecordPlace) -> Option<usize> {
        let at = self.rows.partition_point(|row| row.offset < place.offset);
        // Empty samples have the same offset as the next sample.
        let same = self.rows[at..].iter().take_while(|row| row.offset == place.offset);
        let found = same.enumerate().find(|(_, row)| row.place(place.segment) == *place);
        found.map(|(behind, _)| at + behind)
    }

    pub(super) fn find(&self, place: &RecordPlace) -> Option<&RecordRow> {
        self.position(place).map(|at| &self.rows[at])
    }

    pub(super) fn free(&mut self, place: &RecordPlace) {
        if let Some(at) = self.position(place) {
            self.free_if(at, |_| true);
        }
    }

    /// Frees the samples that `is_gone` accepts, from the last to the first.
    pub(super) fn free_all(&mut self, mut is_gone: impl FnMut(&RecordRow) -> bool) {
        (0..self.rows.len()).rev().for_each(|at| self.free_if(at, &mut is_gone));
    }

    fn free_if(&mut self, at: usize, is_gone: impl FnOnce(&RecordRow) -> bool) {
        let row = &mut self.rows[at];
        if row.live && is_gone(row) {
            row.live = false;
            self.live -= 1;
            self.live_bytes -= u64::from(row.length);
        }
    }

    /// The number of samples with one of these ids, needed or not.
    pub(super) fn count_of(&self, ids: &HashSet<u64>) -> u64 {
        self.rows.iter().filter(|row| ids.contains(&row.id)).count() as u64
    }
}
