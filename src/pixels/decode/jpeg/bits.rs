//! Entropy-coded bytes without byte stuffing, and a bit reader over them that never has to look for 0xFF.

use base::simd::Level;
use std::ops::Range;

use super::super::planes::ensure_length;

/// The number of zero bytes after the data of the last restart interval. A bit reader checks for the end of the data
/// only after each MCU. Before the check it can consume this many bytes beyond the end: ten blocks with 64 symbols of
/// at most 31 bits each, and the eight bytes of a refill.
pub(super) const PADDING: usize = 10 * 64 * 4 + 64;

/// If the list of restart intervals has space for more entries than this, the excess is freed before the next scan is
/// read.
const MANY_SEGMENTS: usize = 1 << 16;

/// The entropy-coded bytes of one scan, without byte stuffing, and the ranges of its restart intervals in them.
#[derive(Debug, Default)]
pub(super) struct Entropy {
    data: Vec<u8>,
    segments: Vec<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataEnd {
    /// A marker, whose 0xFF is at this offset of the file.
    Marker(usize),
    /// A restart marker out of sequence: the marker's code, and its offset in the file.
    StrayRestart(u8, usize),
    /// The end of a truncated file.
    Truncation,
}

impl Entropy {
    /// Removes the byte stuffing from the scan that begins at `bytes[start]`, up to the marker that ends the scan, with
    /// the instructions of `level`.
    pub(super) fn unstuff(&mut self, bytes: &[u8], start: usize, level: Level) -> DataEnd {
        self.unstuff_part(bytes, start..bytes.len(), 0, level)
    }

    /// Removes the byte stuffing from only the range `part` of a scan. The range begins in restart interval `first` of
    /// the scan, which becomes index 0 for [`Entropy::reader`].
    pub(super) fn unstuff_part(
        &mut self,
        bytes: &[u8],
        part: Range<usize>,
        first: u64,
        level: Level,
    ) -> DataEnd {
        let start = part.start;
        let source = bytes.get(part).unwrap_or_default();
        ensure_length(&mut self.data, source.len() + CHUNK + PADDING);
        self.segments.clear();
        // Free the excess: a damaged file that consists of restart markers creates many segments.
        self.segments.shrink_to(MANY_SEGMENTS);
        let (mut from, mut to, mut segment) = (0, 0, 0);
        let end = loop {
            #[cfg(target_arch = "x86_64")]
            if level >= Level::Avx512 {
                // SAFETY: the level guarantees that the processor has these instructions.
                (from, to) = unsafe { squeeze(source, from, &mut self.data, to) };
            }
            let rest = &source[from..];
            if let Some(chunk) = rest.first_chunk::<CHUNK>() {
                self.data[to..to + CHUNK].copy_from_slice(chunk);
                let plain = (first_ff(chunk) as usize).min(CHUNK);
                from += plain;
                to += plain;
                if plain == CHUNK {
                    continue;
                }
            } else {
                let plain = rest.iter().position(|&byte| byte == 0xFF).unwrap_or(rest.len());
                self.data[to..to + plain].copy_from_slice(&rest[..plain]);
                from += plain;
                to += plain;
                if plain == rest.len() {
                    break DataEnd::Truncation;
                }
            }
            match source.get(from + 1) {
                Some(0) => {
                    self.data[to] = 0xFF;
                    to += 1;
                    from += 2;
                }
                // Fill bytes: any number of 0xFF can precede a marker.
                Some(0xFF) => from += 1,
                Some(&marker @ 0xD0..=0xD7) => {
                    if marker != 0xD0 + ((first + self.segments.len() as u64) % 8) as u8 {
                        break DataEnd::StrayRestart(marker, start + from);
                    }
                    self.segments.push(segment..to);
                    segment = to;
                    from += 2;
                }
                Some(_) => break DataEnd::Marker(start + from),
                None => break DataEnd::Truncation,
            }
        };
        self.segments.push(segment..to);
        // Readers load beyond the end; the bytes there must not depend on earlier images.
        self.data[to..to + PADDING].fill(0);
        end
    }

