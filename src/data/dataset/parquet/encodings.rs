//! Integers as Parquet encodes them: in runs and packed bits (RLE), and as differences (DELTA_BINARY_PACKED).
//!
//! The encodings are those of `Encodings.md` in Apache's `parquet-format`. The caller of a decoder says how many values
//! to decode, and must limit this number.

use super::super::gather::little_endian;

pub(super) const DAMAGED: &str = "the values of a page are damaged";

/// Decoder of numbers. `rest` has the bytes that are not decoded yet.
pub(super) struct PackedNumbers<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> PackedNumbers<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DAMAGED)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DAMAGED)
    }

    fn zigzag(&mut self) -> Result<i64, &'static str> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Whether the bytes encode exactly `count` values of one bit, as runs of equal bits and runs of packed bits.
    pub(super) fn are_bits(mut self, count: u64) -> bool {
        let (mut seen, mut padding) = (0_u64, 0);
        while !self.rest.is_empty() {
            let Ok(head) = self.varint() else { return false };
            let (run, size) =
                if head & 1 == 0 { (head >> 1, 1) } else { ((head >> 1).saturating_mul(8), head >> 1) };
            let Ok(bytes) = self.take(usize::try_from(size).unwrap_or(usize::MAX)) else { return false };
            if run == 0 || seen >= count || head & 1 == 0 && bytes[0] > 1 {
                return false;
            }
            // Packed bits come in groups of eight, and the last group can have up to seven padding bits.
            padding = if head & 1 == 0 { 0 } else { 7 };
            seen = seen.saturating_add(run);
        }
        (count..=count + padding).contains(&seen)
    }

    /// Decodes `count` numbers of `width` bits each, from runs of equal numbers and runs of packed bits.
    pub(super) fn runs(&mut self, width: u32, count: usize) -> Result<Vec<u32>, &'static str> {
        if width > 32 {
            return Err(DAMAGED);
        }
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let head = self.varint()?;
            let left = count - numbers.len();
            let run = usize::try_from(head >> 1).map_err(|_| DAMAGED)?;
            if head & 1 == 0 {
                let bytes = self.take(width.div_ceil(8) as usize)?;
                let value = little_endian(bytes) as u32;
                numbers.resize(numbers.len() + run.min(left), value);
            } else {
                // The last group of eight can be truncated after the last value.
                let size = run.saturating_mul(width as usize).min(self.rest.len());
                let bits = Bits { bytes: self.take(size)?, width };
                let there = if width == 0 { left } else { size * 8 / width as usize };
                let taken = run.saturating_mul(8).min(left).min(there);
                numbers.extend((0..taken).map(|number| bits.get(number) as u32));
                if taken < left && taken < run.saturating_mul(8) {
                    return Err(DAMAGED);
                }
            }
        }
        Ok(numbers)
    }

    /// Decodes `count` numbers. Each number is the sum of the previous number and a stored difference. Sums wrap at
    /// `bits` bits.
    pub(super) fn deltas(&mut self, count: usize, bits: u32) -> Result<Vec<i64>, &'static str> {
        let block = usize::try_from(self.varint()?).map_err(|_| DAMAGED)?;
        let parts = usize::try_from(self.varint()?).map_err(|_| DAMAGED)?;
        let stated = self.varint()?;
        let first = self.zigzag()?;
        if stated != count as u64 {
            return Err(DAMAGED);
        }
        let each = block.checked_div(parts).filter(|each| each * parts == block && each.is_multiple_of(8));
        let each = each.filter(|&each| each > 0).ok_or(DAMAGED)?;
        let narrow = |value: i64| if bits == 32 { i64::from(value as i32) } else { value };
        let mut numbers = Vec::new();
        let mut value = narrow(first);
        if count > 0 {
            numbers.push(value);
        }
        while numbers.len() < count {
            let least = self.zigzag()?;
            let widths = self.take(parts)?;
            for &width in widths {
                let left = count - numbers.len();
                // A miniblock after the last value has a bit width in the header, but no bytes.
                if left == 0 {
                    break;
                }
                if width > 64 {
                    return Err(DAMAGED);
                }
                let size = (each / 8).checked_mul(usize::from(width)).ok_or(DAMAGED)?;
                let bits = Bits { bytes: self.take(size)?, width: u32::from(width) };
                for number in 0..each.min(left) {
                    value = narrow(value.wrapping_add(least).wrapping_add(bits.get(number) as i64));
                    numbers.push(value);
                }
            }
        }
        Ok(numbers)
    }
}

