//! Optimises the Huffman tables of a baseline JPEG with one scan, without changing a coefficient.
//!
//! The encoder can optimise tables only in files with one scan for each component, which cameras and web sites hardly
//! ever write. This module reads the single interleaved scan as symbols, counts them, and writes them again.

/// A symbol of a scan: its table, its value, and the bits that follow it.
struct ScanSymbol {
    table: u8,
    value: u8,
    extra: u16,
}

/// The number of tables: DC 0, DC 1, AC 0, AC 1.
const TABLES: usize = 4;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CodeCounts {
    pub blocks: u64,
    /// The number of Huffman codes, including DC codes and end-of-block codes.
    pub codes: u64,
    pub bits: u64,
    pub non_zero: u64,
    /// The position of a block's last non-zero coefficient (0 for DC), summed over all blocks.
    pub ends: u64,
    pub dc_only: u64,
}

impl std::ops::AddAssign for CodeCounts {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.codes += other.codes;
        self.bits += other.bits;
        self.non_zero += other.non_zero;
        self.ends += other.ends;
        self.dc_only += other.dc_only;
    }
}

pub(crate) struct CodedSymbols {
    header: InterleavedScan,
    symbols: Vec<ScanSymbol>,
}

impl CodedSymbols {
    /// Reads an image. Returns `None` unless the image is a baseline JPEG with one scan, at most two tables of either
    /// kind, and no restart markers.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let header = InterleavedScan::parse(bytes)?;
        let symbols = header.read(&unstuffed(bytes.get(header.data..)?))?;
        Some(Self { header, symbols })
    }

    pub(crate) fn with_own_tables(self) -> (Vec<u8>, CodeCounts) {
        let mut counts = [[0u32; 256]; TABLES];
        for symbol in &self.symbols {
            counts[usize::from(symbol.table)][usize::from(symbol.value)] += 1;
        }
        let tables = counts.map(|counts| Specification::optimal(&counts));
        let mut out = self.header.kept;
        for (table, specification) in tables.iter().enumerate() {
            if !specification.values.is_empty() {
                out.extend([0xFF, 0xC4]);
                out.extend((19 + specification.values.len() as u16).to_be_bytes());
                out.push((table as u8 >> 1) << 4 | (table as u8 & 1));
                out.extend(specification.counts);
                out.extend(&specification.values);
            }
        }
        let codes = tables.map(|specification| specification.codes());
        out.extend(self.header.scan);
        let mut writer = EntropyWriter { out, bits: 0, held: 0 };
        for symbol in &self.symbols {
            let (code, length) = codes[usize::from(symbol.table)][usize::from(symbol.value)];
            writer.put(code, length);
            writer.put(symbol.extra, symbol.value & 15);
        }
        (writer.finish(), count(&self.symbols, &codes))
    }

    pub(crate) fn counts(&self) -> CodeCounts {
        let none = || [(0, 0); 256];
        let codes =
            self.header.tables.each_ref().map(|table| table.as_ref().map_or_else(none, Specification::codes));
        count(&self.symbols, &codes)
    }
}

fn count(symbols: &[ScanSymbol], codes: &[[(u16, u8); 256]; TABLES]) -> CodeCounts {
    let mut counts = CodeCounts::default();
    let (mut place, mut last) = (0, 0);
    let end = |counts: &mut CodeCounts, last: u64| {
        counts.ends += last;
        counts.dc_only += u64::from(last == 0);
    };
    for symbol in symbols {
        let length = codes[usize::from(symbol.table)][usize::from(symbol.value)].1;
        counts.codes += 1;
        counts.bits += u64::from(length + (symbol.value & 15));
        if symbol.table < 2 {
            if counts.blocks > 0 {
                end(&mut counts, last);
            }
            counts.blocks += 1;
            (place, last) = (0, 0);
        } else if symbol.value != 0 {
            place += u64::from(symbol.value >> 4) + 1;
            if symbol.value & 15 != 0 {
                counts.non_zero += 1;
                last = place;
            }
        }
    }
    end(&mut counts, last);
    counts
}

struct InterleavedScan {
    kept: Vec<u8>,
    scan: Vec<u8>,
    data: usize,
    tables: [Option<Specification>; TABLES],
    /// The (DC table, AC table) of every block of an MCU.
    blocks: Vec<(u8, u8)>,
    mcus: usize,
}

