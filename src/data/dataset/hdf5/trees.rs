//! Groups, attributes and heaps: which links and attributes an object has, however the file stores them.

use super::messages::{
    Dataspace, Hdf5Link, Hdf5Type, LinkTarget, TypeContent, Widths, dataspace, datatype, dense, kinds, link,
    shared,
};
use super::{Hdf5Attribute, Hdf5Fault, Hdf5File, Hdf5Kind, Hdf5Values, ObjectHeader, damaged, refused};
use crate::source::{ByteFields, Malformed, ended_text};
use base::lookup3::lookup3;
use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

/// Maximum number of bytes of the names or attributes in a heap.
const MAX_HEAP: u64 = 256 << 20;
/// Maximum level of a node of a tree.
const MAX_LEVEL: u64 = 64;

/// A node of a B-tree, version 1.
pub(super) struct FirstNode {
    pub(super) level: u8,
    /// The keys, one more than children. A child holds what is between the key before it and the key after it.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) children: Vec<u64>,
}

/// The sizes in a B-tree, version 2.
struct SecondTree {
    kind: u8,
    record: u64,
    /// For each level from the leaves, the maximum number of records of a node, and the size in bytes of the number of
    /// all records below it.
    levels: Vec<(u64, u64)>,
    /// The size in bytes of the number of records of a node.
    count_width: u64,
}

/// A fractal heap, whose objects are messages of links or attributes.
struct FractalHeap {
    offset_width: u64,
    length_width: u64,
    /// The blocks by their offsets in the heap: address and bytes.
    blocks: BTreeMap<u64, (u64, Vec<u8>)>,
    length: u64,
}

/// The collections of a global heap, which has the values of variable length.
#[derive(Default)]
pub(super) struct GlobalHeap {
    /// For each collection that was read, its objects by number: offset in the file and size.
    collections: HashMap<u64, HashMap<u64, (u64, u64)>>,
}

/// The number of bytes in which the format stores numbers up to a limit.
fn width_of(limit: u64) -> u64 {
    u64::from(limit.max(1).ilog2()) / 8 + 1
}

