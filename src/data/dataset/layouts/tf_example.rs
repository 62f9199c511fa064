//! TFRecord shards whose records are `tf.Example`s: each shard is a table with a column per feature.
//!
//! A record's payload is `Example { features: Features { feature: map<string, Feature> } }`. A `Feature` is a list of
//! bytes, floats or integers (TensorFlow, `core/example/example.proto`, `feature.proto`). Messages are read through a
//! small window, which skips images.

mod feature;

use super::super::gather::MAX_CELLS;
use super::super::label_column::UsualLabels;
use super::super::samples::ShardContents;
use super::super::survey::is_tfrecord;
use super::super::table::{ShardTable, TableCells, TableColumn};
use super::super::value_kinds::ValueKinds;
use super::super::whole_file::{UnpackedShard, in_decompressed};
use super::super::{FieldKind, rows_of_table, shards};
use super::tfrecord::{check_payload, codec_of, next_record};
use super::wire::{WireMessage, WireValue};
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, Malformed, ReadAt, Window};
use base::error::Result;
use feature::{BYTES, FLOATS, FeatureList, FeatureValue, INTEGERS, LONGEST_LIST};
use std::collections::HashMap;

/// The names of features that can be the label, in order of preference.
const LABELS: UsualLabels = UsualLabels {
    names: &["label", "image/class/label", "class/label", "class", "cls"],
    numbers_first: true,
};
/// The names of features that are images, whatever their first bytes are.
const IMAGES: &[&str] = &["image", "image/encoded", "image_raw", "image/raw", "encoded_image", "jpeg", "png"];
const MAX_FEATURES: usize = 512;
const LONGEST_NAME: u64 = 1024;
/// Payloads of up to this many bytes are compared with their checksums during parsing, because they are read anyway.
const SMALL: u32 = 4096;

pub(super) struct ExampleShards;

impl ShardLayout for ExampleShards {
    fn is_shard(&self, name: &[u8]) -> bool {
        is_tfrecord(name)
    }

    fn empty_message(&self) -> String {
        "the shards hold no record".to_owned()
    }

    fn parser(&self, _: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(ExampleParser { reading: reading.clone() }))
    }
}

struct ExampleParser {
    reading: ShardReadOptions,
}

impl ShardParser for ExampleParser {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let contents =
            |bytes: &dyn ReadAt| rows_of_table::contents(tf_examples(bytes)?, bytes, &LABELS, &self.reading);
        match codec_of(bytes)? {
            Some(codec) => UnpackedShard::of(bytes, codec, None)?.contents(|bytes| contents(&bytes)),
            None => contents(bytes),
        }
    }

    fn verify(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<Option<String>, Malformed> {
        match codec_of(bytes)? {
            Some(codec) => {
                check_payloads(UnpackedShard::of(bytes, codec, None)?.bytes()).map_err(in_decompressed)?
            }
            None => check_payloads(bytes)?,
        }
        Ok(None)
    }
}

fn check_payloads<S: ReadAt + ?Sized>(bytes: &S) -> Result<(), Malformed> {
    let (mut source, mut at) = (Window::new(bytes), 0);
    while let Some(record) = next_record(&mut source, &mut at)? {
        check_payload(&mut source, record)?;
    }
    Ok(())
}

/// Parses an uncompressed TFRecord shard of `tf.Example`s into a table with a column per feature.
///
/// # Errors
/// [`Malformed`] for a shard that is damaged, truncated or compressed, and for records that are not `tf.Example`s.
pub fn tf_examples<S: ReadAt + ?Sized>(source: &S) -> Result<ShardTable, Malformed> {
    let readable = "uncompressed TFRecord files";
    shards::refuse_compressed(source, readable)?;
    let (mut source, mut at) = (Window::new(source), 0);
    let mut table = ExampleTable::default();
    loop {
        let start = at;
        let record =
            next_record(&mut source, &mut at).map_err(|error| not_zlib(&mut source, error, readable))?;
        let Some(record) = record else { break };
        if record.length <= SMALL {
            check_payload(&mut source, record)?;
        }
        let end = record.offset + u64::from(record.length);
        let features = example(&mut source, WireMessage::new(record.offset, end));
        let features = features.map_err(|Malformed { offset, message }| Malformed {
            offset,
            message: format!(
                "{message}: the record at byte {start} is damaged, or is not a tf.Example (foreload.FileLoader reads \
                 records of any kind)"
            ),
        })?;
        for (name, value) in features {
            table.add(&mut source, name, value)?;
        }
        table.records += 1;
        if table.records.saturating_mul(table.columns.len() as u64) > MAX_CELLS {
            let message = "it has more values than a shard may have: write smaller shards".to_owned();
            return Err(Malformed { offset: start, message });
        }
    }
    if table.columns.is_empty() && table.records > 0 {
        let message = "its records have no features: they are not tf.Examples (foreload.FileLoader reads records of \
                       any kind)";
        return Err(Malformed { offset: 0, message: message.to_owned() });
    }
    Ok(table.finish())
}