impl InterleavedScan {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut kept = bytes.get(..2)?.to_vec();
        let mut tables = [const { None }; TABLES];
        // The width, height and (id, horizontal, vertical sampling) of the frame's components.
        let mut frame: Option<(usize, usize, Vec<[u8; 3]>)> = None;
        let mut at = 2;
        loop {
            let marker = *bytes.get(at + 1)?;
            let length = usize::from(u16::from_be_bytes(bytes.get(at + 2..at + 4)?.try_into().ok()?));
            let segment = bytes.get(at..at + 2 + length)?;
            let body = segment.get(4..)?;
            match marker {
                0xC4 => read_tables(body, &mut tables)?,
                0xC0 => {
                    let size = |i: usize| {
                        Some(usize::from(u16::from_be_bytes(body.get(i..i + 2)?.try_into().ok()?)))
                    };
                    let components = body.get(6..)?.chunks_exact(3).map(|c| [c[0], c[1] >> 4, c[1] & 15]);
                    frame = Some((size(3)?, size(1)?, components.collect()));
                    kept.extend(segment);
                }
                0xDA => {
                    let (width, height, components) = frame?;
                    let blocks = blocks(body, &components)?;
                    let most = |i: usize| components.iter().map(|c| usize::from(c[i])).max();
                    let single = components.len() == 1;
                    let (h, v) = if single { (1, 1) } else { (most(1)?, most(2)?) };
                    if h == 0 || v == 0 {
                        return None;
                    }
                    let mcus = width.div_ceil(8 * h) * height.div_ceil(8 * v);
                    let (scan, data) = (segment.to_vec(), at + segment.len());
                    return Some(Self { kept, scan, data, tables, blocks, mcus });
                }
                // Restart intervals and all other kinds of frames are not supported.
                0xDD | 0xC1..=0xCF => return None,
                _ => kept.extend(segment),
            }
            at += segment.len();
        }
    }

    fn read(&self, data: &[u8]) -> Option<Vec<ScanSymbol>> {
        let lookups: Vec<Option<Vec<(u8, u8)>>> =
            self.tables.iter().map(|t| t.as_ref().map(Specification::lookup)).collect();
        let mut bits = EntropyReader { data, position: 0 };
        let mut symbols = Vec::with_capacity(data.len());
        let mut take = |table: u8| -> Option<u8> {
            let lookup = lookups[usize::from(table)].as_ref()?;
            let (length, value) = lookup[usize::from(bits.peek())];
            if length == 0 {
                return None;
            }
            bits.position += usize::from(length);
            let size = value & 15;
            let extra = (u32::from(bits.peek()) >> (16 - size)) as u16;
            bits.position += usize::from(size);
            symbols.push(ScanSymbol { table, value, extra });
            Some(value)
        };
        for _ in 0..self.mcus {
            for &(dc, ac) in &self.blocks {
                take(dc)?;
                let mut next = 1;
                while next < 64 {
                    match take(ac + 2)? {
                        0x00 => break,
                        value => next += usize::from(value >> 4) + 1,
                    }
                }
            }
        }
        (bits.position <= 8 * data.len()).then_some(symbols)
    }
}

fn read_tables(mut body: &[u8], tables: &mut [Option<Specification>; TABLES]) -> Option<()> {
    while let Some((&kind, rest)) = body.split_first() {
        let (counts, rest) = rest.split_first_chunk::<16>()?;
        let length = counts.iter().map(|&c| usize::from(c)).sum();
        let values = rest.get(..length)?.to_vec();
        *tables.get_mut(usize::from((kind >> 4) * 2 + (kind & 15)))? =
            Some(Specification { counts: *counts, values });
        body = &rest[length..];
    }
    Some(())
}

fn blocks(scan: &[u8], components: &[[u8; 3]]) -> Option<Vec<(u8, u8)>> {
    if usize::from(*scan.first()?) != components.len() {
        return None;
    }
    let mut blocks = Vec::new();
    for (selector, component) in scan.get(1..)?.chunks_exact(2).zip(components) {
        let tables = (selector[1] >> 4, selector[1] & 15);
        if selector[0] != component[0] || tables.0 > 1 || tables.1 > 1 {
            return None;
        }
        let count = if components.len() == 1 { 1 } else { usize::from(component[1] * component[2]) };
        blocks.extend(std::iter::repeat_n(tables, count));
    }
    Some(blocks)
}

/// A Huffman table as in a file: the number of codes of each length, and their symbols.
struct Specification {
    counts: [u8; 16],
    values: Vec<u8>,
}

impl Specification {
    /// The code and the length of every symbol (ITU-T T.81, annex C.2).
    fn codes(&self) -> [(u16, u8); 256] {
        let mut codes = [(0, 0); 256];
        let mut values = self.values.iter();
        let mut code = 0u16;
        for (length, &count) in (1..).zip(&self.counts) {
            for &value in values.by_ref().take(usize::from(count)) {
                codes[usize::from(value)] = (code, length);
                code = code.wrapping_add(1);
            }
            code <<= 1;
        }
        codes
    }

    /// A table with an entry for each value of the next 16 bits: the length and the symbol of the code that these bits
    /// begin with. The length is 0 if they begin with no code.
    fn lookup(&self) -> Vec<(u8, u8)> {
        let mut lookup = vec![(0, 0); 1 << 16];
        for (value, (code, length)) in (0..=255u8).zip(self.codes()) {
            if length > 0 {
                let first = usize::from(code) << (16 - length);
                lookup[first..][..1 << (16 - length)].fill((length, value));
            }
        }
        lookup
    }

