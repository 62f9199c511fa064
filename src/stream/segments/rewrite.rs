//! Segments that are written anew: without samples that are withdrawn, or without what nobody asks for any more.

use super::directory::SEGMENT;
use super::draft::SegmentDraft;
use super::format::file_bytes;
use super::rows::{RecordRow, RecordRows};
use super::{RecordPlace, SegmentStore};
use base::error::{Error, Result};
use std::collections::HashSet;
use store::segments::footer::SegmentError;
use store::segments::{PAGE, pages};

/// A sample that is somewhere else now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedRecord {
    /// The number of the sample.
    pub id: u64,
    /// Where it was.
    pub from: RecordPlace,
    /// Where it is; `None` where it was found damaged and is gone.
    pub to: Option<RecordPlace>,
}

impl SegmentStore {
    /// Removes all samples with these ids, so that no file of the directory has their bytes when it returns. Every
    /// segment that has any is written anew without them and takes the old one's place, under the same number. What was
    /// only freed goes, too. Adds to `moved`, also when it fails, what lies elsewhere then, and returns how many
    /// samples were removed.
    ///
    /// A reader that has an old segment open can read it until it closes it. A process that is killed meanwhile leaves
    /// every segment old or new, as a whole, so that withdrawing again does the rest.
    ///
    /// # Errors
    /// [`Error::Io`] where the drive fails, also where a segment cannot be read that may have such samples.
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
            let anything = self.write_anew(number, &[number], |row| !ids.contains(&row.id), moved)?;
            if !anything {
                self.release(number)?;
            }
            withdrawn += count;
        }
        // Also where nothing was found: an earlier try may have failed here.
        self.directory.sync()?;
        Ok(withdrawn)
    }

    /// Tries once more to read the segments that could not be read when the store was opened.
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
                    let what = "withdraw samples, which may be in a segment that cannot be read: remove";
                    return Err(Error::io(what, path, error));
                }
            }
            self.unreadable.remove(&number);
        }
        Ok(())
    }

    /// Writes segments anew as one, those of which less than `fraction` of the bytes is still asked for, and removes
    /// them: as many as fit into a segment, those with the least left first. Adds to `moved`, also when it fails, what
    /// lies elsewhere then, and returns the bytes that became free; 0 means that there was nothing to gain.
    ///
    /// No read from such a segment may be waiting meanwhile, for its file is gone.
    ///
    /// # Errors
    /// [`Error::Io`] where the drive fails; what was there is still there.
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
            // The first fits always: the room that is kept free is that of the largest segment.
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
        self.write_anew(number, &sources, |_| true, moved)?;
        // If it fails from here on, the next call goes on.
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

    /// Writes what is asked for of some segments, and `stays` says so of, as segment `number`, in place of the one that
    /// has this number. It takes of the pages that are kept free. Returns whether anything is left to write.
    fn write_anew(
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
                self.enter(number, stamp, draft.rows);
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

    /// Copies what is asked for of some segments into a draft. A sample that is found damaged is left out, with a
    /// notice.
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
                    let message = || format!("{error}; it is left out, and others may be");
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
