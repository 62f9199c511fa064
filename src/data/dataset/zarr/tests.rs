//! Arrays that zarr-python wrote (`tests/fixtures/writers/chunks.py`), and documents that are wrong or not read.

use super::*;
use crate::dataset::arrays::filters::{ChunkScratch, unpack_chunk};
use base::rng::{RandomKey, RandomStream, Use};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;

const ARRAYS: &[u8] = include_bytes!("../../../../tests/fixtures/chunks/zarr.jsonl.gz");

#[derive(Deserialize)]
struct Golden {
    name: String,
    documents: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    values: String,
}

fn decoded(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap()
}

impl Golden {
    fn all() -> Vec<Self> {
        let lines = serde_json::Deserializer::from_reader(GzDecoder::new(ARRAYS));
        lines.into_iter().map(Result::unwrap).collect()
    }

    fn document(&self) -> &[u8] {
        let main = self.documents.get("zarr.json").or(self.documents.get(".zarray"));
        main.unwrap().as_bytes()
    }

    fn open(&self, document: &[u8]) -> Result<ZarrArray, String> {
        if self.documents.contains_key("zarr.json") {
            match node_v3(document)? {
                ZarrNode::Array(array) => Ok(*array),
                ZarrNode::Group { .. } => Err("is a group".to_owned()),
            }
        } else {
            array_v2(document, self.documents.get(".zattrs").map(String::as_bytes))
        }
    }
}

/// The elements of an array, row-major and little-endian, from its files.
fn read(array: &ZarrArray, files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, String> {
    let size = usize::from(array.element.size);
    let mut values = array.fill.repeat(array.shape.iter().product::<u64>() as usize);
    let mut scratch = ChunkScratch::default();
    let mut place = |number: u64, packed: &[u8]| -> Result<(), String> {
        let bytes = array.chunk_bytes() as usize;
        let chunk = unpack_chunk(&array.filters, 0, packed, bytes, &mut scratch)?;
        let first = coordinates(number, &array.grid());
        for (inside, element) in chunk.chunks_exact(size).enumerate() {
            let inside = coordinates(inside as u64, &array.chunk);
            let at = first.iter().zip(&array.chunk).zip(&inside).map(|((first, each), at)| first * each + at);
            let at = at
                .zip(&array.shape)
                .try_fold(0, |sum, (at, length)| (at < *length).then(|| sum * length + at));
            let Some(at) = at else { continue };
            let target = &mut values[at as usize * size..][..size];
            target.copy_from_slice(element);
            if array.element.swapped {
                target.reverse();
            }
        }
        Ok(())
    };
    for file in 0..array.files().iter().product() {
        let Some(bytes) = files.get(&array.key(file)) else { continue };
        let Some(shards) = &array.shards else {
            place(file, bytes)?;
            continue;
        };
        let range = shards.index_range(bytes.len() as u64)?;
        let index = &bytes[range.start as usize..range.end as usize];
        for cell in array.shard_cells(file, index, bytes.len() as u64)? {
            place(cell.chunk, &bytes[cell.offset as usize..][..cell.length as usize])?;
        }
    }
    Ok(values)
}

#[test]
fn arrays_are_what_zarr_wrote() {
    let all = Golden::all();
    assert!(all.len() > 50, "{}", all.len());
    for golden in all {
        let array = golden.open(golden.document()).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        let files: BTreeMap<_, _> =
            golden.files.iter().map(|(key, text)| (key.clone(), decoded(text))).collect();
        let keys: Vec<_> = (0..array.files().iter().product()).map(|file| array.key(file)).collect();
        let unknown = files.keys().find(|key| !keys.contains(key));
        assert_eq!(unknown, None, "{}", golden.name);
        let found = read(&array, &files).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert!(found == decoded(&golden.values), "{}", golden.name);
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    for _ in 0..=random.below(2) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        let at = random.below(last + 1) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = b"0123456789-\"[]{},."[random.below(18) as usize],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, b"0123456789-\"[]{},."[random.below(18) as usize]),
            4 => drop(bytes.remove(at)),
            _ => {
                let end = bytes.len().min(at + random.below(40) as usize);
                bytes.copy_within(at..end, random.below(at as u64 + 1) as usize);
            }
        }
    }
}