/// Numbers of `width` bits each, packed from the lowest bit on.
struct Bits<'a> {
    bytes: &'a [u8],
    width: u32,
}

impl Bits<'_> {
    fn get(&self, number: usize) -> u64 {
        let width = self.width as usize;
        let (start, end) = (number * width, (number + 1) * width);
        let bytes = &self.bytes[start / 8..end.div_ceil(8).max(start / 8).min(self.bytes.len())];
        // A number of 64 bits that does not begin at a byte boundary spans nine bytes.
        let all = bytes.iter().rev().fold(0_u128, |all, &byte| all << 8 | u128::from(byte));
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        (all >> (start % 8)) as u64 & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_bits_follow_one_another() {
        // The example of Encodings.md: 0 to 7 in three bits each are 88 c6 fa. A run of five 6s comes before these
        // bytes.
        let mut numbers = PackedNumbers { rest: &[10, 6, 3, 0x88, 0xC6, 0xFA, 0x55] };
        assert_eq!(numbers.runs(3, 12).unwrap(), [6, 6, 6, 6, 6, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers.rest, [0x55]);
        let cut = |bytes: &[u8], count| PackedNumbers { rest: bytes }.runs(3, count).ok();
        assert_eq!(cut(&[3, 0x88], 2), Some(vec![0, 1]));
        assert_eq!(cut(&[3, 0x88], 3), None);
        assert_eq!(cut(&[], 1), None);
        assert_eq!(PackedNumbers { rest: &[3] }.runs(0, 8), Ok(vec![0; 8]));
        assert!(PackedNumbers { rest: &[3, 0] }.runs(33, 8).is_err());
    }

    #[test]
    fn bits_are_told_from_values() {
        let are_bits = |rest: &[u8], count| PackedNumbers { rest }.are_bits(count);
        assert!(are_bits(&[3, 7], 4) && are_bits(&[8, 1], 4) && are_bits(&[8, 1, 4, 0], 6));
        assert!(!are_bits(&[8, 2], 4), "no bit");
        assert!(!are_bits(&[8, 1], 5) && !are_bits(&[3, 7], 9), "too few");
        assert!(!are_bits(&[8, 1], 3) && !are_bits(&[3, 7, 2, 1], 4), "too many");
        assert!(
            !are_bits(&[0xFF, 0xD8, 0xFF, 0xE0, 0, 0x10], 3) && !are_bits(b"cat", 4) && !are_bits(&[0, 0], 1)
        );
    }

    #[test]
    fn differences_add_up() {
        // 7, 5, 3, 1, 2, 3, 4, 5 as in Encodings.md: the smallest difference is -2, and each difference is stored as 0
        // or 3 above -2.
        let mut bytes = vec![128, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0];
        assert_eq!(PackedNumbers { rest: &bytes }.deltas(8, 64).unwrap(), [7, 5, 3, 1, 2, 3, 4, 5]);
        assert!(PackedNumbers { rest: &bytes }.deltas(7, 64).is_err());
        bytes.truncate(12);
        assert!(PackedNumbers { rest: &bytes }.deltas(8, 64).is_err());
        assert!(PackedNumbers { rest: &[0, 0, 8, 0] }.deltas(8, 64).is_err());
        let wrapped = [8, 1, 2, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 2, 0];
        assert_eq!(
            PackedNumbers { rest: &wrapped }.deltas(2, 32).unwrap(),
            [i64::from(i32::MAX), i64::from(i32::MIN)]
        );
    }
}
