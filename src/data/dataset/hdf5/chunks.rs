//! Datasets: their types and shapes, the indexes of their chunks, and the rows of variable length.

use super::messages::{
    ChunkIndex, ChunkLayout, DataLayout, Dataspace, TypeContent, dataspace, fill, filters, kinds, layout,
};
use super::trees::GlobalHeap;
use super::{Hdf5Array, Hdf5Chunk, Hdf5Fault, Hdf5File, Hdf5Storage, ObjectHeader, damaged, refused};
use crate::dataset::gather::MAX_CELLS;
use crate::dataset::unpack::LARGEST_BLOCK;
use crate::source::{ByteFields, Malformed};

/// The number of references to rows that are read at once.
const ROWS_AT_ONCE: u64 = 1 << 16;

/// Reads a dataset. Reasons of refusals follow the dataset's name.
pub(super) fn array(file: &Hdf5File<'_>, header: &ObjectHeader) -> Result<Hdf5Array, Hdf5Fault> {
    let find = |kind| header.find(kind);
    let (Some(space), Some(kind), Some(place)) = (find(kinds::SPACE), find(kinds::TYPE), find(kinds::LAYOUT))
    else {
        return refused("is a group, and not a dataset");
    };
    if find(kinds::EXTERNAL).is_some() {
        return refused("is stored in other files (external storage), which are not read");
    }
    let Dataspace { mut shape, most } = dataspace(&mut space.whole()?, file.widths)?;
    let kind = file.stored_type(kind.fields(), kind.is_shared)?;
    let (element, is_rows) = match kind.content {
        TypeContent::Plain(element) => (element, false),
        TypeContent::Rows(element) => (element, true),
        TypeContent::Refused(why) => return refused(format!("has values of {why}, which is not read")),
    };
    let fill = fill(header, &kind)?;
    let filters = match find(kinds::FILTERS) {
        Some(message) => filters(&mut message.whole()?)?,
        None => Vec::new(),
    };
    let layout = layout(&mut place.whole()?, file.widths)?;
    if !matches!(layout, DataLayout::Chunked(_)) && !filters.is_empty() {
        return Err(damaged(header.at, "a dataset has filters, but no chunks").into());
    }
    let too_large = || damaged(header.at, "a dataset has more values than can be counted");
    let size = product(&shape).and_then(|count| count.checked_mul(kind.size)).ok_or_else(too_large)?;
    let short = || Hdf5Fault::from(damaged(header.at, "a dataset is shorter than its shape"));
    let (mut storage, is_complete) = match layout {
        _ if size == 0 => (Hdf5Storage::Absent, true),
        DataLayout::Compact { size: stated, .. } if stated < size => return Err(short()),
        DataLayout::Compact { offset, .. } => (Hdf5Storage::Run(offset), true),
        DataLayout::Contiguous { address: None, .. } => (Hdf5Storage::Absent, false),
        DataLayout::Contiguous { size: Some(stated), .. } if stated < size => return Err(short()),
        DataLayout::Contiguous { address: Some(address), .. } => {
            (Hdf5Storage::Run(file.data(address, size)?), true)
        }
        DataLayout::Chunked(layout) => {
            let mut chunks =
                ChunkList::new(file, header.at, &shape, most, &layout, kind.size, filters.len())?;
            chunks.read(&layout)?;
            let places = chunks.finish()?;
            let is_complete = product(&chunks.now) == Some(places.len() as u64);
            (Hdf5Storage::Chunks { edges: chunks.edges, places }, is_complete)
        }
    };
    let is_known = if is_rows { fill.as_ref().is_some_and(|fill| fill.is_empty()) } else { fill.is_some() };
    if !is_complete && !is_known {
        return refused("has values that were never written, and no fill value for them");
    }
    if is_rows {
        if !filters.is_empty() || shape.len() != 1 || !is_complete {
            return refused(
                "has values of variable length that are compressed, never written, or not in one dimension, which are \
                 not read",
            );
        }
        storage = Hdf5Storage::Rows(rows(file, &storage, &shape, kind.size, element.size)?);
    }
    if let Hdf5Storage::Chunks { edges, .. } = &mut storage {
        edges.extend(&kind.array);
    }
    shape.extend(&kind.array);
    let fill = fill.filter(|_| !is_rows).unwrap_or_else(|| vec![0; element.size as usize]);
    Ok(Hdf5Array { shape, element, fill, filters, storage })
}

