//! Tables of Parquet and Arrow give the same values as the libraries that wrote them. Damaged tables give an error or
//! values within bounds, never a panic.
//!
//! `tests/fixtures/tables.py` writes the tables and their expected values. With `FORELOAD_TABLES=DIR`, the tests also
//! read the many tables that this script writes into DIR.

use crate::common::fuzz;
use crate::fuzz::mutate;
use foreload::FieldKind;
use foreload::testing::dataset::tables::{self, CellExtent, ShardTable, TableCells, TableColumn};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The tables of a directory: the bytes of each file, and its expected content.
fn files(directory: &Path) -> Vec<(String, Vec<u8>, Value)> {
    let values = fs::read(directory.join("values.json")).expect("what the script wrote");
    let values: Value = serde_json::from_slice(&values).expect("JSON");
    let files = values["files"].as_object().expect("files by name");
    let file = |(name, file): (&String, &Value)| {
        let bytes = fs::read(directory.join(name)).expect("a table");
        let table = &values["tables"][file["table"].as_str().expect("a name")];
        (name.clone(), bytes, json!({"table": table, "refused": file["refused"]}))
    };
    files.iter().map(file).collect()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tables")
}

fn parse(name: &str, bytes: &[u8]) -> Result<ShardTable, String> {
    let table =
        if name.ends_with(".parquet") { tables::parquet(&bytes, &[]) } else { tables::arrow(&bytes, &[]) };
    table.map_err(|error| {
        assert!(error.offset <= bytes.len() as u64, "{error:?} of {} bytes", bytes.len());
        format!("{} at byte {}", error.message, error.offset)
    })
}

fn bytes_of(table: &ShardTable, bytes: &[u8], extent: CellExtent) -> Vec<u8> {
    match table.in_block(bytes, extent) {
        Some(found) => found.expect("a block that can be unpacked"),
        None => bytes[extent.offset as usize..][..extent.length as usize].to_vec(),
    }
}

/// The cells of a column in the format of the script; `None` if the column is refused.
fn cells(table: &ShardTable, column: &TableColumn, bytes: &[u8]) -> Option<Vec<Value>> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("a text").into();
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        json!([bytes.len(), crc.sum()])
    };
    fn each<T>(cells: &[Option<T>], value: impl Fn(&T) -> Value) -> Option<Vec<Value>> {
        Some(cells.iter().map(|cell| cell.as_ref().map_or(Value::Null, &value)).collect())
    }
    match &column.cells {
        TableCells::Extents(cells) if matches!(column.kind, FieldKind::Text | FieldKind::Json) => {
            each(cells, |&extent| text(&bytes_of(table, bytes, extent)))
        }
        TableCells::Extents(cells) => each(cells, |&extent| crc(&bytes_of(table, bytes, extent))),
        TableCells::Bools(cells) => each(cells, |&truth| truth.into()),
        TableCells::Integers(cells) => each(cells, |&number| number.into()),
        TableCells::Floats(cells) => each(cells, |&number| (number.to_bits() as i64).into()),
        TableCells::IntegerLists(_, cells) => each(cells, |list| list.to_vec().into()),
        TableCells::FloatLists(_, cells) => {
            each(cells, |list| list.iter().map(|number| number.to_bits() as i64).collect())
        }
        TableCells::Texts(cells) => each(cells, |value| (**value).into()),
        TableCells::Bytes(cells) => each(cells, |value| crc(value)),
        TableCells::Refused(why) => {
            assert!(why.starts_with("it") || why.starts_with("several") || why.starts_with("the"), "{why}");
            None
        }
    }
}

