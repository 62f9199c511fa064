//! The flag `foreload index --samples`: shows the values of the first samples' fields in short form.

use base::error::{Error, Result};
use data::dataset::{DatasetIndex, Extent, FieldKind, MemberBytes, TableField};
use serde_json::{Map, Value, json};
use std::path::Path;
use store::io::read_blocking;

pub(super) const DEFAULT_SAMPLES: u64 = 10;
/// The JSON key for the reason why a value cannot be read.
const UNREADABLE: &str = "unreadable";
const MAX_CHARS: usize = 60;
const MAX_READ_BYTES: u32 = 4 * MAX_CHARS as u32;

/// The shown fields, by name. The fields of tables come from their schema, the fields of tar shards from the names of
/// their members.
pub(super) fn shown_fields(index: &DatasetIndex) -> Vec<TableField> {
    let mut fields: Vec<TableField> = index
        .summaries()
        .flat_map(|summary| {
            let is_table = !summary.fields.is_empty();
            let keys = summary.keys.into_iter().filter(move |_| !is_table);
            let by_name = |name: String| TableField { kind: FieldKind::of_key(&name), name, refused: None };
            summary.fields.into_iter().chain(keys.map(by_name)).collect::<Vec<_>>()
        })
        .filter(|field| field.refused.is_none())
        .collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    fields.dedup_by(|second, first| second.name == first.name);
    fields
}

#[derive(Default)]
pub(super) struct FirstSamples {
    pub(super) values: Vec<Map<String, Value>>,
    pub(super) faults: Vec<String>,
}

impl FirstSamples {
    pub(super) fn verdict(&self, root: &Path) -> Result<()> {
        let Some(first) = self.faults.first() else { return Ok(()) };
        let others = match self.faults.len() {
            1 => String::new(),
            count => format!("; and {} others", count - 1),
        };
        Err(Error::dataset(root, format!("some field values cannot be read: {first}{others}")))
    }
}

pub(super) fn first_samples(index: &DatasetIndex, fields: &[TableField], count: u64) -> FirstSamples {
    let mut faults = Vec::new();
    let of_sample = |sample: u64| {
        let (mut member, mut values) = (0, Map::new());
        for field in fields {
            let value = if index.has_column(&field.name) {
                index.column_value(&field.name, sample)
            } else {
                member += 1;
                member_value(index, sample, member - 1, field.kind).unwrap_or_else(|why| {
                    faults.push(format!("{} of sample {sample}: {why}", field.name));
                    json!({ UNREADABLE: why })
                })
            };
            values.insert(field.name.clone(), value);
        }
        values
    };
    let values = (0..count.min(index.len())).map(of_sample).collect();
    FirstSamples { values, faults }
}

/// Returns the value of a member: text as a string, other bytes as their length. The error says why it cannot be read.
fn member_value(index: &DatasetIndex, sample: u64, member: usize, kind: FieldKind) -> Result<Value, String> {
    let record = index.extent(sample);
    if let Some(bytes) = index.stored_member(sample, member) {
        let text = || shortened(&String::from_utf8_lossy(bytes), false);
        return Ok(Value::from(if kind == FieldKind::Json {
            text()
        } else {
            format!("{} bytes", bytes.len())
        }));
    }
    let extent = match index.member(sample, member) {
        MemberBytes::WholeExtent => record,
        MemberBytes::InExtent(range) => {
            Extent { offset: record.offset + range.start as u64, length: range.len() as u32, ..record }
        }
        MemberBytes::Separate(extent) => extent,
        MemberBytes::Absent => return Ok(Value::Null),
        MemberBytes::Ambiguous => return Err("there are two members with this name".to_owned()),
    };
    // Parts of records have no address.
    if index.array(sample, member).is_some()
        || !matches!(kind, FieldKind::Text | FieldKind::Json | FieldKind::Integer | FieldKind::Float)
    {
        return Ok(Value::from(format!("{} bytes", extent.length)));
    }
    let bytes = read_blocking(index, Extent { length: extent.length.min(MAX_READ_BYTES), ..extent });
    let bytes = bytes.map_err(|error| error.to_string())?;
    Ok(Value::from(shortened(&String::from_utf8_lossy(&bytes), extent.length > MAX_READ_BYTES)))
}

fn shortened(text: &str, is_cut: bool) -> String {
    let short: String = text.chars().take(MAX_CHARS).collect();
    if is_cut || short.len() < text.len() { format!("{short}…") } else { short }
}

pub(super) fn describe(samples: &[Map<String, Value>]) -> Vec<String> {
    let of = |(name, value): (&String, &Value)| match value {
        Value::Null => format!("{name} –"),
        Value::Object(_) => format!("{name} (cannot be read)"),
        Value::String(text) if text.ends_with(" bytes") => format!("{name} {text}"),
        Value::String(text) => format!("{name} {:?}", shortened(text, false)),
        value => format!("{name} {value}"),
    };
    let line = |(number, values): (usize, &Map<String, Value>)| {
        format!("  sample {number:<5} {}", values.iter().map(of).collect::<Vec<_>>().join(", "))
    };
    samples.iter().enumerate().map(line).collect()
}