fn product(numbers: &[u64]) -> Option<u64> {
    numbers.iter().try_fold(1, |all: u64, &number| all.checked_mul(number))
}

/// Returns the places of the values of variable length of a dataset whose references are all stored.
fn rows(
    file: &Hdf5File<'_>,
    storage: &Hdf5Storage,
    shape: &[u64],
    reference: u64,
    size: u32,
) -> Result<Vec<(u64, u32)>, Malformed> {
    let (mut heap, mut rows) = (GlobalHeap::default(), Vec::new());
    let mut left = product(shape).unwrap_or_default();
    let mut add = |mut offset: u64, count: u64| {
        let mut here = count.min(left);
        left -= here;
        while here > 0 {
            let count = here.min(ROWS_AT_ONCE);
            let bytes = file.pages.read(offset, count * reference)?;
            for value in bytes.chunks_exact(reference as usize) {
                rows.push(heap.row(file, value, size)?);
            }
            (here, offset) = (here - count, offset + bytes.len() as u64);
        }
        Ok::<_, Malformed>(())
    };
    match storage {
        Hdf5Storage::Run(offset) => add(*offset, u64::MAX)?,
        Hdf5Storage::Chunks { edges, places } => {
            let count = product(edges).unwrap_or_default();
            places.iter().try_for_each(|place| add(place.offset, count))?;
        }
        _ => {}
    }
    Ok(rows)
}

/// The chunks of a dataset that were found so far.
struct ChunkList<'a> {
    file: &'a Hdf5File<'a>,
    /// The offset of the dataset's header, for messages.
    at: u64,
    /// The number of chunks in each dimension, for the current shape and for the maximum.
    now: Vec<u64>,
    most: Vec<Option<u64>>,
    edges: Vec<u64>,
    /// The size of a chunk in bytes, without filters.
    bytes: u64,
    filters: usize,
    found: Vec<Hdf5Chunk>,
}

/// How an array of chunks stores a chunk: its address, and with filters its length and mask.
#[derive(Clone, Copy)]
struct ChunkEntry {
    size: u64,
    /// The size in bytes of the length; `None` without filters.
    length: Option<u64>,
}

impl<'a> ChunkList<'a> {
    fn new(
        file: &'a Hdf5File<'a>,
        at: u64,
        shape: &[u64],
        most: Vec<Option<u64>>,
        layout: &ChunkLayout,
        size: u64,
        filters: usize,
    ) -> Result<Self, Hdf5Fault> {
        let mut edges = layout.edges.clone();
        let bytes = product(&edges).unwrap_or(u64::MAX);
        if edges.pop() != Some(size) || edges.len() != shape.len() || bytes == 0 {
            return Err(damaged(at, "chunks do not fit the shape and type of their dataset").into());
        }
        if bytes > LARGEST_BLOCK {
            return refused(format!("has chunks of {bytes} bytes, but at most {LARGEST_BLOCK} are read"));
        }
        let now = shape.iter().zip(&edges).map(|(length, &edge)| length.div_ceil(edge)).collect();
        let most =
            most.iter().zip(&edges).map(|(most, &edge)| most.map(|most| most.div_ceil(edge))).collect();
        Ok(Self { file, at, now, most, edges, bytes, filters, found: Vec::new() })
    }

    fn damaged(&self, what: &str) -> Malformed {
        damaged(self.at, what)
    }