/// The number of columns that were compared, and the number of these that may also be refused.
fn compare(name: &str, bytes: &[u8], expected: &Value) -> (usize, usize) {
    let table = parse(name, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let columns = expected["table"].as_object().expect("columns by name");
    let mut names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, columns.keys().map(String::as_str).collect::<Vec<_>>(), "{name}");
    let may_refuse = expected["refused"].as_array().expect("names");
    let (mut same, mut refused) = (0, 0);
    for column in &table.columns {
        let wanted = columns[&column.name].as_array();
        let found = cells(&table, column, bytes);
        assert!(
            found.as_ref().is_none_or(|cells| cells.len() as u64 == table.samples),
            "{name}: {}",
            column.name
        );
        match (&found, wanted) {
            (Some(found), Some(wanted)) => {
                let other = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
                let other = other.map(|at| format!("{at}: {} and not {}", found[at], wanted[at]));
                assert!(other.is_none(), "{name}, {}, sample {}", column.name, other.unwrap_or_default());
                assert_eq!(found.len(), wanted.len(), "{name}: {}", column.name);
                same += 1;
            }
            (None, None) => {}
            (None, Some(_)) if may_refuse.contains(&json!(column.name)) => refused += 1,
            (found, wanted) => panic!("{name}, {}: {found:?} and not {wanted:?}: {column:?}", column.name),
        }
    }
    (same, refused)
}

#[test]
fn tables_hold_what_their_libraries_read() {
    let given = std::env::var_os("FORELOAD_TABLES").map(PathBuf::from);
    for directory in std::iter::once(fixtures()).chain(given) {
        let (mut count, mut same, mut refused) = (0, 0, 0);
        for (name, bytes, expected) in files(&directory) {
            let (s, r) = compare(&name, &bytes, &expected);
            (count, same, refused) = (count + 1, same + s, refused + r);
        }
        println!("{count} files: {same} columns the same, {refused} refused");
        assert!(same > 5 * refused);
    }
}

#[test]
fn columns_have_the_kinds_that_datasets_says() {
    for (name, bytes, _) in files(&fixtures()) {
        if !name.starts_with("hf.") {
            continue;
        }
        let table = parse(&name, &bytes).expect("a sound table");
        let column = |name: &str| table.columns.iter().find(|column| column.name == name).expect("a column");
        assert_eq!((column("image").kind, column("caption").kind), (FieldKind::Image, FieldKind::Text));
        assert_eq!(
            (column("sound.bytes").kind, column("image.path").kind),
            (FieldKind::Bytes, FieldKind::Text)
        );
        assert_eq!(
            (column("label").kind, &*column("label").classes.join(" ")),
            (FieldKind::Integer, "cat dog")
        );
        assert!(matches!(column("image").cells, TableCells::Extents(_)));
        assert!(column("caption").classes.is_empty());
    }
}

/// Checks that every extent of a table is in the shard or in a block of it (extents without bytes may be anywhere), and
/// that every column has a cell for each sample.
fn check_bounds(table: &ShardTable, bytes: &[u8]) {
    let size = bytes.len() as u64;
    for TableColumn { cells, name, .. } in &table.columns {
        let count = match cells {
            TableCells::Extents(cells) => {
                for extent in cells.iter().flatten().filter(|extent| extent.length > 0) {
                    if let Some(found) = table.in_block(bytes, *extent) {
                        assert_eq!(found.map(|found| found.len()), Ok(extent.length as usize), "{name}");
                        continue;
                    }
                    assert!(
                        extent.offset + u64::from(extent.length) <= size,
                        "{name}: {extent:?} of {size} bytes"
                    );
                }
                cells.len()
            }
            TableCells::Bools(cells) => cells.len(),
            TableCells::Integers(cells) => cells.len(),
            TableCells::Floats(cells) => cells.len(),
            TableCells::IntegerLists(_, cells) => cells.len(),
            TableCells::FloatLists(_, cells) => cells.len(),
            TableCells::Texts(cells) => cells.len(),
            TableCells::Bytes(cells) => cells.len(),
            TableCells::Refused(_) => continue,
        };
        assert_eq!(count as u64, table.samples, "{name}");
    }
}

