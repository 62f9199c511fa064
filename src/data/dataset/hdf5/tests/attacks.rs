//! Files that were made to exhaust time or memory. Each is an error soon, and little of it is read.

use super::*;
use std::cell::Cell;

/// A file with a hole of any size at its end, which counts the bytes that are read.
struct Holed {
    bytes: Vec<u8>,
    size: u64,
    read: Cell<u64>,
}

impl ReadAt for Holed {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.read.set(self.read.get() + buffer.len() as u64);
        buffer.fill(0);
        self.bytes.read_at(buffer, offset)?;
        Ok(buffer.len().min(self.size.saturating_sub(offset) as usize))
    }
}

/// A file that is written piece by piece, after room for its superblock.
struct Forged(Vec<u8>);

const NOWHERE: u64 = u64::MAX;

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn checked(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = join(parts);
    bytes.extend(lookup3(&bytes).to_le_bytes());
    bytes
}

/// An object header of version 1. Groups with links also have a message which says that they are in the header.
fn header(messages: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut content = Vec::new();
    let links = (kinds::LINKS, join(&[&[0, 0], &numbers(&[NOWHERE, NOWHERE])]));
    let has_links = messages.iter().any(|(kind, _)| *kind == kinds::LINK);
    for (kind, message) in has_links.then_some(&links).into_iter().chain(messages) {
        let length = message.len().next_multiple_of(8);
        content.extend(join(&[&kind.to_le_bytes(), &(length as u16).to_le_bytes(), &[0; 4], message]));
        content.resize(content.len().next_multiple_of(8), 0);
    }
    let length = (content.len() as u32).to_le_bytes();
    join(&[&[1, 0, messages.len() as u8, 0, 1, 0, 0, 0], &length, &[0; 4], &content])
}

fn link(name: &str, object: u64) -> (u16, Vec<u8>) {
    (kinds::LINK, join(&[&[1, 0, name.len() as u8], name.as_bytes(), &object.to_le_bytes()]))
}

fn soft(name: &str, path: &str) -> (u16, Vec<u8>) {
    let path = join(&[&(path.len() as u16).to_le_bytes(), path.as_bytes()]);
    (kinds::LINK, join(&[&[1, 8, 1, name.len() as u8], name.as_bytes(), &path]))
}

fn shape(lengths: &[u64]) -> (u16, Vec<u8>) {
    (kinds::SPACE, join(&[&[1, lengths.len() as u8, 0, 0, 0, 0, 0, 0], &numbers(lengths)]))
}

/// Unsigned integers of one byte.
fn bytes() -> (u16, Vec<u8>) {
    (kinds::TYPE, vec![0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0])
}

fn texts(size: u32) -> (u16, Vec<u8>) {
    (kinds::TYPE, join(&[&[0x13, 0, 0, 0], &size.to_le_bytes()]))
}

fn contiguous(address: u64, size: u64) -> (u16, Vec<u8>) {
    (kinds::LAYOUT, join(&[&[3, 1], &numbers(&[address, size])]))
}

/// Chunks in a B-tree of version 1.
fn chunked(address: u64, edges: &[u32]) -> (u16, Vec<u8>) {
    let edges: Vec<u8> = edges.iter().chain(&[1]).flat_map(|edge| edge.to_le_bytes()).collect();
    (kinds::LAYOUT, join(&[&[3, 2, edges.len() as u8 / 4], &address.to_le_bytes(), &edges]))
}

/// Chunks with an index of this kind, whose parameters are zero.
fn indexed(address: u64, edges: &[u64], kind: u8, parameters: usize) -> (u16, Vec<u8>) {
    let start = [4, 2, 0, edges.len() as u8 + 1, 8];
    let edges = numbers(&[edges, &[1]].concat());
    let end = join(&[&[kind], &vec![0; parameters], &address.to_le_bytes()]);
    (kinds::LAYOUT, join(&[&start, &edges, &end]))
}