    /// Adds a chunk by its place in the grid. Chunks outside of the current shape are left out.
    fn add(&mut self, place: &[u64], address: u64, length: u64, mask: u32) -> Result<(), Malformed> {
        let number = place.iter().zip(&self.now).try_fold(0_u64, |all, (&at, &count)| {
            let number = all.checked_mul(count)?.checked_add(at)?;
            Some(number).filter(|_| at < count)
        });
        let Some(number) = number else { return Ok(()) };
        let all = 1_u64.checked_shl(self.filters as u32).map_or(u64::MAX, |end| end - 1);
        let is_plain = u64::from(mask) == all;
        let is_sound = length > 0 && length <= LARGEST_BLOCK && (!is_plain || length == self.bytes);
        if u64::from(mask) > all || !is_sound || self.found.len() as u64 >= MAX_CELLS {
            return Err(self.damaged("a chunk has an impossible size or filter mask"));
        }
        let offset = self.file.data(address, length)?;
        self.found.push(Hdf5Chunk { number, offset, length: length as u32, mask });
        Ok(())
    }

    /// Returns all chunks by number, after checking that none overlap.
    fn finish(&mut self) -> Result<Vec<Hdf5Chunk>, Malformed> {
        let mut chunks = std::mem::take(&mut self.found);
        chunks.sort_unstable_by_key(|chunk| chunk.offset);
        let pairs = chunks.iter().zip(chunks.iter().skip(1));
        let overlaps =
            |(first, next): (&Hdf5Chunk, &Hdf5Chunk)| first.offset + u64::from(first.length) > next.offset;
        let has_overlap = pairs.into_iter().any(overlaps);
        chunks.sort_unstable_by_key(|chunk| chunk.number);
        let mut pairs = chunks.iter().zip(chunks.iter().skip(1));
        if has_overlap || pairs.any(|(first, next)| first.number == next.number) {
            return Err(self.damaged("two chunks are in one place"));
        }
        Ok(chunks)
    }

    fn read(&mut self, layout: &ChunkLayout) -> Result<(), Malformed> {
        let Some(address) = layout.address else { return Ok(()) };
        match layout.index {
            ChunkIndex::FirstBTree => self.first_tree(address),
            ChunkIndex::SecondBTree => self.second_tree(address),
            ChunkIndex::FixedArray => self.fixed_array(address),
            ChunkIndex::ExtensibleArray => self.extensible_array(address),
            ChunkIndex::Single(filtered) => {
                let (length, mask) = filtered.unwrap_or((self.bytes, 0));
                if self.now.iter().any(|&count| count > 1) || filtered.is_some() != (self.filters > 0) {
                    return Err(self.damaged("a dataset of several chunks has the index of one"));
                }
                self.add(&vec![0; self.now.len()], address, length, mask)
            }
            ChunkIndex::Implicit if self.filters > 0 => Err(self.damaged("filtered chunks have no index")),
            ChunkIndex::Implicit => self.implicit(address),
        }
    }

    /// The number of chunks of the maximum shape.
    fn most(&self) -> Result<u64, Malformed> {
        let count = self.most.iter().try_fold(1_u64, |all, &most| all.checked_mul(most?));
        count.filter(|&count| count <= MAX_CELLS).ok_or_else(|| self.damaged("there are too many chunks"))
    }

    /// Chunks that are stored one after the other, in the grid of the maximum shape.
    fn implicit(&mut self, address: u64) -> Result<(), Malformed> {
        let count = self.most()?;
        // All of them are stored.
        self.file.data(address, count.saturating_mul(self.bytes))?;
        for number in 0..count {
            let place = self.place(number, 0)?;
            self.add(&place, address + number * self.bytes, self.bytes, 0)?;
        }
        Ok(())
    }