    pub(super) fn held(&self) -> usize {
        self.data.capacity() + self.segments.capacity() * size_of::<Range<usize>>()
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn reader(&self, index: usize) -> Option<BitReader<'_>> {
        let segment = self.segments.get(index)?;
        assert!(self.data.len() >= PADDING, "unstuffing pads");
        Some(BitReader { data: &self.data, position: segment.start, end: segment.end, window: 0, count: 0 })
    }
}

/// Returns the offset of the marker that ends the scan which begins at `bytes[start]`: the position of the marker's
/// 0xFF. Returns `None` if the file ends first.
pub(super) fn scan_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let rest = bytes.get(at..)?;
        if let Some(chunk) = rest.first_chunk::<CHUNK>() {
            let plain = first_ff(chunk) as usize;
            if plain >= CHUNK {
                at += CHUNK;
                continue;
            }
            at += plain;
        } else {
            at += rest.iter().position(|&byte| byte == 0xFF)?;
        }
        match bytes.get(at + 1)? {
            0 | 0xD0..=0xD7 => at += 2,
            0xFF => at += 1,
            _ => return Some(at),
        }
    }
}

/// Copies the bytes of `source` from offset `from` to offset `to` of `data` without stuffed zeros, 64 bytes at a time.
/// Stops before a group of 64 bytes that has a marker, or near the end of `source` or `data`. Returns the new offsets
/// in `source` and `data`. There is no branch per 0xFF, because such branches are unpredictable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn squeeze(source: &[u8], mut from: usize, data: &mut [u8], mut to: usize) -> (usize, usize) {
    use std::arch::x86_64::{
        _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi8, _mm512_set1_epi8,
        _mm512_storeu_si512, _mm512_test_epi8_mask,
    };
    let ff = _mm512_set1_epi8(-1);
    // Whether the byte at `from` is a stuffed zero: its 0xFF was the last of the previous 64 bytes.
    let mut stuffed = 0;
    while let (Some(these), Some(space)) = (source.get(from..from + 65), data.get_mut(to..to + 64)) {
        // SAFETY: `these` has 65 bytes, so both loads of 64 bytes are inside it.
        let (these, next) = unsafe {
            (_mm512_loadu_si512(these.as_ptr().cast()), _mm512_loadu_si512(these.as_ptr().add(1).cast()))
        };
        let ffs = _mm512_cmpeq_epi8_mask(these, ff);
        if ffs & _mm512_test_epi8_mask(next, next) != 0 {
            break;
        }
        let kept = !(ffs << 1 | stuffed);
        // SAFETY: `space` has 64 bytes.
        unsafe { _mm512_storeu_si512(space.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(kept, these)) };
        to += kept.count_ones() as usize;
        from += 64;
        stuffed = ffs >> 63;
    }
    (from + stuffed as usize, to)
}

const CHUNK: usize = 32;

/// The index of the first 0xFF; at least [`CHUNK`] if there is none.
#[inline(always)]
fn first_ff(chunk: &[u8; CHUNK]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86-64, and both loads are inside the 32 bytes of `chunk`.
        unsafe {
            let ff = _mm_set1_epi8(-1);
            let low = _mm_cmpeq_epi8(_mm_loadu_si128(chunk.as_ptr().cast()), ff);
            let high = _mm_cmpeq_epi8(_mm_loadu_si128(chunk.as_ptr().add(16).cast()), ff);
            let mask = _mm_movemask_epi8(low) as u32 | (_mm_movemask_epi8(high) as u32) << 16;
            mask.trailing_zeros()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        chunk.iter().position(|&byte| byte == 0xFF).unwrap_or(CHUNK) as u32
    }
}

/// Reads bits, the most significant first.
///
/// The low six bits of `count` are the number of valid bits at the top of `window`. The bits of `window` below the
/// valid bits are zero, or already equal to the bits that the next refill adds. The higher bits of `count` have no
/// meaning, so that table entries can be subtracted from `count` without a mask.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a> {
    data: &'a [u8],
    position: usize,
    end: usize,
    pub(super) window: u64,
    count: u64,
}