#[test]
fn damaged_documents_and_indexes_cause_no_panic() {
    let seed = std::env::var("FORELOAD_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FORELOAD_FUZZ_SEED={seed}");
    let mut random = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
    for golden in Golden::all() {
        let whole = golden.open(golden.document()).unwrap();
        for _ in 0..1000 {
            let mut document = golden.document().to_vec();
            damage(&mut document, &mut random);
            if let Ok(array) = golden.open(&document) {
                assert_eq!(array.fill.len(), usize::from(array.element.size));
                assert!(array.files().iter().product::<u64>() <= u64::from(u32::MAX));
                let key = array.key(random.below(100));
                assert!(key.bytes().all(|byte| byte.is_ascii_digit() || b"c./".contains(&byte)), "{key}");
                assert!(!key.contains("..") && !key.contains("//") && !key.starts_with('/'), "{key}");
            }
        }
        let Some(shards) = &whole.shards else { continue };
        let (file, bytes) = golden.files.iter().next().map(|(key, text)| (key, decoded(text))).unwrap();
        let file = (0..100).find(|&number| whole.key(number) == *file).unwrap();
        let size = bytes.len() as u64;
        let range = shards.index_range(size).unwrap();
        let index = &bytes[range.start as usize..range.end as usize];
        for _ in 0..1000 {
            let mut damaged = index.to_vec();
            damage(&mut damaged, &mut random);
            match whole.shard_cells(file, &damaged, size) {
                Ok(cells) => {
                    assert!(!shards.has_checksum || damaged == index, "{}", golden.name);
                    assert!(cells.iter().all(|cell| cell.offset + u64::from(cell.length) <= size));
                    assert!(cells.iter().all(|cell| cell.chunk < whole.grid().iter().product()));
                }
                Err(error) => assert!(error.starts_with("has a"), "{error}"),
            }
        }
        assert!(shards.index_range(shards.index_bytes() - 1).unwrap_err().contains("is truncated"));
    }
}

/// A document of version 2 with some entries replaced; `-` removes an entry.
fn v2(changes: &[(&str, &str)]) -> Result<ZarrArray, String> {
    let usual = [
        ("zarr_format", "2"),
        ("shape", "[4, 6]"),
        ("chunks", "[2, 3]"),
        ("dtype", "\"<f4\""),
        ("fill_value", "null"),
        ("order", "\"C\""),
        ("compressor", "null"),
        ("filters", "null"),
    ];
    array_v2(with(&usual, changes).as_bytes(), None)
}