/// Replaces `error` by an error that names zlib, if the file begins like zlib data. These two bytes are not a reliable
/// signature, so they are tested only after parsing has failed.
fn not_zlib<S: ReadAt + ?Sized>(source: &mut Window<'_, S>, error: Malformed, readable: &str) -> Malformed {
    let is_zlib = error.offset == 0
        && source
            .read(0, 2)
            .is_ok_and(|two| two[0] == 0x78 && u16::from_be_bytes([two[0], two[1]]) % 31 == 0);
    if !is_zlib {
        return error;
    }
    let message =
        format!("seems to be compressed with zlib: samples can only be read from {readable}; decompress it");
    Malformed { offset: 0, message }
}

/// The features of a record by name. If several features have one name, the last one is used, as in all maps of
/// protocol buffers.
type Features = Vec<(String, FeatureValue)>;

fn example<S: ReadAt + ?Sized>(
    source: &mut Window<'_, S>,
    mut message: WireMessage,
) -> Result<Features, Malformed> {
    let (mut found, mut places) = (Features::new(), HashMap::new());
    while let Some((number, value)) = message.next(source)? {
        let (1, WireValue::Bytes { start, end }) = (number, value) else { continue };
        let mut features = WireMessage::new(start, end);
        while let Some((number, value)) = features.next(source)? {
            let (1, WireValue::Bytes { start, end }) = (number, value) else { continue };
            let (name, value) = entry(source, start, end)?;
            match places.get(&name) {
                Some(&place) => found[place] = (name, value),
                None => {
                    places.insert(name.clone(), found.len());
                    found.push((name, value));
                }
            }
            if found.len() > MAX_FEATURES {
                return Err(too_many(start));
            }
        }
    }
    Ok(found)
}

fn too_many(offset: u64) -> Malformed {
    Malformed { offset, message: format!("there are more than {MAX_FEATURES} features") }
}

fn entry<S: ReadAt + ?Sized>(
    source: &mut Window<'_, S>,
    start: u64,
    end: u64,
) -> Result<(String, FeatureValue), Malformed> {
    let mut message = WireMessage::new(start, end);
    let (mut name, mut list) = (String::new(), FeatureList::default());
    while let Some((number, value)) = message.next(source)? {
        match (number, value) {
            (1, WireValue::Bytes { start, end }) => {
                let wrong = |message: &str| Malformed { offset: start, message: message.to_owned() };
                if end - start > LONGEST_NAME {
                    return Err(wrong("a feature has a name of more than 1024 bytes"));
                }
                let bytes = source.read(start, end - start)?;
                name =
                    String::from_utf8(bytes).map_err(|_| wrong("a feature has a name that is not UTF-8"))?;
            }
            (2, WireValue::Bytes { start, end }) => list.take(source, WireMessage::new(start, end))?,
            _ => {}
        }
    }
    Ok((name, list.value))
}

#[derive(Default)]
struct ExampleTable {
    records: u64,
    /// The total number of values in lists of two or more values, in all records so far. It is limited to
    /// [`MAX_CELLS`].
    listed: u64,
    places: HashMap<String, usize>,
    columns: Vec<FeatureColumn>,
}

/// A feature as a column. It has cells up to the last record that has the feature.
struct FeatureColumn {
    name: String,
    /// `None` until a record of this shard has a value.
    cells: Option<TableCells>,
    kinds: ValueKinds,
}

