//! Rewriting segments: without withdrawn samples, or without samples that are no longer needed.

use super::directory::SEGMENT;
use super::draft::SegmentDraft;
use super::format::file_bytes;
use super::rows::{RecordRow, RecordRows};
use super::{RecordPlace, SegmentStore};
use base::error::{Error, Result};
use std::collections::HashSet;
use store::segments::footer::SegmentError;
use store::segments::{PAGE, pages};

/// A sample that was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedRecord {
    /// The id of the sample.
    pub id: u64,
    /// The old place of the sample.
    pub from: RecordPlace,
    /// The new place; `None` if the sample was damaged and is lost.
    pub to: Option<RecordPlace>,
}

impl SegmentStore {
    /// Removes all samples with these ids, so that no file of the directory contains their bytes afterwards. Each
    /// segment with one of these samples is rewritten under the same number, without these samples and without freed
    /// samples. Adds the moved samples to `moved`, even if the call fails, and returns how many samples were withdrawn.
    ///
    /// A reader that has an old segment open can read the old bytes until it closes the file. If the process is killed,
    /// each segment is either old or new as a whole, so that repeating the call completes the withdrawal.
    ///
    /// # Errors
    /// [`Error::Io`] if the drive fails, or if a segment that may contain such samples cannot be read.
    pub fn withdraw(&mut self, ids: &HashSet<u64>, moved: &mut Vec<MovedRecord>) -> Result<u64> {
        self.read_unreadable()?;
        if self.draft.as_ref().is_some_and(|draft| draft.rows.count_of(ids) > 0) {
            self.publish()?;
        }
        let found: Vec<(u64, u64)> = self
            .segments
            .iter()
            .map(|(&number, rows)| (number, rows.count_of(ids)))
            .filter(|&(_, count)| count > 0)
            .collect();
        let mut withdrawn = 0;
        for (number, count) in found {
            let anything = self.rewrite_as(number, &[number], |row| !ids.contains(&row.id), moved)?;
            if !anything {
                self.release(number)?;
            }
            withdrawn += count;
        }
        // Sync even if no segment was rewritten: an earlier call may have rewritten segments and then failed to sync
        // them.
        self.directory.sync()?;
        Ok(withdrawn)
    }

    /// Tries again to read the segments that could not be read when the store was opened.
    fn read_unreadable(&mut self) -> Result<()> {
        while let Some((&number, &taken)) = self.unreadable.first_key_value() {
            let path = self.segment_path(number);
            let size = std::fs::metadata(&path).map(|found| found.len());
            match size.map_err(SegmentError::Io).and_then(|size| self.load(number, size)) {
                Ok(()) => {}
                Err(SegmentError::Damaged(_)) => {
                    self.directory.remove(number, SEGMENT)?;
                    self.directory.release(taken);
                }
                Err(SegmentError::Io(error)) => {
                    let what = "withdraw samples: a segment that may contain them cannot be read: remove";
                    return Err(Error::io(what, path, error));
                }
            }
            self.unreadable.remove(&number);
        }
        Ok(())
    }

    /// Rewrites sparse segments into one segment, and removes them. A segment is sparse if less than `fraction` of its
    /// bytes is needed. The segments with the fewest needed bytes are taken first, until the new segment is full. Adds
    /// the moved samples to `moved`, even if the call fails, and returns the number of freed bytes; 0 means that
    /// nothing can be freed.
    ///
    /// No read from these segments may be in flight, because their files are removed.
    ///
    /// # Errors
    /// [`Error::Io`] if the drive fails; all samples are still stored then.
    pub fn compact(&mut self, fraction: f64, moved: &mut Vec<MovedRecord>) -> Result<u64> {
        let sparse = |rows: &RecordRows| (rows.live_bytes() as f64) < fraction * rows.payload() as f64;
        let mut candidates: Vec<(u64, u64, usize)> = self
            .segments
            .iter()
            .filter(|(_, rows)| sparse(rows))
            .map(|(&number, rows)| (rows.live_bytes(), number, rows.live()))
            .collect();
        candidates.sort_unstable();
        let (mut payload, mut samples, mut sources) = (0, 0, Vec::new());
        for (bytes, number, live) in candidates {
            (payload, samples) = (payload + bytes, samples + live);
            // The first segment always fits: the space that is kept free is as large as the largest segment.
            if !sources.is_empty() && file_bytes(payload, samples) > self.segment_bytes {
                break;
            }
            sources.push(number);
        }
        if sources.is_empty() {
            return Ok(0);
        }
        let before = self.directory.used();
        let number = self.directory.next_number()?;
        self.rewrite_as(number, &sources, |_| true, moved)?;
        // Free the samples first: if a segment cannot be removed below, the next call removes it.
        for source in &sources {
            if let Some(rows) = self.segments.get_mut(source) {
                rows.free_all(|_| true);
            }
        }
        self.directory.sync()?;
        for source in sources {
            self.remove_if_unwanted(source)?;
        }
        Ok(before.saturating_sub(self.directory.used()) * PAGE)
    }

    /// Writes segment `number` with the needed samples of the segments `sources`, if `stays` accepts them. Replaces the
    /// former segment with this number. Uses the pages that are kept free. Returns whether anything was written.
    fn rewrite_as(
        &mut self,
        number: u64,
        sources: &[u64],
        stays: impl Fn(&RecordRow) -> bool,
        moved: &mut Vec<MovedRecord>,
    ) -> Result<bool> {
        let (mut draft, before) =
            (SegmentDraft::new(&self.directory, number, self.segment_bytes)?, moved.len());
        let copied = self.copy(&mut draft, sources, stays, moved);
        let anything = draft.rows.len() > 0;
        let published =
            copied.and_then(|()| anything.then(|| draft.publish(&mut self.directory, true)).transpose());
        match published {
            Ok(Some(stamp)) => {
                if let Some(old) = self.segments.get(&number) {
                    self.directory.release(pages(file_bytes(old.payload(), old.len())));
                }
                self.add_published(number, stamp, draft.rows);
            }
            Ok(None) => draft.discard(&mut self.directory),
            Err(error) => {
                moved.truncate(before);
                draft.discard(&mut self.directory);
                return Err(error);
            }
        }
        Ok(anything)
    }

    fn copy(
        &mut self,
        draft: &mut SegmentDraft,
        sources: &[u64],
        stays: impl Fn(&RecordRow) -> bool,
        moved: &mut Vec<MovedRecord>,
    ) -> Result<()> {
        for &source in sources {
            let stay = self.segments[&source].iter().filter(|row| row.is_live() && stays(row));
            for row in stay.copied().collect::<Vec<_>>() {
                let (id, from) = (row.id, row.place(source));
                let bytes = self.read_row(source, &row)?;
                if let Err(error) = self.check(source, &row, &bytes) {
                    let message = || format!("{error}; it is skipped, and further ones are not reported");
                    self.notices.warn_once("damaged samples of a stream", message);
                    moved.push(MovedRecord { id, from, to: None });
                    continue;
                }
                let more = draft.pages_with(bytes.len()) - draft.pages();
                self.directory.count(more);
                let pushed = draft.push(&mut self.directory, (id, row.label, row.crc), &bytes);
                let to = pushed.inspect_err(|_| self.directory.release(more))?;
                moved.push(MovedRecord { id, from, to: Some(to) });
            }
        }
        Ok(())
    }
}
