//! Converts a segment: reads it whole, and writes its samples in another storage format as a new segment. The old one
//! is removed when no process reads from it any more.

use super::super::catalog::{SegmentIndex, SegmentRow};
use super::super::convert::{Conversion, ConversionResult, MAX_HEAD, max_converted_bytes};
use super::super::copies::{ConvertibleTier, CopyFault};
use super::Store;
use super::open_segment::OpenSegment;
use super::segment::footer_bytes;
use super::unit::UnitLock;
use super::write_buffer::WriteBuffer;
use crate::segments::footer::SegmentError;
use crate::segments::pages;
use base::counting::count;
use base::crc::checksum;
use base::error::{Error, Result};
use data::dataset::Stamp;
use pixels::decode::{SIGNATURE, StorageFormat, is_convertible};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Locks on segments and locks on shards share one range of numbers. The locks on segments begin at this number, which
/// is above the numbers of all shards.
const SEGMENT_LOCKS: u64 = 1 << 40;

/// Space for a conversion is reserved only if the quota is at least this many times as large, so that the reservation
/// does not take most of a tiny cache.
const CONVERSIONS_OF_ROOM: u64 = 4;

const WRITE_BYTES: usize = 1 << 20;

enum Unconverted {
    NoRoom,
    /// The thread must stop, or the segment was removed or is damaged, which has been recorded.
    Stopped,
    Failed(Error),
}

impl From<Error> for Unconverted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl ConvertibleTier for Store {
    /// Converts one segment that has samples whose conversion was not tried. A lock on the segment keeps other
    /// processes from doing the same. At every instant the quota holds for both segments together.
    fn convert(&self, conversion: &mut Conversion<'_>) -> ConversionResult {
        let shared = &self.shared;
        if !shared.directory.is_ours() || !shared.directory.writable {
            return ConversionResult::Nothing;
        }
        // The reserved space suffices for one conversion. So if conversions may evict segments, one process converts at
        // a time.
        let conversion_lock = UnitLock::take(shared, SEGMENT_LOCKS - 1);
        if conversion.may_evict && conversion_lock.is_none() {
            return ConversionResult::Nothing;
        }
        for (segment_index, number) in self.unconverted(conversion.form.into()) {
            let Some(_lock) = UnitLock::take(shared, SEGMENT_LOCKS + number) else { continue };
            // Another process may have converted the segment before this process got the lock.
            self.refresh();
            let found = shared.catalog().segment(segment_index);
            if !found.is_some_and(|segment| segment.waits_for(conversion.form.into())) {
                continue;
            }
            match self.convert_segment(segment_index, number, conversion) {
                Ok(()) => return ConversionResult::Some,
                // Some old segments, whose samples are all converted, are not removed yet. When they are, there will be
                // space: try again then.
                Err(Unconverted::NoRoom) if shared.catalog().superseded().next().is_some() => {
                    return ConversionResult::Nothing;
                }
                Err(Unconverted::NoRoom) if conversion.may_evict => {
                    return if self.evict_another(segment_index, conversion.form.into()) {
                        ConversionResult::Some
                    } else {
                        ConversionResult::NotNow
                    };
                }
                Err(Unconverted::NoRoom) => return ConversionResult::NotNow,
                Err(Unconverted::Stopped) => return ConversionResult::Nothing,
                Err(Unconverted::Failed(error)) => {
                    shared.failed(error.to_string());
                    return ConversionResult::NotNow;
                }
            }
        }
        ConversionResult::Nothing
    }

    /// If `wanted`, reserves space for the conversion of a segment of usual size; otherwise releases that space.
    /// Returns whether the quota is large enough for the reservation: in a tiny cache little space would remain.
    fn reserve_for_conversion(&self, wanted: bool) -> bool {
        let directory = &self.shared.directory;
        let index = &self.shared.index;
        let rows = self.segment_bytes / index.mean_bytes().max(1) + 1;
        let of_a_row = u64::from(MAX_HEAD) + footer_bytes(1);
        let most = pages(self.segment_bytes / 4 * 5 + rows * of_a_row);
        let suffices = directory.quota >= CONVERSIONS_OF_ROOM * most;
        directory.set_conversion_reserve(if wanted && suffices { most } else { 0 });
        suffices
    }
}

impl Store {
    /// Returns the segments with samples whose conversion to this storage format was not tried, the oldest first.
    fn unconverted(&self, form: StorageFormat) -> Vec<(SegmentIndex, u64)> {
        let catalog = self.shared.catalog();
        let waiting = catalog.live().filter(|(_, segment)| segment.waits_for(form));
        let mut waiting: Vec<_> =
            waiting.map(|(segment_index, segment)| (segment_index, segment.number)).collect();
        waiting.sort_unstable_by_key(|&(_, number)| number);
        waiting
    }

