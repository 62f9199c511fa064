//! NumPy's `.npy` files as shards of arrays.
//!
//! With rows as samples, each file of a directory is an array of all samples, and its name is the name of a field. With
//! files as samples, each file is a sample, and the field is called `npy`, as in tar shards.

use super::super::FieldKind;
use super::super::SampleAxis;
use super::super::arrays::{self, ArrayFacts, ArrayStorage, ShardArray};
use super::super::samples::ShardContents;
use super::super::table::{TableCells, TableColumn};
use super::{ShardLayout, ShardParser, ShardReadOptions, is_internal_name};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result as Checked;
use pixels::decode::{NpyHeader, NpyPrefix};

/// The name of the field that selects the array of a file.
const ARRAY: &str = "npy";
/// The number of bytes that are read first. Most headers are shorter.
const BEGINNING: usize = 4096;

pub(super) struct NpyFiles;

impl ShardLayout for NpyFiles {
    fn is_shard(&self, name: &[u8]) -> bool {
        name.ends_with(b".npy") && !is_internal_name(name)
    }

    fn is_array(&self) -> bool {
        true
    }

    fn has_arrays_apart(&self) -> bool {
        true
    }

    fn empty_message(&self) -> String {
        "the files hold no rows".to_owned()
    }

    fn parser(
        &self,
        source: &dyn DatasetSource,
        reading: &ShardReadOptions,
    ) -> Checked<Box<dyn ShardParser>> {
        let root = source.path(&[]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Box::new(NpyParser { root, reading: reading.clone() }))
    }
}

struct NpyParser {
    /// The name of the root, which is the name of the file if the root is one.
    root: String,
    reading: ShardReadOptions,
}

impl ShardParser for NpyParser {
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let axis = self.reading.sample_axis;
        let name = match axis {
            SampleAxis::File => ARRAY.to_owned(),
            SampleAxis::Axis0 if name.is_empty() => self.root.clone(),
            SampleAxis::Axis0 => String::from_utf8_lossy(name).into_owned(),
        };
        let (mut found, mut columns) = (Vec::new(), Vec::new());
        match npy_header(bytes)? {
            Ok(NpyHeader { stored, shape, order, data_at: start }) => {
                let (filters, fill) = (Vec::new(), Vec::new());
                let facts = ArrayFacts { name, stored, order, filters, fill, cf: None };
                let array = ShardArray { facts, shape, storage: ArrayStorage::Run { file: 0, start } };
                arrays::check(&array, |_| bytes.size())?;
                columns.extend(arrays::column(&array, bytes, axis)?);
                found.push(array);
            }
            Err(why) if axis == SampleAxis::File => return Err(Malformed { offset: 0, message: why }),
            // Other programs can have files next to the arrays that the user chooses.
            Err(why) => {
                let cells = TableCells::Refused(why);
                columns.push(TableColumn { name, kind: FieldKind::Array, classes: Vec::new(), cells });
            }
        }
        if axis == SampleAxis::File {
            return arrays::contents(found, columns, &self.reading);
        }
        // The arrays of all files are joined to samples later.
        let mut contents = ShardContents::default();
        (contents.rows.arrays, contents.rows.columns) = (found, columns);
        Ok(contents)
    }
}

/// The header of a file, or the reason why its array cannot be read.
pub(super) fn npy_header(bytes: &dyn ReadAt) -> Result<Result<NpyHeader, String>, Malformed> {
    let mut needed = BEGINNING;
    // The beginning of a header says how long the header is, so at most three reads are needed.
    for _ in 0..3 {
        let mut prefix = vec![0; needed];
        let got = bytes.fill_at(&mut prefix, 0)?;
        prefix.truncate(got);
        match NpyHeader::parse(&prefix) {
            Ok(NpyPrefix::Header(header)) => {
                let end = header.data_bytes().and_then(|bytes| bytes.checked_add(header.data_at));
                return Ok(match end == Some(bytes.size()) {
                    true => Ok(header),
                    // NumPy ignores bytes after the array. Most likely the file was overwritten in part.
                    false => Err(format!(
                        "its shape {:?} does not match its {} bytes: it is truncated or damaged",
                        header.shape,
                        bytes.size()
                    )),
                });
            }
            Ok(NpyPrefix::Needs(more)) => needed = more,
            Err(error) => {
                // The decoder's advice is about files that are members of samples.
                let why = error.to_string();
                return Ok(Err(why.split(": use foreload").next().unwrap_or(&why).to_owned()));
            }
        }
    }
    Ok(Err("it is not a .npy file: its header is truncated".to_owned()))
}