    /// Returns a chunk's place in the grid of the maximum shape from its number there. `front` is the slowest
    /// dimension; the others follow in their order.
    fn place(&self, mut number: u64, front: usize) -> Result<Vec<u64>, Malformed> {
        let mut place = vec![0; self.now.len()];
        let dimensions = place.iter_mut().zip(&self.most).enumerate().rev();
        for (_, (at, most)) in dimensions.filter(|(dimension, _)| *dimension != front) {
            let most = most.filter(|&most| most > 0);
            let most = most.ok_or_else(|| damaged(self.at, "chunks have an index for another shape"))?;
            *at = number % most;
            number /= most;
        }
        if let Some(at) = place.get_mut(front) {
            *at = number;
        }
        Ok(place)
    }

    fn first_tree(&mut self, address: u64) -> Result<(), Malformed> {
        let rank = self.now.len();
        let (file, key_size) = (self.file, 16 + 8 * rank as u64);
        let wrong = damaged(self.at, "the keys of a B-tree of chunks are not sorted or not in the grid");
        // Each key has the chunk's size, its filter mask, and its place in elements.
        let read = |key: &[u8]| {
            let mut fields = ByteFields::new(key, self.at);
            let (size, mask) = (fields.uint(4)?, fields.u32()?);
            let place = (0..=rank).map(|_| fields.uint(8)).collect::<Result<Vec<_>, _>>()?;
            Ok((size, mask, place))
        };
        let mut found = Vec::new();
        let mut left = vec![(address, None, Vec::new(), vec![u64::MAX; rank + 1])];
        while let Some((address, level, low, high)) = left.pop() {
            let node = file.first_node(address, 1, level, key_size, 2 * file.chunk_k)?;
            let keys = node.keys.iter().map(|key| read(key)).collect::<Result<Vec<_>, Malformed>>()?;
            // Keys ascend in the whole tree, so no node occurs twice, and HDF5 finds each chunk by its key.
            let is_sorted =
                keys.windows(2).all(|pair| pair.first().map(|key| &key.2) < pair.last().map(|key| &key.2));
            let (first, last) = (keys.first(), keys.last());
            let is_between = first.is_none_or(|key| key.2 >= low) && last.is_none_or(|key| key.2 <= high);
            if !is_sorted || !is_between && !node.children.is_empty() {
                return Err(wrong);
            }
            for ((key, next), child) in keys.iter().zip(keys.iter().skip(1)).zip(node.children) {
                match node.level.checked_sub(1) {
                    Some(level) => left.push((child, Some(level), key.2.clone(), next.2.clone())),
                    None => found.push((key.clone(), child)),
                }
            }
        }
        for ((size, mask, mut place), address) in found {
            let is_whole = place.pop() == Some(0);
            let is_on_grid = place.iter().zip(&self.edges).all(|(&at, &edge)| at % edge == 0);
            place.iter_mut().zip(&self.edges).for_each(|(at, &edge)| *at /= edge);
            if !is_whole || !is_on_grid || place.iter().zip(&self.now).any(|(at, count)| at >= count) {
                return Err(wrong);
            }
            self.add(&place, address, size, mask)?;
        }
        Ok(())
    }

    fn second_tree(&mut self, address: u64) -> Result<(), Malformed> {
        let rank = self.now.len() as u64;
        let (size, records) = self.file.records(address, if self.filters > 0 { 11 } else { 10 })?;
        let entry = self.entry((size as u64).saturating_sub(8 * rank), self.filters > 0)?;
        for record in records.chunks_exact(size) {
            let mut fields = self.file.fields(address, record);
            let address = fields.defined(self.file.widths.offsets)?;
            let (length, mask) = match entry.length {
                Some(width) => (fields.uint(width)?, fields.u32()?),
                None => (self.bytes, 0),
            };
            let place = (0..rank).map(|_| fields.uint(8)).collect::<Result<Vec<_>, _>>()?;
            self.add(&place, address, length, mask)?;
        }
        Ok(())
    }