    /// Removes the newest other segment with samples whose conversion to this storage format was not tried. Returns
    /// whether there was one.
    fn evict_another(&self, segment_index: SegmentIndex, form: StorageFormat) -> bool {
        let waiting = self.unconverted(form);
        let other = waiting.into_iter().rev().find(|&(other, _)| other != segment_index);
        other.is_some_and(|(other, _)| {
            self.shared.remove_stale(other);
            true
        })
    }

    fn convert_segment(
        &self,
        segment_index: SegmentIndex,
        number: u64,
        conversion: &mut Conversion<'_>,
    ) -> Result<(), Unconverted> {
        let shared = &self.shared;
        let path = shared.directory.segment_path(number);
        let footer = match shared.read_segment(number) {
            Ok((_, footer)) => footer,
            Err(SegmentError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Unconverted::Stopped);
            }
            Err(SegmentError::Io(error)) => return Err(Error::io("read", path, error).into()),
            Err(SegmentError::Damaged(_)) => {
                shared.remove_stale(segment_index);
                return Err(Unconverted::Stopped);
            }
        };
        let is_here = |row: &SegmentRow| {
            let place = shared.catalog().locate(row.sample).map(|(place, _)| (place.segment, place.offset));
            place == Some((segment_index, row.offset))
        };
        let rows: Vec<SegmentRow> = footer.rows.into_iter().filter(is_here).collect();
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Unconverted::Stopped),
            opened => opened.map_err(|error| Error::io("open", &path, error))?,
        };
        let record_unconvertible = || {
            shared.catalog_mut().set_last_target(segment_index, conversion.form.into());
            count(&shared.counters.unconvertible_samples, rows.len() as u64);
            Ok(())
        };
        let is_convertible = |row| {
            (conversion.rest)();
            (conversion.is_over)() || begins_convertible(&file, row)
        };
        if !rows.iter().any(is_convertible) {
            return record_unconvertible();
        }
        let most: u64 = rows.iter().map(|row| u64::from(max_converted_bytes(row.length))).sum();
        let wanted = pages(most + footer_bytes(rows.len()));
        let Ok(mut open) = shared.directory.begin_conversion(footer.group, wanted, conversion.may_evict)?
        else {
            return Err(Unconverted::NoRoom);
        };
        let failed = |error| Error::io("write a cache segment in", &shared.directory.own, error);
        let (mut bytes, mut buffer) =
            (Vec::new(), WriteBuffer { group: footer.group, ..WriteBuffer::default() });
        let write = |open: &mut OpenSegment, buffer: &mut WriteBuffer| {
            buffer.compute_checksums();
            buffer.record_summaries(&shared.index);
            open.file.write_all_at(&buffer.bytes, open.payload).map_err(failed)?;
            open.append(buffer);
            buffer.clear();
            Ok::<_, Error>(())
        };
        let mut converted = 0;
        for row in &rows {
            if (conversion.is_over)() {
                return Err(Unconverted::Stopped);
            }
            bytes.resize(row.length as usize, 0);
            let read = file.read_exact_at(&mut bytes, row.offset.into());
            if read.is_err() || checksum(&bytes) != row.crc {
                let why = if read.is_err() { CopyFault::Unreadable } else { CopyFault::Checksum };
                // If training has found the damage first, the sample may be in another segment by now.
                let here = self.locate(row.sample).filter(|at| at.extent.file.0 == segment_index);
                if let Some(location) = here {
                    self.damaged(row.sample, location, why);
                }
                return Err(Unconverted::Stopped);
            }
            let made = conversion.maker.make(row.form, &bytes, conversion.form);
            buffer.push_made(row, conversion.form.into(), &made);
            converted += u64::from(made.form != row.form);
            if converted > 0 && buffer.bytes.len() >= WRITE_BYTES {
                write(&mut open, &mut buffer)?;
            }
            (conversion.rest)();
        }
        if converted == 0 {
            return record_unconvertible();
        }
        write(&mut open, &mut buffer)?;
        let footer = open.footer.encode(shared.directory.key, open.reservation.number, open.payload);
        open.file.write_all_at(&footer, open.payload).map_err(failed)?;
        let stamp = Stamp::of(&open.file.metadata().map_err(failed)?);
        if let Some(new) = shared.publish(&mut open, &stamp)? {
            shared.replace(segment_index, new, &open.footer.rows);
        }
        count(&shared.counters.converted_samples, converted);
        count(&shared.counters.unconvertible_samples, rows.len() as u64 - converted);
        Ok(())
    }
}

/// Returns whether a copy begins like one that can be converted. Returns `true` if the copy cannot be read, because the
/// read of all samples reports the error.
fn begins_convertible(file: &File, row: &SegmentRow) -> bool {
    let mut start = [0; SIGNATURE];
    let start = &mut start[..SIGNATURE.min(row.length as usize)];
    file.read_exact_at(start, row.offset.into()).is_err() || is_convertible(start)
}