/// A node of a B-tree of version 1. Keys and children take turns.
fn node(kind: u8, level: u8, children: u16, rest: &[u64]) -> Vec<u8> {
    let count = children.to_le_bytes();
    join(&[b"TREE", &[kind, level], &count, &numbers(&[NOWHERE, NOWHERE]), &numbers(rest)])
}

impl Forged {
    fn new() -> Self {
        Self(vec![0; 48])
    }

    /// Where the next piece will be.
    fn next(&self) -> u64 {
        self.0.len() as u64
    }

    fn add(&mut self, piece: &[u8]) -> u64 {
        let at = self.next();
        self.0.extend(piece);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        at
    }

    /// The file with this root group and size.
    fn whole(mut self, root: u64, size: u64) -> Holed {
        let superblock = checked(&[SIGNATURE, &[2, 8, 8, 0], &numbers(&[0, NOWHERE, size, root])]);
        self.0[..48].copy_from_slice(&superblock);
        Holed { bytes: self.0, size, read: Cell::new(0) }
    }

    /// A file whose root group has a dataset `x` with these messages.
    fn dataset(mut self, messages: &[(u16, Vec<u8>)], size: u64) -> Holed {
        let dataset = self.add(&header(messages));
        let root = self.add(&header(&[link("x", dataset)]));
        self.whole(root, size)
    }

    /// A file with this root group.
    fn group(mut self, messages: &[(u16, Vec<u8>)], size: u64) -> Holed {
        let root = self.add(&header(messages));
        self.whole(root, size)
    }
}

/// What becomes of a file: its datasets, the dataset and attribute `x`, or why not.
fn outcome(file: &Holed) -> String {
    let open = Hdf5File::open(file).and_then(|opened| {
        let list = opened.list();
        let array = opened.array("/x");
        let attributes = opened.attributes("/x", &["x"]);
        list.and(array).and_then(|array| attributes.map(|attributes| format!("{array:?} {attributes:?}")))
    });
    open.unwrap_or_else(|fault| match fault {
        Hdf5Fault::Missing(why) | Hdf5Fault::Refused(why) => why,
        Hdf5Fault::Damaged(malformed) => malformed.message,
    })
}