fn v3(changes: &[(&str, &str)]) -> Result<ZarrArray, String> {
    let usual = [
        ("zarr_format", "3"),
        ("node_type", "\"array\""),
        ("shape", "[4, 6]"),
        ("data_type", "\"float32\""),
        ("chunk_grid", r#"{"name": "regular", "configuration": {"chunk_shape": [2, 3]}}"#),
        ("chunk_key_encoding", r#"{"name": "default"}"#),
        ("fill_value", "0"),
        ("codecs", r#"[{"name": "bytes", "configuration": {"endian": "little"}}]"#),
    ];
    match node_v3(with(&usual, changes).as_bytes())? {
        ZarrNode::Array(array) => Ok(*array),
        ZarrNode::Group { .. } => Err("is a group".to_owned()),
    }
}

fn with(usual: &[(&str, &str)], changes: &[(&str, &str)]) -> String {
    let changed = |key: &str| changes.iter().any(|(other, _)| *other == key);
    let kept = usual.iter().filter(|(key, _)| !changed(key));
    let entries = kept.chain(changes.iter().filter(|(_, value)| *value != "-"));
    let entries: Vec<_> = entries.map(|(key, value)| format!("{key:?}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for (key, value, message) in [
        ("zarr_format", "3", "has the zarr_format 3, must be 2"),
        ("zarr_format", "-", "has no \"zarr_format\""),
        ("shape", "[4]", "do not match"),
        ("shape", "[4, -6]", "must be a list of lengths"),
        ("shape", "[4, 6.0]", "must be a list of lengths"),
        ("shape", "[18446744073709551615, 18446744073709551615]", "more than 4294967295 chunk files"),
        ("chunks", "[2, 0]", "do not match"),
        ("chunks", "[4294967296, 4294967296]", "which is too large"),
        ("dtype", "\"|O\"", "has elements of the type \"|O\", which is not read"),
        ("dtype", "\"<U5\"", "\"<U5\""),
        ("dtype", "\"<c8\"", "\"<c8\""),
        ("dtype", "\"<M8[ns]\"", "\"<M8[ns]\""),
        ("dtype", "\"<\"", "\"<\""),
        ("dtype", "\"|f4\"", "\"|f4\""),
        ("dtype", "\"<u1\"", "\"<u1\""),
        ("dtype", "[[\"a\", \"<f4\"]]", "[[\"a\", \"<f4\"]]"),
        ("fill_value", "-", "has no \"fill_value\""),
        ("fill_value", "\"one\"", "has the fill_value \"one\", which its type cannot have"),
        ("fill_value", "\"0x7fc00000\"", "0x7fc00000"),
        ("order", "\"A\"", "must be \"C\" or \"F\""),
        ("dimension_separator", "\"..\"", "has the separator \"..\" in chunk names"),
        (
            "compressor",
            "{\"id\": \"bz2\"}",
            "is encoded with bz2, which is not read: write it with zstd, blosc",
        ),
        ("compressor", "{}", "without an id"),
        ("filters", "[{\"id\": \"vlen-utf8\"}]", "is encoded with vlen-utf8"),
        ("filters", "[{\"id\": \"zstd\"}, {\"id\": \"blosc\"}]", "is compressed twice, with zstd and blosc"),
        ("filters", "[{\"id\": \"shuffle\", \"elementsize\": 5}]", "elements of 5 bytes, which do not fit"),
        ("filters", "[{\"id\": \"delta\", \"dtype\": \"<f4\"}]", "delta of floats"),
        ("filters", "[{\"id\": \"fixedscaleoffset\"}]", "is encoded with fixedscaleoffset"),
        ("filters", "7", "must be a list"),
    ] {
        let error = v2(&[(key, value)]).unwrap_err();
        assert!(error.contains(message), "{key} {value}: {error}");
    }
    let bytes = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;
    let codecs = |listed: &str| listed.replace("BYTES", bytes);
    let sharded = |inner: &str, index: &str, chunk: &str| {
        let configuration =
            format!(r#"{{"chunk_shape": {chunk}, "codecs": [{inner}], "index_codecs": [{index}]}}"#);
        codecs(&format!(r#"[{{"name": "sharding_indexed", "configuration": {configuration}}}]"#))
    };
    for (key, value, message) in [
        ("node_type", "\"list\"".to_owned(), "has the node_type \"list\""),
        ("zarr_format", "2".to_owned(), "must be 3"),
        (
            "data_type",
            "\"complex64\"".to_owned(),
            "has elements of the type \"complex64\", which is not read",
        ),
        (
            "data_type",
            "{\"name\": \"numpy.datetime64\", \"configuration\": {\"unit\": \"s\"}}".to_owned(),
            "of the type \"numpy.datetime64\", which is not read: write it as bool, an integer of 8 to 64 bits",
        ),
        ("fill_value", "null".to_owned(), "has the fill_value null"),
        ("fill_value", "\"0x7fc0\"".to_owned(), "0x7fc0"),
        ("chunk_grid", "{\"name\": \"rectilinear\"}".to_owned(), "write chunks of equal shape"),
        ("chunk_key_encoding", "\"fanout\"".to_owned(), "has the chunk_key_encoding \"fanout\""),
        ("storage_transformers", "[{}]".to_owned(), "has storage_transformers"),
        ("dimension_names", "[\"x\"]".to_owned(), "has the dimension_names [\"x\"] for the shape [4, 6]"),
        ("extra", "{\"name\": 1}".to_owned(), "the key \"extra\", which is not read"),
        ("codecs", "[]".to_owned(), "has no codec that makes bytes"),
        ("codecs", "[{\"name\": \"bytes\"}]".to_owned(), "without \"endian\""),
        ("codecs", codecs("[BYTES, BYTES]"), "has the codec bytes at a wrong place"),
        ("codecs", codecs("[\"zstd\", BYTES]"), "has the codec zstd at a wrong place"),
        ("codecs", codecs("[BYTES, \"numcodecs.lzma\"]"), "is encoded with lzma, which is not read"),
        ("codecs", codecs("[\"numcodecs.fixedscaleoffset\", BYTES]"), "is encoded with fixedscaleoffset"),
        ("codecs", codecs("[BYTES, \"vlen-bytes\"]"), "is encoded with vlen-bytes"),
        (
            "codecs",
            codecs(r#"[{"name": "transpose", "configuration": {"order": [0, 0]}}, BYTES]"#),
            "do not match",
        ),
        ("codecs", codecs(r#"[{"name": "transpose", "configuration": {"order": [0, 2]}}, BYTES]"#), "[0, 2]"),
        (
            "codecs",
            codecs(r#"[{"name": "transpose", "configuration": {"order": [1]}}, BYTES]"#),
            "do not match",
        ),
        ("codecs", sharded("BYTES", "BYTES", "[2, 2]"), "which chunks of [2, 2] do not divide"),
        ("codecs", sharded("BYTES", "\"gzip\"", "[1, 3]"), "only bytes and crc32c are read"),
        ("codecs", sharded("BYTES", "BYTES, {}", "[1, 3]"), "only bytes and crc32c are read"),
        ("codecs", sharded("\"sharding_indexed\"", "BYTES", "[1, 3]"), "has shards inside of shards"),
        (
            "codecs",
            sharded("BYTES", "BYTES", "[1, 3]").replace("}}]", "}}, \"gzip\"]"),
            "is sharded with other",
        ),
    ] {
        let error = v3(&[(key, &value)]).unwrap_err();
        assert!(error.contains(message), "{key} {value}: {error}");
    }
    for (document, message) in [("[1]", "must be an object"), ("{", "not JSON"), ("\u{fffd}", "not JSON")] {
        assert!(array_v2(document.as_bytes(), None).unwrap_err().contains(message), "{document}");
        assert!(node_v3(document.as_bytes()).unwrap_err().contains(message), "{document}");
    }
}

#[test]
fn what_programs_write_is_read() {
    assert_eq!(v2(&[]).unwrap().key(3), "1.1");
    let extension =
        v3(&[("mine", r#"{"must_understand": false}"#), ("attributes", r#"{"a": NaN}"#)]).unwrap();
    assert_eq!(extension.attributes["a"], b"NaN");
    assert_eq!((extension.key(0), extension.key(3)), ("c/0/0".to_owned(), "c/1/1".to_owned()));
    let attributes = array_v2(
        with(&[], &[("zarr_format", "2"), ("shape", "[]"), ("chunks", "[]"), ("order", "\"F\"")])
            .replace('}', r#", "dtype": "|b1", "fill_value": true, "filters": []}"#)
            .as_bytes(),
        Some(br#"{"missing_value": NaN, "missing_value": Infinity}"#),
    )
    .unwrap();
    assert_eq!(attributes.attributes["missing_value"], b"Infinity");
    assert_eq!((attributes.key(0), &*attributes.fill), ("0".to_owned(), &[1][..]));
    // The last of two values counts, as for Python.
    assert_eq!(v2(&[("order", "\"x\""), ("order", "\"C\"")]).unwrap(), v2(&[]).unwrap());
}

#[test]
fn fill_values_are_exact() {
    let v2 =
        |kind: &str, value: &str| v2(&[("dtype", &format!("{kind:?}")), ("fill_value", value)]).unwrap().fill;
    assert_eq!(*v2("<f8", "9.969209968386869e+36"), 9.969_209_968_386_869e36_f64.to_ne_bytes());
    assert_eq!(*v2(">f4", "0.1"), 0.1f32.to_ne_bytes());
    assert_eq!(*v2("<f4", "NaN"), f32::NAN.to_ne_bytes());
    assert_eq!(*v2("<f4", "\"-Infinity\""), f32::NEG_INFINITY.to_ne_bytes());
    // NumPy rounds once: 1 + 2⁻¹¹ is a tie, but not with 2⁻⁴⁰ more.
    assert_eq!(*v2("<f2", "1.00048828125"), 0x3c00u16.to_ne_bytes());
    assert_eq!(*v2("<f2", "1.0004882812509095"), 0x3c01u16.to_ne_bytes());
    assert_eq!(*v2("<f2", "-1e-8"), 0x8000u16.to_ne_bytes());
    assert_eq!(*v2("<f2", "1e300"), 0x7c00u16.to_ne_bytes());
    assert_eq!(*v2("bfloat16", "1.00390625"), 0x3f80u16.to_ne_bytes());
    assert_eq!(*v2("<i8", "-9223372036854775808"), i64::MIN.to_ne_bytes());
    assert_eq!(*v2("<u8", "18446744073709551615"), u64::MAX.to_ne_bytes());
    assert_eq!(*v2("|i1", "-1.0"), [0xff]);
    assert_eq!(*v2("<u2", "\"65535\""), [0xff, 0xff]);
    assert_eq!(*v2("<u2", "null"), [0, 0]);
    for (kind, value) in [("|i1", "128"), ("|u1", "-1"), ("<u8", "1e20"), ("<i4", "0.5"), ("|b1", "2")] {
        let refused = super::tests::v2(&[("dtype", &format!("{kind:?}")), ("fill_value", value)]);
        assert!(refused.unwrap_err().contains("which its type cannot have"), "{kind} {value}");
    }
    let bits = v3(&[("fill_value", "\"0x7fc00001\"")]).unwrap().fill;
    assert_eq!(*bits, 0x7fc0_0001u32.to_ne_bytes());
}

#[test]
fn consolidated_documents_stay_below_the_root() {
    let metadata =
        |key: &str| format!(r#"{{"zarr_consolidated_format": 1, "metadata": {{{key:?}: {{"a": NaN}}}}}}"#);
    let nodes = consolidated_v2(metadata("group/x/.zarray").as_bytes()).unwrap();
    assert_eq!(nodes, ["group/x/.zarray"]);
    assert!(consolidated_v2(metadata(".zattrs").as_bytes()).unwrap().is_empty());
    for key in
        ["../x/.zarray", "/x/.zarray", "a/../../x/.zattrs", "a//x/.zarray", "./.zarray", "a\\x/.zarray"]
    {
        let error = consolidated_v2(metadata(key).as_bytes()).unwrap_err();
        assert!(error.contains("which is no path below it"), "{key}: {error}");
    }
    assert!(consolidated_v2(metadata("x/chunk").as_bytes()).is_err());
    let group = |path: &str| {
        let inline =
            format!(r#"{{"kind": "inline", "must_understand": false, "metadata": {{{path:?}: {{}}}}}}"#);
        node_v3(
            format!(r#"{{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {inline}}}"#)
                .as_bytes(),
        )
    };
    let Ok(ZarrNode::Group { consolidated: Some(nodes) }) = group("a/b") else { panic!("a group") };
    assert_eq!(nodes["a/b"], b"{}");
    assert!(group("../b").unwrap_err().contains("../b"));
    let plain = node_v3(br#"{"zarr_format": 3, "node_type": "group", "consolidated_metadata": null}"#);
    assert!(matches!(plain, Ok(ZarrNode::Group { consolidated: None })));
}
