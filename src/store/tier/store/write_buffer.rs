//! Samples on their way to the drive. They are copied into a few buffers of fixed size, which go to the writer when
//! full.

use super::super::catalog::SegmentRow;
use super::super::convert::{ConvertedCopy, summary_to_keep};
use super::writer::WriterCommand;
use base::crc::checksum;
use base::parts::RawHeaderSummary;
use crossbeam_channel::{Receiver, Sender};
use data::dataset::{DatasetIndex, FileVersion};
use pixels::decode::StorageFormat;
use std::collections::HashMap;

/// The bytes of a buffer, unless the budget is small or a sample is larger: large enough for few writes, and small
/// enough for many groups at once.
const BUFFER: usize = 256 << 10;

/// The samples of one group, one after another. Offsets count from the beginning of the buffer.
#[derive(Default)]
pub(super) struct WriteBuffer {
    pub group: u64,
    pub bytes: Vec<u8>,
    pub rows: Vec<SegmentRow>,
}

impl WriteBuffer {
    /// Makes an empty buffer with memory for `capacity` bytes. Touches the memory, so that no reading thread has the
    /// page faults.
    pub(super) fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.resize(capacity, 1);
        bytes.clear();
        Self { bytes, ..Self::default() }
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes.capacity() - self.bytes.len() >= length
    }

    pub(super) fn push(&mut self, sample: u64, version: FileVersion, form: StorageFormat, bytes: &[u8]) {
        debug_assert!(self.has_room(bytes.len()));
        let (offset, length, header_summary) =
            (self.bytes.len() as u32, bytes.len() as u32, RawHeaderSummary::default());
        self.rows.push(SegmentRow {
            sample,
            version,
            offset,
            length,
            crc: 0,
            form,
            last_target: form,
            header_summary,
        });
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the sample of a row after an attempt to convert it to `last_target`. `made` is the result.
    pub(super) fn push_made(
        &mut self,
        row: &SegmentRow,
        last_target: StorageFormat,
        made: &ConvertedCopy<'_>,
    ) {
        let (offset, length, form) = (self.bytes.len() as u32, made.bytes.len() as u32, made.form);
        self.rows.push(SegmentRow { offset, length, crc: 0, form, last_target, ..*row });
        self.bytes.extend_from_slice(made.bytes);
    }

    /// Keeps the samples that `wanted` accepts, and closes the gaps between them. Returns the rows of all other
    /// samples.
    pub(super) fn keep(&mut self, mut wanted: impl FnMut(&SegmentRow) -> bool) -> Vec<SegmentRow> {
        let mut end = 0;
        let mut others = Vec::new();
        self.rows.retain_mut(|row| {
            if !wanted(row) {
                others.push(*row);
                return false;
            }
            let start = row.offset as usize;
            if start != end {
                self.bytes.copy_within(start..start + row.length as usize, end);
                row.offset = end as u32;
            }
            end += row.length as usize;
            true
        });
        self.bytes.truncate(end);
        others
    }

    pub(super) fn compute_checksums(&mut self) {
        for row in &mut self.rows {
            row.crc = checksum(&self.bytes[row.offset as usize..][..row.length as usize]);
        }
    }

    pub(super) fn record_summaries(&mut self, index: &DatasetIndex) {
        for row in &mut self.rows {
            let bytes = &self.bytes[row.offset as usize..][..row.length as usize];
            row.header_summary = summary_to_keep(index, row.sample, row.form, bytes);
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

pub(super) struct WriteBuffers {
    open: HashMap<u64, WriteBuffer>,
    buffer: usize,
    spare: Vec<WriteBuffer>,
    /// The bytes of all buffers that are not spare, which are `budget` at most.
    taken: usize,
    budget: usize,
    back: Receiver<WriteBuffer>,
    commands: Sender<WriterCommand>,
}

impl WriteBuffers {
    /// Makes buffers of `budget` bytes in total. A sample that is larger than the budget gets a buffer of its own.
    /// Written buffers return through `back`.
    pub(super) fn new(budget: usize, back: Receiver<WriteBuffer>, commands: Sender<WriterCommand>) -> Self {
        let buffer = BUFFER.min(budget / 2);
        let spare = (0..budget / buffer.max(1)).map(|_| WriteBuffer::new(buffer)).collect();
        Self { open: HashMap::new(), buffer, spare, taken: 0, budget, back, commands }
    }

    /// Returns the buffer of `group` with room for `length` bytes; `None` if all buffers wait for the drive.
    pub(super) fn buffer_for(&mut self, group: u64, length: usize) -> Option<&mut WriteBuffer> {
        if self.open.get(&group).is_some_and(|buffer| !buffer.has_room(length)) {
            self.hand_over(group);
        }
        if !self.open.contains_key(&group) {
            let Some(buffer) = self.take_empty(length) else {
                // The buffers of other groups take all the memory: hand over the fullest buffer, to get memory back.
                if let Some(fullest) = self.open.values().max_by_key(|buffer| buffer.bytes.len()) {
                    self.hand_over(fullest.group);
                }
                return None;
            };
            self.open.insert(group, WriteBuffer { group, ..buffer });
        }
        self.open.get_mut(&group)
    }

    fn take_empty(&mut self, length: usize) -> Option<WriteBuffer> {
        while let Ok(buffer) = self.back.try_recv() {
            self.taken -= buffer.bytes.capacity();
            // Keep buffers of the usual size. Free the memory of a larger buffer, which was made for one large sample.
            if buffer.bytes.capacity() == self.buffer {
                self.spare.push(buffer);
            }
        }
        let capacity = length.max(self.buffer);
        if self.taken > 0 && self.taken + capacity > self.budget {
            return None;
        }
        let spare = if capacity == self.buffer { self.spare.pop() } else { None };
        let buffer = spare.unwrap_or_else(|| WriteBuffer::new(capacity));
        self.taken += buffer.bytes.capacity();
        Some(buffer)
    }

    pub(super) fn hand_over(&mut self, group: u64) {
        if let Some(buffer) = self.open.remove(&group) {
            // If the writer has ended, the samples of the buffer are lost. The caller cannot do anything about this, so
            // ignore it.
            let _ = self.commands.send(WriterCommand::Write(buffer));
        }
    }

    pub(super) fn hand_over_all(&mut self) {
        let groups: Vec<u64> = self.open.keys().copied().collect();
        groups.into_iter().for_each(|group| self.hand_over(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_moves_together() {
        let mut buffer = WriteBuffer::new(100);
        for sample in 0..6u8 {
            buffer.push(
                sample.into(),
                FileVersion(0),
                StorageFormat::AsIs,
                &vec![sample; 3 + usize::from(sample)],
            );
        }
        let others = buffer.keep(|row| [1, 2, 5].contains(&row.sample));
        assert_eq!(others.iter().map(|row| row.sample).collect::<Vec<_>>(), [0, 3, 4]);
        buffer.compute_checksums();
        assert_eq!(buffer.bytes.len(), 4 + 5 + 8);
        for (row, offset) in buffer.rows.iter().zip([0, 4, 9]) {
            let bytes = vec![row.sample as u8; row.length as usize];
            assert_eq!((row.offset, row.crc), (offset, checksum(&bytes)));
            assert_eq!(buffer.bytes[offset as usize..][..bytes.len()], bytes);
        }
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let ((commands, handed), (back, empty)) =
            (crossbeam_channel::unbounded(), crossbeam_channel::unbounded());
        let mut buffers = WriteBuffers::new(2 * BUFFER, empty, commands);
        buffers.buffer_for(1, BUFFER - 4).expect("a new buffer").push(
            0,
            FileVersion(0),
            StorageFormat::AsIs,
            &vec![0; BUFFER - 4],
        );
        buffers.buffer_for(2, 4).expect("a second").push(1, FileVersion(0), StorageFormat::AsIs, &[0; 4]);
        assert!(buffers.buffer_for(3, 1).is_none(), "a third is too many, and lets the fullest go");
        let Ok(WriterCommand::Write(mut buffer)) = handed.try_recv() else {
            panic!("the fullest was not handed over")
        };
        assert_eq!((buffer.group, buffer.bytes.len()), (1, BUFFER - 4));
        buffer.clear();
        back.send(buffer).unwrap();
        assert_eq!(buffers.buffer_for(3, 10).expect("an empty one came back").bytes.capacity(), BUFFER);
        assert!(buffers.buffer_for(2, BUFFER - 3).is_none(), "full, handed over, and no other");
        assert!(matches!(handed.try_recv(), Ok(WriterCommand::Write(WriteBuffer { group: 2, .. }))));
    }

    #[test]
    fn a_sample_larger_than_all_gets_room_alone() {
        let ((commands, handed), (back, empty)) =
            (crossbeam_channel::unbounded(), crossbeam_channel::unbounded());
        let mut buffers = WriteBuffers::new(2 * BUFFER, empty, commands);
        buffers.buffer_for(1, 3 * BUFFER).expect("nothing else waits").push(
            0,
            FileVersion(0),
            StorageFormat::AsIs,
            &vec![0; 3 * BUFFER],
        );
        assert!(buffers.buffer_for(1, 1).is_none(), "its buffer is full");
        let Ok(WriterCommand::Write(mut buffer)) = handed.try_recv() else {
            panic!("it was not handed over")
        };
        buffer.clear();
        back.send(buffer).unwrap();
        assert_eq!(buffers.buffer_for(1, 1).expect("room again").bytes.capacity(), BUFFER);
    }
}