/// Pages that have a checksum are verified: a flipped bit gives an error or changes nothing.
#[test]
fn a_wrong_bit_of_a_page_is_noticed() {
    let files = files(&fixtures());
    let find = |wanted: &str| files.iter().find(|(name, ..)| name == wanted).expect("a table");
    for (name, bytes, _) in ["plain.parquet", "zstd.parquet"].map(find) {
        let sound = parse(name, bytes).expect("a sound table");
        let footer =
            u32::from_le_bytes(*bytes[bytes.len() - 8..].first_chunk().expect("its length")) as usize;
        let (mut harmless, mut noticed, mut by_checksum) = (0, 0, 0);
        for at in 4..bytes.len() - 8 - footer {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            match parse(name, &damaged) {
                Ok(table) => {
                    // Statistics and the bytes of refused columns are not read; an encoding can become an unknown one.
                    for (found, sound) in table.columns.iter().zip(&sound.columns) {
                        let is_refused = matches!(found.cells, TableCells::Refused(_));
                        assert!(is_refused || found == sound, "{name}: byte {at} changes {found:?}");
                    }
                    harmless += 1;
                }
                Err(error) => {
                    noticed += 1;
                    by_checksum += usize::from(error.contains("checksum"));
                }
            }
        }
        println!("{name}: {noticed} bits noticed, {by_checksum} of them by a checksum, {harmless} harmless");
        assert!(by_checksum > noticed / 2);
    }
}

/// No checksum covers the schema. With one wrong bit in it, a column that has nulls claims to have none, and its
/// definition levels would be read as a value. With another wrong bit, its name differs.
#[test]
fn a_wrong_bit_of_the_schema_is_noticed_by_statistics() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parquet/checksums/files");
    let bytes = fs::read(directory.join("part-0.parquet")).expect("a fixture");
    // Repetition type (field 3) 1, in zigzag coding, then the name (field 4).
    let element = b"\x25\x02\x18\x07caption";
    let at = bytes.windows(element.len()).position(|window| window == element).expect("the column");
    let refusal = |changes: &[(usize, u8)]| {
        let mut damaged = bytes.clone();
        changes.iter().for_each(|&(place, byte)| damaged[place] = byte);
        parse("part-0.parquet", &damaged).expect_err("a damaged schema")
    };
    let (required, name) = ((at + 1, 0), (at + 4, 0xAB));
    assert!(refusal(&[required]).contains("contradict its schema"), "{}", refusal(&[required]));
    assert!(refusal(&[name]).contains("not UTF-8"), "{}", refusal(&[name]));
    // The id of the field before the list that counts the values on levels 0 and 1 (one and three). With another id the
    // counts are unknown, as in files of writers without such statistics.
    let counts = bytes.windows(3).position(|window| window == [0x26, 2, 6]).expect("the histogram");
    let unknown = (counts - 1, bytes[counts - 1] + 0x10);
    let both = refusal(&[required, unknown]);
    assert!(both.contains("begins with levels"), "{both}");
}

/// At least a thousand damaged copies of each table.
#[test]
fn any_bytes_are_a_table_or_an_error() {
    let files = files(&fixtures());
    let (mut rounds, mut sound, mut wrong) = (0, 0, 0);
    let mut one = |random: &mut foreload::testing::rng::RandomStream| {
        for (name, bytes, _) in &files {
            let mut bytes = bytes.clone();
            // The metadata is at the end of a Parquet file: half of the copies are damaged there.
            if random.below(2) == 0 {
                mutate(&mut bytes, random);
            } else {
                let at = (bytes.len() - 1).saturating_sub(random.below(2000) as usize);
                bytes[at] = bytes[at].wrapping_add(1 + random.below(255) as u8);
            }
            match parse(name, &bytes) {
                Ok(table) => {
                    check_bounds(&table, &bytes);
                    sound += 1;
                }
                Err(_) => wrong += 1,
            }
            rounds += 1;
        }
    };
    fuzz("tables", |random| {
        for _ in 0..50 {
            one(random);
        }
    });
    println!("{rounds} damaged tables: {sound} read, {wrong} errors");
    assert!(rounds >= 1000 * files.len() && sound > 0 && wrong > 0);
}