/// Files in which something leads to itself, or to one place over and over.
fn circles() -> Vec<(Holed, &'static str)> {
    let size = 1 << 20;
    let on = |address: u64| (kinds::CONTINUATION, numbers(&[address, 24]));
    let mut files = Vec::new();
    let mut forged = Forged::new();
    let block = forged.next();
    forged.add(&header(&[on(block)])[16..]);
    files.push((forged.dataset(&[on(block)], size), "continues in itself"));
    files.push((Forged::new().group(&[soft("x", "/x")], size), "soft links"));
    files.push((Forged::new().group(&[soft("x", "/y"), soft("y", "x/../x")], size), "soft links"));
    let forged = Forged::new();
    let root = forged.next();
    files.push((forged.group(&[link("y", root)], size), "it has no dataset \"/x\""));
    let mut forged = Forged::new();
    let mut group = forged.add(&header(&[bytes()]));
    (0..70).for_each(|_| group = forged.add(&header(&[link("y", group)])));
    files.push((forged.whole(group, size), "more than 64 groups"));
    let mut forged = Forged::new();
    let mut group = forged.add(&header(&[bytes()]));
    (0..30).for_each(|_| group = forged.add(&header(&[link(&"y".repeat(200), group)])));
    files.push((forged.whole(group, size), "a path has more than 4096 bytes"));
    // Groups with a tree whose node is its own child, is on level 255, or has one child many times.
    for (level, word) in [(1, "impossible level"), (255, "impossible level")] {
        let mut forged = Forged::new();
        let heap = forged.add(&join(&[b"HEAP\0\0\0\0", &numbers(&[8, NOWHERE, 0])]));
        let tree = forged.next();
        forged.add(&node(0, level, 2, &[0, tree, 0, tree, 0]));
        files.push((forged.group(&[(kinds::SYMBOLS, numbers(&[tree, heap]))], size), word));
    }
    let mut forged = Forged::new();
    let heap = forged.add(&join(&[b"HEAP\0\0\0\0", &numbers(&[8, NOWHERE, 0])]));
    let mut tree = forged.add(&node(0, 0, 0, &[0]));
    (1..64).for_each(|level| tree = forged.add(&node(0, level, 2, &[0, tree, 0, tree, 0])));
    files.push((forged.group(&[(kinds::SYMBOLS, numbers(&[tree, heap]))], size), "more metadata is read"));
    // Names that are the ends of one name.
    let mut forged = Forged::new();
    let names = forged.add(b"aaaaaaa\0");
    let heap = forged.add(&join(&[b"HEAP\0\0\0\0", &numbers(&[8, NOWHERE, names])]));
    let symbols: Vec<u64> = (0..7).rev().flat_map(|name| [name, 48, 0, 0, 0]).collect();
    let leaf = forged.add(&join(&[b"SNOD\x01\0\x07\0", &numbers(&symbols)]));
    let tree = forged.add(&node(0, 0, 1, &[0, leaf, 7]));
    files.push((forged.group(&[(kinds::SYMBOLS, numbers(&[tree, heap]))], size), "overlap"));
    // A tree of chunks whose node is its own child.
    let mut forged = Forged::new();
    let tree = forged.next();
    forged.add(&node(1, 1, 2, &[1, 0, 0, tree, 1, 1, 0, tree, 1, 2, 0]));
    files.push((forged.dataset(&[shape(&[9]), bytes(), chunked(tree, &[1])], size), "impossible level"));
    // A B-tree of version 2 whose inner node is its own child.
    let mut forged = Forged::new();
    let node = forged.next();
    let (count, child) = (1_u8, join(&[&node.to_le_bytes(), &[1, 1, 0]]));
    let inner = checked(&[b"BTIN\0\x0A", &[0; 16], &child, &child]);
    forged.add(&inner);
    let sizes = join(&[&512_u32.to_le_bytes(), &16_u16.to_le_bytes(), &3_u16.to_le_bytes(), &[100, 40]]);
    let end = join(&[&node.to_le_bytes(), &[count, 0], &9_u64.to_le_bytes()]);
    let tree = forged.add(&checked(&[b"BTHD\0\x0A", &sizes, &end]));
    files.push((forged.dataset(&[shape(&[9]), bytes(), indexed(tree, &[1], 5, 6)], size), "occurs twice"));
    files
}