impl Hdf5File<'_> {
    /// Returns the links of a group. An object that is no group has none.
    pub(super) fn links(&self, header: &ObjectHeader) -> Result<Vec<Hdf5Link>, Hdf5Fault> {
        let mut links = Vec::new();
        if let Some(message) = header.find(kinds::LINKS) {
            if let Some((heap, names)) = dense(&mut message.whole()?, self.widths, 8)? {
                let heap = self.fractal_heap(heap)?;
                let mut left = heap.length;
                let (size, records) = self.records(names, 5)?;
                for record in records.chunks_exact(size) {
                    let mut record = self.fields(names, record);
                    record.take(4)?;
                    let (at, bytes) = self.heap_object(&heap, record.rest())?;
                    // Each object is the link of one name.
                    let rest = left.checked_sub(bytes.len() as u64);
                    left = rest.ok_or_else(|| damaged(at, "links of a group overlap"))?;
                    links.push(link(&mut ByteFields::new(&bytes, at), self.widths)?);
                }
            }
            for message in header.messages.iter().filter(|message| message.kind == kinds::LINK) {
                links.push(link(&mut message.whole()?, self.widths)?);
            }
        } else if let Some(message) = header.find(kinds::SYMBOLS) {
            let mut fields = message.whole()?;
            let width = self.widths.offsets;
            links = self.symbols(fields.defined(width)?, fields.defined(width)?)?;
        }
        Ok(links)
    }

    /// Reads a node of a B-tree, version 1. `level` is the expected level, which is unknown for the root.
    pub(super) fn first_node(
        &self,
        address: u64,
        kind: u8,
        level: Option<u8>,
        key_size: u64,
        most: u64,
    ) -> Result<FirstNode, Malformed> {
        let offsets = self.widths.offsets;
        let bytes = self.block(address, 8 + 2 * offsets, &[b'T', b'R', b'E', b'E', kind])?;
        let mut fields = self.fields(address, &bytes);
        let (found, count) = (fields.u8()?, fields.uint(2)?);
        if level.is_some_and(|level| level != found) || u64::from(found) > MAX_LEVEL || count > most {
            return Err(fields.damaged("a node of a B-tree has an impossible level or number of entries"));
        }
        let address = address.saturating_add(8 + 2 * offsets);
        let bytes = self.block(address, count * (key_size + offsets) + key_size, &[])?;
        let mut fields = self.fields(address, &bytes);
        let mut node = FirstNode { level: found, keys: Vec::new(), children: Vec::new() };
        for _ in 0..count {
            node.keys.push(fields.take(key_size)?.to_vec());
            node.children.push(fields.defined(offsets)?);
        }
        node.keys.push(fields.take(key_size)?.to_vec());
        Ok(node)
    }

    /// Returns the links of a group that has a symbol table.
    fn symbols(&self, tree: u64, heap: u64) -> Result<Vec<Hdf5Link>, Malformed> {
        let lengths = self.widths.lengths;
        let bytes = self.block(heap, 8 + 2 * lengths + self.widths.offsets, b"HEAP\0")?;
        let mut fields = self.fields(heap, &bytes);
        fields.take(3)?;
        let size = fields.uint(lengths)?;
        fields.take(lengths)?;
        let heap = self.block(fields.defined(self.widths.offsets)?, size, &[])?;
        let name = |offset: u64| {
            let rest = usize::try_from(offset).ok().and_then(|offset| heap.get(offset..))?;
            rest.split(|&byte| byte == 0).next().filter(|name| name.len() < rest.len())
        };
        let (mut leaves, mut left) = (Vec::new(), vec![(tree, None)]);
        while let Some((address, level)) = left.pop() {
            let node = self.first_node(address, 0, level, lengths, 2 * self.group_k)?;
            match node.level.checked_sub(1) {
                Some(level) => left.extend(node.children.iter().rev().map(|&child| (child, Some(level)))),
                None => leaves.extend(node.children),
            }
        }
        let (mut links, mut last): (_, &[u8]) = (Vec::new(), &[]);
        let mut length = 0;
        for leaf in leaves {
            for (link, is_soft, target) in self.symbols_of_leaf(leaf)? {
                let target = match is_soft {
                    false => Some(LinkTarget::Object(target)),
                    true => name(target).map(|path| LinkTarget::Soft(ended_text(path))),
                };
                // Names ascend in the whole tree, so no leaf occurs twice. Each name has its own bytes in the heap.
                length += name(link).map_or(0, |name| name.len() + 1);
                let name = name(link).filter(|&name| name > last && length <= heap.len());
                let (Some(name), Some(target)) = (name, target) else {
                    let at = self.base.saturating_add(leaf);
                    return Err(damaged(at, "names of a group are missing, not sorted, or overlap"));
                };
                links.push(Hdf5Link { name: ended_text(name), target });
                last = name;
            }
        }
        Ok(links)
    }

    /// Reads a leaf of a group: for each symbol where its name is in the heap, whether it is a soft link, and where its
    /// target is in the heap or the address of its object.
    fn symbols_of_leaf(&self, address: u64) -> Result<Vec<(u64, bool, u64)>, Malformed> {
        let offsets = self.widths.offsets;
        let bytes = self.block(address, 8, b"SNOD\x01")?;
        let mut fields = self.fields(address, &bytes);
        fields.take(1)?;
        let count = fields.uint(2)?;
        if count > 2 * self.leaf_k {
            return Err(fields.damaged("a leaf of a group has too many symbols"));
        }
        let bytes = self.block(address.saturating_add(8), count * (2 * offsets + 24), &[])?;
        let mut fields = self.fields(address, &bytes);
        let mut symbol = || {
            let (name, address, cache) = (fields.uint(offsets)?, fields.uint(offsets)?, fields.uint(8)?);
            let (soft, _) = (fields.uint(4)?, fields.take(12)?);
            // The lower half of the cache's word is its kind.
            Ok(if cache & 0xFFFF_FFFF == 2 { (name, true, soft) } else { (name, false, address) })
        };
        (0..count).map(|_| symbol()).collect()
    }

    /// Returns the size of the records of a B-tree, version 2, and all records, in no order.
    pub(super) fn records(&self, address: u64, kind: u8) -> Result<(usize, Vec<u8>), Malformed> {
        let Widths { offsets, lengths } = self.widths;
        let bytes = self.checked(address, 22 + offsets + lengths, &[b'B', b'T', b'H', b'D', 0, kind])?;
        let mut fields = self.fields(address, &bytes);
        let (node, record, depth) = (fields.uint(4)?, fields.uint(2)?, fields.uint(2)?);
        fields.take(2)?;
        let (root, count, total) = (fields.optional(offsets)?, fields.uint(2)?, fields.uint(lengths)?);
        let impossible = || damaged(self.base.saturating_add(address), "a B-tree has impossible sizes");
        let tree = SecondTree::new(kind, node, record, depth, offsets).ok_or_else(impossible)?;
        let (mut records, mut seen) = (Vec::new(), HashSet::new());
        let mut left: Vec<_> = root.map(|root| (root, count, depth)).into_iter().collect();
        while let Some((address, count, level)) = left.pop() {
            if !seen.insert(address) {
                return Err(damaged(self.base.saturating_add(address), "a node of a B-tree occurs twice"));
            }
            left.extend(self.second_node(&tree, address, count, level, &mut records)?);
        }
        let is_whole = total.checked_mul(record) == Some(records.len() as u64);
        if is_whole { Ok((record as usize, records)) } else { Err(impossible()) }
    }

    /// Reads a node of a B-tree, version 2, and returns its children: address, number of records, and level.
    fn second_node(
        &self,
        tree: &SecondTree,
        address: u64,
        count: u64,
        level: u64,
        records: &mut Vec<u8>,
    ) -> Result<Vec<(u64, u64, u64)>, Malformed> {
        let size = |level: u64| usize::try_from(level).ok().and_then(|level| tree.levels.get(level)).copied();
        if size(level).is_none_or(|(most, _)| count > most || count == 0 && level > 0) {
            return Err(damaged(
                self.base.saturating_add(address),
                "a node of a B-tree has impossible sizes",
            ));
        }
        let (children, total_width) = match level.checked_sub(1).and_then(size) {
            Some((_, total_width)) => (count + 1, total_width),
            None => (0, 0),
        };
        let pointers = children * (self.widths.offsets + tree.count_width + total_width);
        // The checksum follows the last record or pointer, and not the end of the node.
        let signature: &[u8] = if level == 0 { b"BTLF\0" } else { b"BTIN\0" };
        let bytes = self.checked(address, 10 + count * tree.record + pointers, signature)?;
        let mut fields = self.fields(address, &bytes);
        fields.version(&[tree.kind])?;
        records.extend(fields.take(count * tree.record)?);
        let mut child = || {
            let child = (fields.defined(self.widths.offsets)?, fields.uint(tree.count_width)?, level - 1);
            fields.take(total_width)?;
            Ok(child)
        };
        (0..children).map(|_| child()).collect()
    }

    /// Reads all blocks of a fractal heap.
    fn fractal_heap(&self, address: u64) -> Result<FractalHeap, Hdf5Fault> {
        let Widths { offsets, lengths } = self.widths;
        let bytes = self.checked(address, 26 + 3 * offsets + 12 * lengths, b"FRHP\0")?;
        let mut fields = self.fields(address, &bytes);
        let (_, filtered, flags) = (fields.uint(2)?, fields.uint(2)?, fields.u8()?);
        let largest_object = fields.uint(4)?;
        fields.take(2 * offsets + 10 * lengths)?;
        let (width, start, largest) = (fields.uint(2)?, fields.uint(lengths)?, fields.uint(lengths)?);
        let bits = fields.uint(2)?;
        fields.take(2)?;
        let (root, rows) = (fields.optional(offsets)?, fields.uint(2)?);
        if filtered > 0 {
            return refused("is in a group whose names are compressed, which is not read");
        }
        let is_power = |number: u64| number.is_power_of_two() && number < 1 << 32;
        if !is_power(width) || !is_power(start) || !is_power(largest) || start > largest || bits > 64 {
            return Err(fields.damaged("a heap has impossible sizes").into());
        }
        let offset_width = bits.div_ceil(8);
        let length_width = u64::from(largest.ilog2()).div_ceil(8).min(width_of(largest_object));
        let head = 5 + offsets + offset_width;
        let (mut blocks, mut length, mut seen) = (BTreeMap::new(), 0, HashSet::new());
        let mut left: Vec<_> = root.map(|root| (root, rows, 0_u64, start)).into_iter().collect();
        while let Some((address, rows, mut at, size)) = left.pop() {
            let wrong = |what: &str| damaged(self.base.saturating_add(address), what);
            if rows == 0 {
                let mut block = self.block(address, size, &[])?;
                if !block.starts_with(b"FHDB\0") {
                    return Err(wrong("a heap has a block of another kind").into());
                }
                // The checksum is that of the block with zeros in its place.
                let checksum = block.get_mut(head as usize..(head + 4) as usize).filter(|_| flags & 2 != 0);
                let stored = checksum.map(|stored| stored.iter_mut().map(std::mem::take).collect::<Vec<_>>());
                if stored.is_some_and(|stored| stored != lookup3(&block).to_le_bytes()) {
                    return Err(wrong("a checksum is wrong").into());
                }
                length += block.len() as u64;
                if length > MAX_HEAP || !seen.insert(address) {
                    return Err(wrong("a heap is too large, or a block of it occurs twice").into());
                }
                blocks.insert(at, (address, block));
                continue;
            }
            let bytes = self.checked(address, head + rows * width * offsets + 4, b"FHIB\0")?;
            let mut fields = self.fields(address, &bytes);
            fields.take(head - 5)?;
            for row in 0..rows {
                // The first two rows have blocks of the starting size; in each later row the size doubles.
                let size = 1_u64
                    .checked_shl(row.saturating_sub(1) as u32)
                    .and_then(|times| start.checked_mul(times));
                let size = size.ok_or_else(|| wrong("a heap has impossible sizes"))?;
                let rows =
                    if size > largest { u64::from((size / start / width).max(1).ilog2()) + 1 } else { 0 };
                for _ in 0..width {
                    left.extend(fields.optional(offsets)?.map(|child| (child, rows, at, size)));
                    at = at.saturating_add(size);
                }
            }
        }
        Ok(FractalHeap { offset_width, length_width, blocks, length })
    }

    /// Returns where an object of a heap is in the file, and its bytes.
    fn heap_object(&self, heap: &FractalHeap, id: &[u8]) -> Result<(u64, Vec<u8>), Hdf5Fault> {
        let mut fields = ByteFields::new(id, self.base);
        match fields.u8()? & 0xF0 {
            0 => {}
            0x10 => return refused("has more than 64 KiB, which is not read"),
            _ => return Err(fields.damaged("an object of a heap has an unknown kind").into()),
        }
        let (offset, length) = (fields.uint(heap.offset_width)?, fields.uint(heap.length_width)?);
        let object = heap.blocks.range(..=offset).next_back().and_then(|(at, (address, block))| {
            let mut fields = ByteFields::new(block, self.base.saturating_add(*address));
            fields.take(offset - at).ok()?;
            Some((fields.position(), fields.take(length).ok()?.to_vec()))
        });
        Ok(object.ok_or_else(|| fields.damaged("an object is outside of its heap"))?)
    }

    /// Returns the attributes of these names of an object, `None` for each that it lacks.
    pub(super) fn attributes_of(
        &self,
        header: &ObjectHeader,
        names: &[&str],
    ) -> Result<Vec<Option<Hdf5Attribute>>, Hdf5Fault> {
        let mut found: Vec<Option<Hdf5Attribute>> = names.iter().map(|_| None).collect();
        for message in header.messages.iter().filter(|message| message.kind == kinds::ATTRIBUTE) {
            self.add_attribute(message.whole()?, names, &mut found)?;
        }
        let Some(message) = header.find(kinds::ATTRIBUTES) else { return Ok(found) };
        let Some((heap, tree)) = dense(&mut message.whole()?, self.widths, 2)? else { return Ok(found) };
        let heap = self.fractal_heap(heap)?;
        let hashes: Vec<u32> = names.iter().map(|name| lookup3(name.as_bytes())).collect();
        let (size, records) = self.records(tree, 8)?;
        for record in records.chunks_exact(size) {
            let mut fields = self.fields(tree, record);
            let (id, flags, _) = (fields.take(8)?, fields.u8()?, fields.take(4)?);
            if hashes.contains(&fields.u32()?) && flags & 2 == 0 {
                let (at, bytes) = self.heap_object(&heap, id)?;
                self.add_attribute(ByteFields::new(&bytes, at), names, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Reads an attribute if its name is one of these.
    fn add_attribute(
        &self,
        mut fields: ByteFields<'_>,
        names: &[&str],
        found: &mut [Option<Hdf5Attribute>],
    ) -> Result<(), Hdf5Fault> {
        let version = fields.version(&[1, 2, 3])?;
        let flags = fields.u8()? & if version == 1 { 0 } else { 3 };
        let sizes = [fields.uint(2)?, fields.uint(2)?, fields.uint(2)?];
        fields.take(if version == 3 { 1 } else { 0 })?;
        // Version 1 pads name, type and shape to multiples of 8 bytes.
        let [name, kind, space] =
            sizes.map(|size| if version == 1 { size.next_multiple_of(8) } else { size });
        let name = fields.text(name)?;
        let mut places = names.iter().zip(found).filter(|(wanted, _)| **wanted == name);
        let Some((_, found)) = places.next() else { return Ok(()) };
        let mut apart =
            |size| Ok::<_, Malformed>(ByteFields::new(fields.take(size)?, fields.position() - size));
        let (kind, mut space) = (apart(kind)?, apart(space)?);
        if flags & 2 != 0 {
            return refused("shares its shape with other objects, which is not read");
        }
        let kind = self.stored_type(kind, flags & 1 != 0)?;
        let Dataspace { mut shape, .. } = dataspace(&mut space, self.widths)?;
        let size = shape.iter().try_fold(kind.size, |all, &edge| all.checked_mul(edge));
        let bytes = fields.take(size.unwrap_or(u64::MAX))?;
        shape.extend(&kind.array);
        let values = self.values(&kind, bytes)?;
        found.get_or_insert(Hdf5Attribute { shape, values });
        Ok(())
    }

    fn values(&self, kind: &Hdf5Type, bytes: &[u8]) -> Result<Hdf5Values, Hdf5Fault> {
        let mut heap = GlobalHeap::default();
        Ok(match &kind.content {
            TypeContent::Plain(element) if element.kind == Hdf5Kind::Text => {
                Hdf5Values::Texts(bytes.chunks_exact(element.size as usize).map(ended_text).collect())
            }
            TypeContent::Plain(element) => Hdf5Values::Numbers(*element, bytes.to_vec()),
            TypeContent::Rows(element) if element.kind == Hdf5Kind::Text => {
                let texts =
                    bytes.chunks_exact(usize::try_from(kind.size).unwrap_or(usize::MAX)).map(|value| {
                        let (offset, length) = heap.row(self, value, 1)?;
                        Ok(ended_text(&self.pages.read(offset, length.into())?))
                    });
                Hdf5Values::Texts(texts.collect::<Result<_, Malformed>>()?)
            }
            TypeContent::Rows(_) => return refused("has lists of variable length, which are not read"),
            TypeContent::Refused(why) => return refused(format!("has values of {why}, which is not read")),
        })
    }

    /// Decodes a type, which may be that of another object.
    pub(super) fn stored_type(
        &self,
        mut fields: ByteFields<'_>,
        is_shared: bool,
    ) -> Result<Hdf5Type, Hdf5Fault> {
        if !is_shared {
            return Ok(datatype(&mut fields, self.widths, 0)?);
        }
        let header = self.header(shared(fields, self.widths)?)?;
        let message = header.find(kinds::TYPE);
        let message = message.ok_or_else(|| damaged(header.at, "a type that others share does not exist"))?;
        Ok(datatype(&mut message.whole()?, self.widths, 0)?)
    }
}

impl SecondTree {
    /// Returns `None` for impossible sizes.
    fn new(kind: u8, node: u64, record: u64, depth: u64, offsets: u64) -> Option<Self> {
        // Signature, version, kind and checksum.
        const HEAD: u64 = 10;
        let most = node.checked_sub(HEAD)?.checked_div(record)?;
        let count_width = width_of(most);
        let (mut levels, mut all, mut total_width) = (vec![(most, 0)], most, 0);
        for _ in 0..depth.min(MAX_LEVEL) {
            let pointer = offsets + count_width + total_width;
            let most = node.checked_sub(HEAD + pointer)? / (record + pointer);
            all = most.saturating_add(1).saturating_mul(all).saturating_add(most);
            total_width = width_of(all);
            levels.push((most, total_width));
        }
        Some(Self { kind, record, levels, count_width })
    }
}

impl GlobalHeap {
    /// Returns where a value of variable length is: offset in the file, and size in bytes. Each of its elements has
    /// `size` bytes.
    pub(super) fn row(
        &mut self,
        file: &Hdf5File<'_>,
        value: &[u8],
        size: u32,
    ) -> Result<(u64, u32), Malformed> {
        let mut fields = ByteFields::new(value, file.base);
        let (count, address, index) = (fields.u32()?, fields.uint(file.widths.offsets)?, fields.uint(4)?);
        // An empty value has no object.
        if count == 0 {
            return Ok((0, 0));
        }
        let objects = match self.collections.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Self::collection(file, address)?),
        };
        let object = objects.get(&index);
        match (object, count.checked_mul(size)) {
            (Some(&(at, most)), Some(length)) if u64::from(length) <= most => Ok((at, length)),
            _ => Err(damaged(
                file.base.saturating_add(address),
                "a value of variable length is not in its heap",
            )),
        }
    }

    fn collection(file: &Hdf5File<'_>, address: u64) -> Result<HashMap<u64, (u64, u64)>, Malformed> {
        let lengths = file.widths.lengths;
        let bytes = file.block(address, 8 + lengths, b"GCOL\x01")?;
        let mut fields = file.fields(address, &bytes);
        fields.take(3)?;
        let size = fields.uint(lengths)?;
        let start = file.data(address, size)?;
        let (mut objects, mut at) = (HashMap::new(), 8 + lengths);
        while at + 8 + lengths <= size {
            let bytes = file.block(address + at, 8 + lengths, &[])?;
            let mut fields = file.fields(address + at, &bytes);
            let (index, _, length) = (fields.uint(2)?, fields.take(6)?, fields.uint(lengths)?);
            // The rest of the collection is free.
            if index == 0 {
                break;
            }
            at += 8 + lengths;
            let end = at.checked_add(length).filter(|&end| end <= size);
            if end.is_none() || objects.insert(index, (start + at, length)).is_some() {
                return Err(fields.damaged("an object of a heap exceeds it, or occurs twice"));
            }
            at = end.unwrap_or(size).next_multiple_of(8);
        }
        Ok(objects)
    }
}