impl BitReader<'_> {
    /// Makes at least 56 bits available, with one load and without a branch (variant 4 of Giesen, "Reading bits in far
    /// too many ways", 2018).
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        let last = self.data.len() - 8;
        if self.position > last {
            // Only damaged data leads to a position this far after the end. From `last`, loads are in bounds, and
            // `overrun` still detects the end.
            self.position = last;
        }
        // SAFETY: eight bytes follow every position up to `last`.
        let word = unsafe { self.data.as_ptr().add(self.position).cast::<[u8; 8]>().read_unaligned() };
        self.window |= u64::from_be_bytes(word) >> (self.count & 63);
        self.position += 7 - (self.count >> 3 & 7) as usize;
        self.count |= 56;
    }

    /// Consumes the number of bits that the low six bits of `entry` give. That many bits must be available.
    #[inline(always)]
    pub(super) fn consume(&mut self, entry: u32) {
        self.window <<= entry & 63;
        self.count = self.count.wrapping_sub(u64::from(entry));
    }

    fn valid(&self) -> usize {
        (self.count & 63) as usize
    }

    /// Whether more bits were consumed than exist. Call this at least once per MCU.
    #[inline(always)]
    pub(super) fn overrun(&self) -> bool {
        self.position * 8 > self.end * 8 + self.valid()
    }

    fn left(&self) -> usize {
        (self.end * 8 + self.valid()).saturating_sub(self.position * 8)
    }

    /// Whether the unread rest of the restart interval is only padding: less than a byte, or bytes of all ones or all
    /// zeros, which some encoders write.
    pub(super) fn only_padding(&self) -> bool {
        let rest = &self.data[self.end - self.left() / 8..self.end];
        [0x00, 0xFF].iter().any(|padding| rest.iter().all(|byte| byte == padding))
    }

    pub(super) fn consumed_bits(&self) -> usize {
        self.position * 8 - self.valid()
    }

    pub(super) fn consumed_bytes(&self) -> usize {
        self.consumed_bits().div_ceil(8)
    }
}

/// Returns the value whose bits follow a code of `code` bits at the top of `window`. `shift` moves the value's bits
/// from the top of a word to the bottom.
///
/// A value whose first bit is 0 is negative: its bits as an unsigned integer, minus 2^size - 1 (ITU T.81, F.2.2.1,
/// EXTEND).
#[inline(always)]
pub(super) fn value(window: u64, code: u32, shift: impl Fn(u64) -> u64) -> i32 {
    let bits = window << (code & 63);
    let negative = !((bits as i64) >> 63) as u64;
    (shift(bits) as i32).wrapping_sub(shift(negative) as i32)
}

/// Maps the unstuffed bytes of a scan to offsets in the file, in ascending order.
pub(super) struct FileOffsets<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The number of unstuffed bytes before offset `at`.
    seen: usize,
}

impl<'a> FileOffsets<'a> {
    pub(super) fn new(bytes: &'a [u8], start: usize) -> Self {
        Self { bytes, at: start, seen: 0 }
    }