/// Files that state sizes that nothing has.
fn sizes() -> Vec<(Holed, &'static str)> {
    // Most of the file is a hole, so large things are in the file.
    let size = 1 << 50;
    let dataset = |messages: &[(u16, Vec<u8>)]| Forged::new().dataset(messages, size);
    let attribute = |space: (u16, Vec<u8>), kind: (u16, Vec<u8>)| {
        let (kind_length, space_length) = (kind.1.len() as u8, space.1.len() as u8);
        let start = [1, 0, 2, 0, kind_length, 0, space_length, 0];
        let pad = |mut bytes: Vec<u8>| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        let message = join(&[&start, &pad(b"x\0".to_vec()), &pad(kind.1), &pad(space.1)]);
        dataset(&[shape(&[1]), bytes(), contiguous(48, 1), (kinds::ATTRIBUTE, message)])
    };
    let mut forged = Forged::new();
    let heap = forged.add(&join(&[b"HEAP\0\0\0\0", &numbers(&[1 << 40, NOWHERE, 0])]));
    let tree = forged.add(&node(0, 0, 0, &[0]));
    let heap = forged.group(&[(kinds::SYMBOLS, numbers(&[tree, heap]))], size);
    let mut forged = Forged::new();
    let array = forged.add(&checked(&[b"FAHD\0\0", &[8, 40], &numbers(&[1 << 39, 4096])]));
    let of_array = indexed(array, &[1], 3, 1);
    let fixed = forged.dataset(&[shape(&[1 << 39]), bytes(), of_array], size);
    let mut forged = Forged::new();
    let long = forged.add(&join(&[b"OHDR\x02\x03", &(1_u64 << 45).to_le_bytes()]));
    let long = forged.group(&[link("x", long)], size);
    let rows = (kinds::TYPE, join(&[&[0x19, 1, 0, 0, 16, 0, 0, 0], &bytes().1]));
    let mut forged = Forged::new();
    let collection = forged.add(&join(&[b"GCOL\x01\0\0\0", &numbers(&[1 << 45, 1 | 1 << 32, 1 << 60])]));
    let value = join(&[&1_u32.to_le_bytes(), &collection.to_le_bytes(), &1_u32.to_le_bytes()]);
    let value = forged.add(&value);
    let heap_of_rows = forged.dataset(&[shape(&[1]), rows, contiguous(value, 16)], size);
    vec![
        (
            dataset(&[shape(&[1 << 40, 1 << 40]), bytes(), contiguous(48, 1)]),
            "more values than can be counted",
        ),
        (dataset(&[shape(&[u64::MAX]), bytes(), contiguous(48, u64::MAX)]), "outside of the file"),
        (dataset(&[shape(&[9]), bytes(), contiguous(size - 8, 9)]), "outside of the file"),
        (dataset(&[shape(&[9]), bytes(), contiguous(48, 8)]), "shorter than its shape"),
        (dataset(&[shape(&[1 << 60]), bytes(), indexed(4096, &[1], 2, 0)]), "too many chunks"),
        (dataset(&[shape(&[1 << 45]), bytes(), indexed(4096, &[1], 2, 0)]), "too many chunks"),
        (fixed, "too many chunks"),
        (dataset(&[shape(&[9, 9]), bytes(), chunked(NOWHERE, &[u32::MAX, u32::MAX])]), "has chunks of"),
        (dataset(&[shape(&[9]), bytes(), chunked(NOWHERE, &[1 << 31])]), "has chunks of"),
        (dataset(&[shape(&[9]), bytes(), chunked(NOWHERE, &[0])]), "do not fit"),
        (dataset(&[shape(&[1]), texts(u32::MAX), contiguous(4096, 1 << 32)]), "texts of 4294967295 bytes"),
        (dataset(&[shape(&[1; 33]), bytes(), contiguous(48, 1)]), "impossible rank"),
        (heap, "too large"),
        (long, "too large"),
        (heap_of_rows, "exceeds it"),
        (attribute(shape(&[1 << 60]), bytes()), "the file is damaged"),
        (attribute(shape(&[1]), texts(u32::MAX)), "the file is damaged"),
    ]
}

#[test]
fn hostile_files_are_errors_soon() {
    for (number, (file, word)) in circles().into_iter().chain(sizes()).enumerate() {
        let why = outcome(&file);
        assert!(why.contains(word), "file {number} is not refused for {word:?}: {why}");
        assert!(file.read.get() < 64 << 20, "file {number}: {} bytes of it are read", file.read.get());
    }
}

#[test]
fn messages_that_hdf5_does_not_read_are_errors() {
    // The flags and the size of the first message of a dataset.
    for (at, value) in [(68, 6), (68, 0x28), (68, 0x20), (66, 15)] {
        let mut file = Forged::new().dataset(&[shape(&[3]), bytes(), contiguous(48, 3)], 1 << 20);
        file.bytes[at] = value;
        assert!(outcome(&file).contains("a message has impossible flags"), "{value} at {at}");
    }
}

#[test]
fn forged_files_without_faults_are_read() {
    let messages = [shape(&[3, 4]), bytes(), contiguous(48, 12)];
    let found = outcome(&Forged::new().dataset(&messages, 1 << 20));
    assert!(found.starts_with("Hdf5Array { shape: [3, 4]") && found.contains("Run(48)"), "{found}");
    // A grid of 2^60 chunks, of which none is stored.
    let found =
        outcome(&Forged::new().dataset(&[shape(&[1 << 60]), bytes(), chunked(NOWHERE, &[1])], 1 << 20));
    assert!(found.contains("places: []"), "{found}");
}