    fn entry(&self, size: u64, is_filtered: bool) -> Result<ChunkEntry, Malformed> {
        let offsets = self.file.widths.offsets;
        let length = if is_filtered { size.checked_sub(offsets + 4) } else { None };
        let is_sound =
            if is_filtered { length.is_some_and(|n| (1..=8).contains(&n)) } else { size == offsets };
        if !is_sound || is_filtered != (self.filters > 0) {
            return Err(self.damaged("the index of chunks has entries of an impossible size"));
        }
        Ok(ChunkEntry { size, length })
    }

    /// Adds the chunks of consecutive entries, of which the first has this number in the maximum grid.
    fn entries(
        &mut self,
        fields: &mut ByteFields<'_>,
        entry: ChunkEntry,
        numbers: std::ops::Range<u64>,
        front: usize,
    ) -> Result<(), Malformed> {
        for number in numbers {
            let address = fields.optional(self.file.widths.offsets)?;
            let (length, mask) = match entry.length {
                Some(width) => (fields.uint(width)?, fields.u32()?),
                None => (self.bytes, 0),
            };
            if let Some(address) = address {
                let place = self.place(number, front)?;
                self.add(&place, address, length, mask)?;
            }
        }
        Ok(())
    }

    fn fixed_array(&mut self, address: u64) -> Result<(), Malformed> {
        let file = self.file;
        let (offsets, lengths) = (file.widths.offsets, file.widths.lengths);
        let bytes = file.checked(address, 12 + lengths + offsets, b"FAHD\0")?;
        let mut fields = file.fields(address, &bytes);
        let is_filtered = fields.u8()? == 1;
        let entry = self.entry(fields.u8()?.into(), is_filtered)?;
        let page_bits = u32::from(fields.u8()?);
        let count = fields.uint(lengths)?;
        if self.most()? != count {
            return Err(self.damaged("chunks have an index for another shape"));
        }
        let Some(block) = fields.optional(offsets)? else { return Ok(()) };
        let page = 1_u64.checked_shl(page_bits).unwrap_or(u64::MAX);
        let head = 6 + offsets;
        if count <= page {
            let bytes = file.checked(
                block,
                head.saturating_add(count.saturating_mul(entry.size)).saturating_add(4),
                b"FADB\0",
            )?;
            let mut fields = file.fields(block, &bytes);
            fields.take(head - 5)?;
            return self.entries(&mut fields, entry, 0..count, 0);
        }
        let pages = count.div_ceil(page);
        let head = head + pages.div_ceil(8) + 4;
        let bytes = file.checked(block, head, b"FADB\0")?;
        let mut fields = file.fields(block, &bytes);
        fields.take(offsets + 1)?;
        let is_written = fields.take(pages.div_ceil(8))?;
        self.pages(block.saturating_add(head), entry, 0..count, page, 0, |number| bit(is_written, number))
    }

    /// Adds the chunks of a block of pages. Each page has a checksum, and those that were never written have no
    /// chunks.
    fn pages(
        &mut self,
        address: u64,
        entry: ChunkEntry,
        numbers: std::ops::Range<u64>,
        page: u64,
        front: usize,
        is_written: impl Fn(u64) -> bool,
    ) -> Result<(), Malformed> {
        let (mut at, mut first, mut number) = (address, numbers.start, 0);
        while first < numbers.end {
            let end = first.saturating_add(page).min(numbers.end);
            let size = (end - first).saturating_mul(entry.size).saturating_add(4);
            if is_written(number) {
                let bytes = self.file.checked(at, size, &[])?;
                self.entries(&mut self.file.fields(at, &bytes), entry, first..end, front)?;
            }
            (at, first, number) = (at.saturating_add(size), end, number + 1);
        }
        Ok(())
    }