    /// Finds the shortest codes of at most 16 bits for symbols that occur `counts` times (ITU-T T.81, annex K.2).
    fn optimal(counts: &[u32; 256]) -> Self {
        // An additional symbol, rarer than all others, takes the code of all ones, which a file must not use.
        let mut weights: Vec<u32> = counts.iter().copied().chain([1]).collect();
        let mut groups: Vec<Vec<usize>> = (0..257).map(|i| vec![i]).collect();
        let mut lengths = [0usize; 257];
        let rarest = |weights: &[u32]| (0..257).rev().filter(|&i| weights[i] > 0).min_by_key(|&i| weights[i]);
        while let Some(a) = rarest(&weights) {
            let weight = std::mem::take(&mut weights[a]);
            let Some(b) = rarest(&weights) else { break };
            weights[b] += weight;
            let moved = std::mem::take(&mut groups[a]);
            groups[b].extend(moved);
            groups[b].iter().for_each(|&i| lengths[i] += 1);
        }
        let mut of_length = [0i32; 258];
        lengths.iter().filter(|&&length| length > 0).for_each(|&length| of_length[length] += 1);
        for long in (17..258).rev() {
            while of_length[long] > 0 {
                // Shorten two sibling codes of length `long`. One takes the place of their parent. The other one and a
                // leaf of length `shorter` become siblings at the next length.
                let shorter = (1..long - 1).rev().find(|&l| of_length[l] > 0).unwrap_or(1);
                of_length[long] -= 2;
                of_length[long - 1] += 1;
                of_length[shorter + 1] += 2;
                of_length[shorter] -= 1;
            }
        }
        if let Some(longest) = (1..=16).rev().find(|&l| of_length[l] > 0) {
            of_length[longest] -= 1;
        }
        let mut values: Vec<usize> = (0..256).filter(|&i| lengths[i] > 0).collect();
        values.sort_by_key(|&i| (lengths[i], i));
        Self {
            counts: std::array::from_fn(|i| of_length[i + 1] as u8),
            values: values.into_iter().map(|i| i as u8).collect(),
        }
    }
}

/// Reads bits of entropy-coded data, most significant first, with zeros past the end.
struct EntropyReader<'a> {
    data: &'a [u8],
    position: usize,
}

impl EntropyReader<'_> {
    fn peek(&self) -> u16 {
        let byte = |i: usize| u32::from(self.data.get(self.position / 8 + i).copied().unwrap_or(0));
        ((byte(0) << 16 | byte(1) << 8 | byte(2)) >> (8 - self.position % 8)) as u16
    }
}

/// Removes the zero that follows every 0xFF in entropy-coded data, up to the first marker.
fn unstuffed(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut bytes = data.iter();
    while let Some(&byte) = bytes.next() {
        if byte == 0xFF && bytes.next() != Some(&0) {
            break;
        }
        out.push(byte);
    }
    out
}

struct EntropyWriter {
    out: Vec<u8>,
    bits: u32,
    held: u8,
}

impl EntropyWriter {
    fn put(&mut self, value: u16, length: u8) {
        self.bits = self.bits << length | u32::from(value);
        self.held += length;
        while self.held >= 8 {
            self.held -= 8;
            let byte = (self.bits >> self.held) as u8;
            self.out.push(byte);
            if byte == 0xFF {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones and ends the image.
    fn finish(mut self) -> Vec<u8> {
        self.put((1 << 7) - 1, 7);
        self.out.extend([0xFF, 0xD9]);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    #[test]
    fn optimal_codes_are_prefix_free_short_enough_and_never_all_ones() {
        let key = RandomKey::new(b"huffman", 0, 0, Use::Augment);
        for case in 0..60 {
            let mut random = key.stream(case);
            // Steep distributions make codes longer than 16 bits, which must be cut.
            let symbols = 1 + random.below(200) as usize;
            let mut counts = [0u32; 256];
            for (i, count) in counts.iter_mut().take(symbols).enumerate() {
                *count = if case % 2 == 0 { 1 << (i % 24) } else { random.below(1000) as u32 };
            }
            let specification = Specification::optimal(&counts);
            let codes = specification.codes();
            let mut kraft = 0u32;
            for (symbol, (&count, (code, length))) in counts.iter().zip(codes).enumerate() {
                assert_eq!(count > 0, length > 0, "case {case}, symbol {symbol}");
                if length > 0 {
                    assert!(u32::from(code) < (1 << length) - 1, "case {case}: all ones");
                    kraft += 1 << (16 - length);
                }
            }
            assert!(kraft < 1 << 16, "case {case}: {kraft}");
            assert_eq!(
                specification.counts.iter().map(|&c| usize::from(c)).sum::<usize>(),
                specification.values.len()
            );
        }
    }

    #[test]
    fn what_is_not_a_baseline_jpeg_is_refused() {
        for bytes in [&b""[..], b"\xFF\xD8", b"\xFF\xD8\xFF\xDA\x00\x02", b"\xFF\xD8\xFF\xC4\x00\x04\x00\x01"]
        {
            assert!(CodedSymbols::read(bytes).is_none());
        }
    }
}