    /// The file offset of unstuffed byte `index`, which must not be less than in the previous call. If the data has no
    /// such byte, returns the offset of the marker after the data.
    pub(super) fn of(&mut self, index: usize) -> usize {
        loop {
            while self.seen + CHUNK <= index
                && let Some(chunk) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk())
                && first_ff(chunk) as usize >= CHUNK
            {
                (self.at, self.seen) = (self.at + CHUNK, self.seen + CHUNK);
            }
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = match rest.first_chunk::<CHUNK>() {
                Some(chunk) => (first_ff(chunk) as usize).min(CHUNK),
                None => rest.iter().position(|&byte| byte == 0xFF).unwrap_or(rest.len()),
            };
            let wanted = index.saturating_sub(self.seen);
            let step = plain.min(wanted);
            (self.at, self.seen) = (self.at + step, self.seen + step);
            if wanted < plain {
                return self.at;
            }
            match (rest.get(plain), rest.get(plain + 1)) {
                (Some(0xFF), Some(0)) if wanted == plain => return self.at,
                (Some(0xFF), Some(0)) => (self.at, self.seen) = (self.at + 2, self.seen + 1),
                (Some(0xFF), Some(0xD0..=0xD7)) => self.at += 2,
                (Some(0xFF), Some(0xFF)) => self.at += 1,
                (Some(0xFF), _) | (None, _) => return self.at,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stuff(plain: &[u8]) -> Vec<u8> {
        plain.iter().flat_map(|&byte| if byte == 0xFF { vec![0xFF, 0] } else { vec![byte] }).collect()
    }

    #[test]
    fn unstuffing_undoes_stuffing_wherever_the_ff_lies() {
        let mut entropy = Entropy::default();
        for (level, length) in
            Level::available().flat_map(|level| (0..200).map(move |length| (level, length)))
        {
            for step in 1..40 {
                let plain: Vec<u8> =
                    (0..length).map(|i| if i % step == step - 1 { 0xFF } else { i as u8 }).collect();
                let mut file = stuff(&plain);
                let at = file.len();
                file.extend([0xFF, 0xD9, 1, 2, 3]);
                assert_eq!(entropy.unstuff(&file, 0, level), DataEnd::Marker(at));
                assert_eq!(scan_end(&file, 0), Some(at));
                assert_eq!(scan_end(&file[..at + 1], 0), None);
                let mut offsets = FileOffsets::new(&file, 0);
                for (index, byte) in plain.iter().enumerate() {
                    assert_eq!(&stuff(&plain[..index]).len(), &offsets.of(index));
                    assert_eq!(file[offsets.of(index)], *byte);
                }
                assert_eq!(offsets.of(length), at);
                let mut offsets = FileOffsets::new(&file, 0);
                for index in (0..=length).step_by(step + 30) {
                    assert_eq!(stuff(&plain[..index]).len(), offsets.of(index), "in steps");
                }
                assert_eq!(entropy.segments[..], [Range { start: 0, end: length }]);
                assert_eq!(&entropy.data[..length], &plain[..]);
                assert!(entropy.data[length..length + PADDING].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn restart_markers_cut_segments_and_must_come_in_turn() {
        for level in Level::available() {
            restart_markers(level);
        }
    }

    fn restart_markers(level: Level) {
        let mut entropy = Entropy::default();
        let file = [9, 1, 2, 0xFF, 0xD0, 3, 0xFF, 0xFF, 0xD1, 0xFF, 0xD9];
        assert_eq!(entropy.unstuff(&file, 1, level), DataEnd::Marker(9));
        assert_eq!(entropy.segments, [0..2, 2..3, 3..3]);
        assert_eq!([0, 1, 2].map(|index| FileOffsets::new(&file, 1).of(index)), [1, 2, 5]);
        assert_eq!(entropy.unstuff(&[1, 0xFF, 0xD1, 2], 0, level), DataEnd::StrayRestart(0xD1, 1));
        // Data that begins in restart interval 9 continues after FFD1, the marker that ends interval 9.
        assert_eq!(entropy.unstuff_part(&[5, 1, 0xFF, 0xD1, 2, 3], 1..5, 9, level), DataEnd::Truncation);
        assert_eq!((&entropy.segments[..], &entropy.data[..2]), (&[0..1, 1..2][..], &[1, 2][..]));
        let reversed = Range { start: 2, end: 1 };
        assert_eq!(entropy.unstuff_part(&[1, 2], reversed, 0, level), DataEnd::Truncation);
        assert!(entropy.segments.len() == 1 && entropy.segments[0].is_empty());
        // Data that fills several vectors of 64 bytes. An 0xFF is the last byte of the first vector, and its stuffed
        // zero is the first byte of the second vector.
        let mut long = stuff(&[[7; 63].as_slice(), &[0xFF], &[8; 100]].concat());
        long.extend([0xFF, 0xD0]);
        long.extend(stuff(&[0xFF; 70]));
        let at = long.len();
        long.extend([0xFF, 0xD9]);
        long.extend([0; 90]);
        assert_eq!(entropy.unstuff(&long, 0, level), DataEnd::Marker(at));
        assert_eq!(scan_end(&long, 0), Some(at));
        assert_eq!(entropy.segments, [0..164, 164..234]);
        assert!(entropy.data[164..234].iter().all(|&byte| byte == 0xFF));
        assert_eq!(entropy.unstuff(&[1, 0xFF], 0, level), DataEnd::Truncation);
        assert_eq!(entropy.unstuff(&[], 5, level), DataEnd::Truncation);
    }

    #[test]
    fn bits_come_most_significant_first_and_overrun_is_noticed() {
        let mut entropy = Entropy::default();
        let bytes: Vec<u8> = (0..50u8).map(|i| i.wrapping_mul(37)).collect();
        entropy.unstuff(&bytes, 0, Level::detect());
        for width in 1..=25u32 {
            let mut bits = entropy.reader(0).unwrap();
            let mut at = 0;
            while at + width as usize <= 400 {
                bits.refill();
                let expected = (at..at + width as usize)
                    .fold(0u64, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1));
                assert_eq!(bits.window >> (64 - width), expected, "{width} bits at {at}");
                bits.consume(width);
                at += width as usize;
                assert!(!bits.overrun());
                assert_eq!(bits.left(), 400 - at);
            }
            bits.refill();
            bits.consume(width);
            assert_eq!(bits.overrun(), at + width as usize > 400);
        }
    }
}