    fn extensible_array(&mut self, address: u64) -> Result<(), Malformed> {
        let file = self.file;
        let offsets = file.widths.offsets;
        let bytes = file.checked(address, 16 + 6 * file.widths.lengths + offsets, b"EAHD\0")?;
        let mut fields = file.fields(address, &bytes);
        let is_filtered = fields.u8()? == 1;
        let entry = self.entry(fields.u8()?.into(), is_filtered)?;
        let [bits, in_index, least, pointers, page_bits] = [(); 5].map(|()| fields.u8().map(u32::from));
        let (bits, least, pointers, page_bits) = (bits?, u64::from(least?), u64::from(pointers?), page_bits?);
        let in_index = u64::from(in_index?);
        fields.take(6 * file.widths.lengths)?;
        // The only unlimited dimension is the slowest one in the numbers of chunks.
        let front = self.most.iter().position(Option::is_none);
        let is_sound = bits <= 64 && least.is_power_of_two() && pointers.is_power_of_two() && page_bits < 64;
        let supers = if is_sound { (1 + bits).checked_sub(least.ilog2()) } else { None };
        let in_supers = supers.and_then(|supers| supers.checked_sub(2 * pointers.ilog2()));
        let (Some(front), Some(supers), Some(in_supers)) = (front, supers, in_supers) else {
            return Err(self.damaged("an extensible array has impossible sizes"));
        };
        let Some(index) = fields.optional(offsets)? else { return Ok(()) };
        let direct = 2 * (pointers - 1);
        let head = 6 + offsets;
        let links = (direct + u64::from(in_supers)) * offsets;
        let bytes = file.checked(index, head + in_index * entry.size + links + 4, b"EAIB\0")?;
        let mut fields = file.fields(index, &bytes);
        fields.take(head - 5)?;
        self.entries(&mut fields, entry, 0..in_index, front)?;
        let (page, offset_width) = (1 << page_bits, u64::from(bits.div_ceil(8)));
        let mut first = in_index;
        for number in 0..supers {
            // The number of blocks doubles with every second super block, and their size with the others.
            let (blocks, size) = (1_u64 << (number / 2), least << number.div_ceil(2));
            let pages = if size > page { size / page } else { 0 };
            let after = first.saturating_add(blocks.saturating_mul(size));
            let in_index = number < supers - in_supers;
            if in_index && pages > 0 {
                return Err(self.damaged("an extensible array has impossible sizes"));
            }
            let super_block;
            let mut is_written: &[u8] = &[];
            let mut links = if in_index {
                file.fields(index, fields.take(blocks * offsets)?)
            } else if let Some(address) = fields.optional(offsets)? {
                let flags = blocks.saturating_mul(pages.div_ceil(8));
                let length = (head + offset_width + blocks * offsets + 4).saturating_add(flags);
                super_block = file.checked(address, length, b"EASB\0")?;
                let mut fields = file.fields(address, &super_block);
                fields.take(head - 5 + offset_width)?;
                is_written = fields.take(flags)?;
                fields
            } else {
                first = after;
                continue;
            };
            for block in 0..blocks {
                let numbers = first..first.saturating_add(size);
                first = numbers.end;
                let Some(address) = links.optional(offsets)? else { continue };
                let head = head + offset_width;
                let content = if pages == 0 { size.saturating_mul(entry.size) } else { 0 };
                let bytes = file.checked(address, content.saturating_add(head + 4), b"EADB\0")?;
                let mut fields = file.fields(address, &bytes);
                fields.take(head - 5)?;
                if pages == 0 {
                    self.entries(&mut fields, entry, numbers, front)?;
                } else {
                    let address = address.saturating_add(head + 4);
                    self.pages(address, entry, numbers, page, front, |page| {
                        bit(is_written, block * pages + page)
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a bit of a bitmap, in which the highest bit of each byte is first.
fn bit(bits: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number / 8).ok().and_then(|at| bits.get(at));
    byte.is_some_and(|byte| byte & 0x80_u8 >> (number % 8) != 0)
}
