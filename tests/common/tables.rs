//! Writers of shards that are tables, for tests: `tf.Example`s and MDS.

use std::collections::BTreeMap;

/// The values of a feature.
#[derive(Debug, Clone)]
pub enum Feature {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl Feature {
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(vec![bytes.as_ref().to_vec()])
    }
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field of bytes: its tag, its length and the bytes.
pub fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A `Feature`. Its numbers are packed or not.
pub fn feature(feature: &Feature, packed: bool) -> Vec<u8> {
    let (number, list) = match feature {
        Feature::Bytes(values) => (1, values.iter().flat_map(|value| field(1, value)).collect()),
        Feature::Floats(values) if packed => {
            (2, field(1, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()))
        }
        Feature::Floats(values) => {
            (2, values.iter().flat_map(|value| [&[0x0d][..], &value.to_le_bytes()].concat()).collect())
        }
        Feature::Integers(values) if packed => {
            (3, field(1, &values.iter().flat_map(|value| varint(*value as u64)).collect::<Vec<u8>>()))
        }
        Feature::Integers(values) => {
            (3, values.iter().flat_map(|value| [vec![0x08], varint(*value as u64)].concat()).collect())
        }
    };
    field(number, &list)
}

/// An entry of the map of features.
pub fn entry(name: &str, value: &Feature, packed: bool) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, &feature(value, packed))].concat())
}

/// An `Example` of these features.
pub fn example(features: &[(&str, Feature)]) -> Vec<u8> {
    field(1, &features.iter().flat_map(|(name, value)| entry(name, value, true)).collect::<Vec<u8>>())
}

/// A column of an MDS dataset: its name, its encoding, and the size of its values if it is fixed.
pub type MdsColumn = (&'static str, &'static str, Option<u64>);

/// An MDS shard of these samples, each with a value for each column.
pub fn mds_shard(columns: &[MdsColumn], samples: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let description =
        format!("{{\"column_names\": {:?}}}", columns.iter().map(|of| of.0).collect::<Vec<_>>());
    let sample = |values: &Vec<Vec<u8>>| {
        assert_eq!(values.len(), columns.len());
        let differing = values.iter().zip(columns).filter(|(_, column)| column.2.is_none());
        let sizes = differing.flat_map(|(value, _)| (value.len() as u32).to_le_bytes());
        sizes.chain(values.iter().flatten().copied()).collect::<Vec<u8>>()
    };
    let samples: Vec<Vec<u8>> = samples.iter().map(sample).collect();
    let mut at = 4 + 4 * (samples.len() + 1) + description.len();
    let mut shard = (samples.len() as u32).to_le_bytes().to_vec();
    shard.extend((at as u32).to_le_bytes());
    for sample in &samples {
        at += sample.len();
        shard.extend((at as u32).to_le_bytes());
    }
    [shard, description.into_bytes(), samples.concat()].concat()
}

/// The `index.json` of these shards, each with its name, its number of samples and of bytes.
pub fn mds_index(columns: &[MdsColumn], shards: &[(&str, usize, usize)]) -> serde_json::Value {
    let shards: Vec<serde_json::Value> = shards
        .iter()
        .map(|(name, samples, bytes)| {
            serde_json::json!({
                "column_names": columns.iter().map(|of| of.0).collect::<Vec<_>>(),
                "column_encodings": columns.iter().map(|of| of.1).collect::<Vec<_>>(),
                "column_sizes": columns.iter().map(|of| of.2).collect::<Vec<_>>(),
                "compression": null, "format": "mds", "hashes": [], "size_limit": 1 << 26, "version": 2,
                "raw_data": {"basename": name, "bytes": bytes, "hashes": BTreeMap::<String, String>::new()},
                "samples": samples, "zip_data": null,
            })
        })
        .collect();
    serde_json::json!({"shards": shards, "version": 2})
}