impl ExampleTable {
    fn add<S: ReadAt + ?Sized>(
        &mut self,
        source: &mut Window<'_, S>,
        name: String,
        value: FeatureValue,
    ) -> Result<(), Malformed> {
        fn put<T: Clone>(cells: &mut Vec<Option<T>>, record: u64, value: T) {
            cells.resize(record as usize, None);
            cells.push(Some(value));
        }
        let place = match self.places.get(&name) {
            Some(&place) => place,
            None => {
                if self.columns.len() >= MAX_FEATURES {
                    return Err(too_many(0));
                }
                self.places.insert(name.clone(), self.columns.len());
                self.columns.push(FeatureColumn { name, cells: None, kinds: ValueKinds::default() });
                self.columns.len() - 1
            }
        };
        let FeatureColumn { cells, kinds, .. } = &mut self.columns[place];
        let cells = match cells {
            Some(cells) => cells,
            none => none.insert(match &value {
                FeatureValue::Nothing => return Ok(()),
                FeatureValue::Bytes(_) => TableCells::Extents(Vec::new()),
                FeatureValue::Float(_) => TableCells::Floats(Vec::new()),
                FeatureValue::Integer(_) => TableCells::Integers(Vec::new()),
                FeatureValue::Floats(list) => TableCells::FloatLists(list.len() as u32, Vec::new()),
                FeatureValue::Integers(list) => TableCells::IntegerLists(list.len() as u32, Vec::new()),
                FeatureValue::Several(what) => TableCells::Refused(several(what, self.records)),
            }),
        };
        if value.each() > 1 && !matches!(cells, TableCells::Refused(_)) {
            self.listed += value.each() as u64;
            if self.listed > MAX_CELLS {
                let reason = "has more numbers in lists than a shard may have: write smaller shards";
                *cells = TableCells::Refused(reason.to_owned());
            }
        }
        match (cells, value) {
            (TableCells::Refused(_), _) | (_, FeatureValue::Nothing) => {}
            (TableCells::Extents(cells), FeatureValue::Bytes(extent)) => {
                kinds.look(source, extent)?;
                put(cells, self.records, extent);
            }
            (TableCells::Floats(cells), FeatureValue::Float(number)) => {
                put(cells, self.records, f64::from(number));
            }
            (TableCells::Integers(cells), FeatureValue::Integer(number)) => put(cells, self.records, number),
            (TableCells::FloatLists(each, cells), FeatureValue::Floats(list))
                if list.len() as u32 == *each =>
            {
                put(cells, self.records, list.into_iter().map(f64::from).collect());
            }
            (TableCells::IntegerLists(each, cells), FeatureValue::Integers(list))
                if list.len() as u32 == *each =>
            {
                put(cells, self.records, list.into_boxed_slice());
            }
            (cells, FeatureValue::Several(what)) => {
                *cells = TableCells::Refused(several(what, self.records));
            }
            (cells, value) => {
                let ((was, was_each), (is, is_each)) = (words(cells), (value.words(), value.each()));
                let reason = if was == is {
                    format!(
                        "has lists of different lengths ({was_each} in some records, {is_each} in record {}): only \
                         columns with lists of one length are read",
                        self.records
                    )
                } else {
                    format!("has {was} in some records and {is} in record {}", self.records)
                };
                *cells = TableCells::Refused(reason);
            }
        }
        Ok(())
    }

    fn finish(self) -> ShardTable {
        let records = self.records as usize;
        let column = |FeatureColumn { name, cells, kinds }: FeatureColumn| {
            // If no record in this shard has a value, leave the column out. Other shards determine the type.
            let mut cells = cells?;
            match &mut cells {
                TableCells::Extents(cells) => cells.resize(records, None),
                TableCells::Floats(cells) => cells.resize(records, None),
                TableCells::Integers(cells) => cells.resize(records, None),
                TableCells::FloatLists(_, cells) => cells.resize(records, None),
                TableCells::IntegerLists(_, cells) => cells.resize(records, None),
                TableCells::Bools(_)
                | TableCells::Texts(_)
                | TableCells::Bytes(_)
                | TableCells::Refused(_) => {}
            }
            let kind = match &cells {
                TableCells::Extents(_) if IMAGES.contains(&name.as_str()) => FieldKind::Image,
                TableCells::Extents(_) => kinds.kind(),
                cells => cells.kind(),
            };
            Some(TableColumn { name, kind, classes: Vec::new(), cells })
        };
        let columns = self.columns.into_iter().filter_map(column).collect();
        ShardTable { samples: self.records, columns, ..ShardTable::default() }
    }
}

/// Returns which values the cells are, and how many each cell has.
fn words(cells: &TableCells) -> (&'static str, usize) {
    match cells {
        TableCells::Extents(_) => (BYTES, 1),
        TableCells::Floats(_) => (FLOATS, 1),
        TableCells::Integers(_) => (INTEGERS, 1),
        TableCells::FloatLists(each, _) => (FLOATS, *each as usize),
        TableCells::IntegerLists(each, _) => (INTEGERS, *each as usize),
        TableCells::Bools(_) | TableCells::Texts(_) | TableCells::Bytes(_) | TableCells::Refused(_) => {
            ("nothing", 1)
        }
    }
}

fn several(what: &str, record: u64) -> String {
    match what {
        BYTES => {
            format!("has a list of several {what} in record {record}: of bytes, only single values are read")
        }
        _ => format!("has a list of more than {LONGEST_LIST} {what} in record {record}, which is the limit"),
    }
}
