//! The parcel of a leased batch: the contents that are not in its buffer. These are failed samples, remarks about
//! samples, and values whose lengths differ from sample to sample. A parcel is written once into its own memfd, which
//! is then sealed against writing.
//!
//! ```text
//! length of the document, u64 | document, JSON | blocks of bytes, each at a multiple of 64 bytes
//! ```

use super::leased::LeasedMap;
use super::shared::{SEALS, create_memfd, no_memory, seal};
use super::values::{Block, Gathered};
use super::{Batch, Element, Failure};
use base::error::{Error, Result};
use rustix::fs::SealFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The alignment of blocks in bytes, as TensorFlow requires of a tensor's data.
const ALIGN: usize = 64;

/// The contents of a batch that are not in its buffer, for a consumer in another process.
#[derive(Default)]
pub struct Parcel {
    /// The samples that failed.
    pub failures: Vec<Failure>,
    pub(super) values: Vec<Gathered>,
    /// Remarks about samples, by their ids.
    pub remarks: Vec<Remark>,
}

/// A remark about a sample that did not fail: the sample's id and the text.
pub type Remark = (u64, String);

#[derive(Serialize, Deserialize)]
struct Document<Failures> {
    failures: Failures,
    values: Vec<CarriedValues>,
    remarks: Vec<Remark>,
}

/// The values of a field. Each range is the position of a block, counted from the beginning of the first block.
#[derive(Serialize, Deserialize)]
enum CarriedValues {
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Range<usize>>>),
    Dense(CarriedArray),
    Ragged { values: CarriedArray, offsets: CarriedArray },
    Tensors(Vec<Option<CarriedArray>>),
}

#[derive(Serialize, Deserialize)]
struct CarriedArray {
    at: Range<usize>,
    element: Element,
    shape: Vec<i64>,
}

#[derive(Default)]
struct Blocks<'a> {
    blocks: Vec<&'a [u8]>,
    end: usize,
}

impl<'a> Blocks<'a> {
    fn add(&mut self, bytes: &'a [u8]) -> Range<usize> {
        let start = self.end.next_multiple_of(ALIGN);
        self.end = start + bytes.len();
        self.blocks.push(bytes);
        start..self.end
    }

    fn array(&mut self, block: &'a Block, element: Element, shape: &[i64]) -> CarriedArray {
        CarriedArray { at: self.add(block.bytes()), element, shape: shape.to_vec() }
    }
}

impl Batch {
    /// Writes the parcel of this batch, with these `remarks`, to memory that is then sealed against writing. Returns
    /// `None` if there is nothing to write.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no memory for the parcel.
    pub fn parcel<'a>(&'a self, remarks: Vec<Remark>) -> Result<Option<OwnedFd>> {
        if self.failures.is_empty() && self.buffer.values.is_empty() && remarks.is_empty() {
            return Ok(None);
        }
        let mut blocks = Blocks::default();
        let values = self.buffer.values.iter().map(|values| match values {
            Gathered::Texts(texts) => CarriedValues::Texts(texts.clone()),
            Gathered::Bytes(all) => CarriedValues::Bytes(
                all.iter().map(|bytes| bytes.as_ref().map(|bytes| blocks.add(bytes))).collect(),
            ),
            Gathered::Dense(block, element, shape) => {
                CarriedValues::Dense(blocks.array(block, *element, shape))
            }
            Gathered::Ragged { values, element, shape, offsets } => CarriedValues::Ragged {
                values: blocks.array(values, *element, shape),
                offsets: blocks.array(&offsets.0, offsets.1, &[i64::from(self.len) + 1]),
            },
            Gathered::Tensors(tensors) => {
                let mut array =
                    |tensor: &'a (Block, Element, Vec<i64>)| blocks.array(&tensor.0, tensor.1, &tensor.2);
                CarriedValues::Tensors(tensors.iter().map(|tensor| tensor.as_ref().map(&mut array)).collect())
            }
        });
        let document = Document { failures: &self.failures, values: values.collect(), remarks };
        let document = serde_json::to_vec(&document).map_err(|error| Error::Internal(error.to_string()))?;
        let first = blocks_begin(document.len());
        let file = create_memfd(first + blocks.end)?;
        write(&file, &document, first, &blocks).map_err(no_memory(first + blocks.end))?;
        seal(&file, SEALS.union(SealFlags::WRITE))?;
        Ok(Some(file.into()))
    }
}

fn blocks_begin(document: usize) -> usize {
    (size_of::<u64>() + document).next_multiple_of(ALIGN)
}

fn write(mut file: &File, document: &[u8], first: usize, blocks: &Blocks<'_>) -> std::io::Result<()> {
    let mut writer = std::io::BufWriter::new(&mut file);
    writer.write_all(&(document.len() as u64).to_le_bytes())?;
    writer.write_all(document)?;
    let mut at = size_of::<u64>() + document.len();
    let mut end = 0usize;
    for block in &blocks.blocks {
        let start = end.next_multiple_of(ALIGN);
        writer.write_all(&[0; ALIGN][..first + start - at])?;
        writer.write_all(block)?;
        end = start + block.len();
        at = first + end;
    }
    writer.flush()
}

impl Parcel {
    /// Reads a parcel that another process wrote with [`Batch::parcel`], for a batch of `len` samples.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for memory that is not sealed against writing; [`Error::Io`] if it cannot be mapped;
    /// [`Error::Internal`] for contents that [`Batch::parcel`] never writes.
    pub fn read(file: OwnedFd, len: u32) -> Result<Self> {
        let map = Arc::new(LeasedMap::sealed_by(file, SEALS.union(SealFlags::WRITE))?);
        let broken = || Error::Internal("the values sent with a shared batch are damaged".into());
        let bytes = map.bytes();
        let (length, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| broken())?;
        let document = rest.get(..length).ok_or_else(broken)?;
        let first = blocks_begin(length);
        let document: Document<Vec<Failure>> = serde_json::from_slice(document).map_err(|_| broken())?;
        let block = |at: Range<usize>| -> Result<Block> {
            let within =
                at.start <= at.end && first.checked_add(at.end).is_some_and(|end| end <= bytes.len());
            let aligned = at.start.is_multiple_of(ALIGN);
            if within && aligned {
                Ok(Block::part(&map, first + at.start..first + at.end))
            } else {
                Err(broken())
            }
        };
        let array = |array: CarriedArray| -> Result<(Block, Element, Vec<i64>)> {
            let elements = array
                .shape
                .iter()
                .try_fold(1usize, |product, &n| product.checked_mul(usize::try_from(n).ok()?));
            let bytes = elements.and_then(|elements| elements.checked_mul(array.element.size()));
            let block = block(array.at)?;
            if bytes == Some(block.bytes().len()) {
                Ok((block, array.element, array.shape))
            } else {
                Err(broken())
            }
        };
        let mut values = Vec::new();
        for serialized in document.values {
            values.push(match serialized {
                CarriedValues::Texts(texts) if texts.len() == len as usize => Gathered::Texts(texts),
                CarriedValues::Bytes(all) if all.len() == len as usize => {
                    let bytes = all
                        .into_iter()
                        .map(|at| at.map(|at| block(at).map(|block| block.bytes().to_vec())).transpose());
                    Gathered::Bytes(bytes.collect::<Result<_>>()?)
                }
                CarriedValues::Dense(dense) => {
                    let (block, element, shape) = array(dense)?;
                    Gathered::Dense(block, element, shape)
                }
                CarriedValues::Ragged { values, offsets } => {
                    let (values, element, shape) = array(values)?;
                    let (offsets, of, each) = array(offsets)?;
                    if each != [i64::from(len) + 1] || ![Element::I64, Element::I32].contains(&of) {
                        return Err(broken());
                    }
                    Gathered::Ragged { values, element, shape, offsets: (offsets, of) }
                }
                CarriedValues::Tensors(tensors) if tensors.len() == len as usize => {
                    let tensors = tensors.into_iter().map(|tensor| tensor.map(array).transpose());
                    Gathered::Tensors(tensors.collect::<Result<_>>()?)
                }
                _ => return Err(broken()),
            });
        }
        Ok(Self { failures: document.failures, values, remarks: document.remarks })
    }
}

#[cfg(test)]
mod tests {
    use super::super::leased::{LeaseOwner, LeasedMemory};
    use super::super::tests::collector;
    use super::super::values::{Array, FieldValues, Value};
    use super::super::{BatchLayout, BatchPool, BatchStorage, Pools, Raggedness};
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Taker(Mutex<Vec<u64>>);

    impl LeaseOwner for Taker {
        fn give_back(&self, id: u64, _: bool) {
            self.0.lock().unwrap().push(id);
        }
    }

    fn pool() -> BatchPool {
        let layout = BatchLayout { values: vec![Raggedness::AsTheyAre; 5], ..BatchLayout::default() };
        let limits = Pools { slot_bytes: 0, prefetch: 1, batches: 2 };
        BatchPool::new(3, layout, limits, BatchStorage::Shared, || {})
    }

    fn array(shape: &[i64], bytes: &[u8]) -> Value {
        Value::Array(Array { element: Element::U8, shape: shape.to_vec(), bytes: bytes.to_vec() })
    }

    fn made() -> Batch {
        let (sink, ready) = collector();
        let (closer, tickets) = pool().begin(7, 3, &sink).unwrap().unwrap();
        closer.close();
        for (number, mut ticket) in tickets.into_iter().enumerate() {
            let byte = number as u8;
            if number == 1 {
                ticket.fail(41, Error::dataset("/x", "is broken"), false);
            } else {
                ticket.put(0, Some(Value::Text(format!("text {number}"))));
                ticket.put(1, Some(Value::Bytes(vec![byte; number])));
            }
            ticket.put(2, Some(array(&[2], &[byte, 100 + byte])));
            ticket.put(3, Some(array(&[number as i64, 1], &vec![byte; number])));
            ticket.put(4, Some(array(&vec![1; number + 1], &[byte])));
            ticket.finish(40 + number as u64, 0, 0, number != 1);
        }
        ready.0.lock().unwrap().pop().unwrap()
    }

    fn bytes(tensor: &super::super::Tensor) -> (Vec<i64>, Vec<u8>) {
        (tensor.shape().to_vec(), tensor.bytes().to_vec())
    }

    #[test]
    fn a_batch_is_another_process_s_as_it_was_made() {
        let batch = made();
        let parcel = batch.parcel(vec![(42, "damaged".into())]).unwrap().unwrap();
        let slot = batch.shared().unwrap();
        let (id, file) = (slot.id, slot.file.try_clone_to_owned().unwrap());
        let taker = Arc::new(Taker::default());
        let memory = LeasedMemory::new(id, Arc::new(LeasedMap::new(file).unwrap()), taker.clone());
        let parcel = Parcel::read(parcel, 3).unwrap();
        assert_eq!(parcel.remarks, [(42, "damaged".to_owned())]);
        let theirs = pool();
        assert!(theirs.has_lease_space());
        let mut adopted = theirs.wrap_leased((7, 3), 0, memory, parcel).unwrap();
        assert!(!theirs.has_lease_space());
        let failure = &adopted.take_failures()[0];
        assert_eq!((failure.index, failure.sample, failure.fatal), (1, 41, false));
        assert_eq!(failure.error.to_string(), "dataset /x: is broken");
        adopted.deliver();
        assert!(theirs.has_lease_space());
        assert_eq!(adopted.sample_ids().bytes(), batch.sample_ids().bytes());
        assert_eq!(adopted.mask().bytes(), [1, 0, 1]);
        let FieldValues::Texts(texts) = adopted.values(0) else { panic!() };
        assert_eq!(texts, [Some("text 0".to_owned()), None, Some("text 2".to_owned())]);
        let FieldValues::Bytes(of_bytes) = adopted.values(1) else { panic!() };
        assert_eq!(of_bytes, [Some(vec![]), None, Some(vec![2, 2])]);
        let FieldValues::Dense(dense) = adopted.values(2) else { panic!() };
        assert_eq!(bytes(&dense), (vec![3, 2], vec![0, 100, 1, 101, 2, 102]));
        assert!((dense.data() as usize).is_multiple_of(ALIGN));
        let FieldValues::Ragged { values, offsets } = adopted.values(3) else { panic!() };
        assert_eq!(bytes(&values), (vec![3, 1], vec![1, 2, 2]));
        assert_eq!(offsets.shape(), [4]);
        let FieldValues::Tensors(tensors) = adopted.values(4) else { panic!() };
        let shapes: Vec<_> = tensors.iter().flatten().map(|tensor| tensor.shape().len()).collect();
        assert_eq!(shapes, [1, 2, 3]);
        drop((adopted, dense, values, offsets));
        assert!(taker.0.lock().unwrap().is_empty(), "tensors keep the memory");
        drop(tensors);
        assert_eq!(*taker.0.lock().unwrap(), [id]);
    }

    #[test]
    fn what_is_no_parcel_is_refused() {
        let sealed = |bytes: &[u8], seals| {
            let mut file = create_memfd(bytes.len()).unwrap();
            file.write_all(bytes).unwrap();
            seal(&file, seals).unwrap();
            OwnedFd::from(file)
        };
        let all = SEALS.union(SealFlags::WRITE);
        let whole = |document: &str| {
            [&(document.len() as u64).to_le_bytes()[..], document.as_bytes(), &[0; 200]].concat()
        };
        let good = r#"{"failures":[],"values":[{"Texts":[null]}],"remarks":[]}"#;
        assert!(Parcel::read(sealed(&whole(good), all), 1).is_ok());
        assert!(Parcel::read(sealed(&whole(good), SEALS), 1).is_err(), "somebody might still write to it");
        assert!(Parcel::read(sealed(&whole(good), all), 2).is_err(), "of another number of samples");
        let array = |at: &str, shape: &str| {
            let array = format!(r#"{{"at":{{{at}}},"element":"F32","shape":{shape}}}"#);
            whole(&format!(r#"{{"failures":[],"values":[{{"Dense":{array}}}],"remarks":[]}}"#))
        };
        assert!(Parcel::read(sealed(&array(r#""start":64,"end":72"#, "[1,2]"), all), 1).is_ok());
        for wrong in [
            vec![],
            vec![255; 9],
            u64::MAX.to_le_bytes().to_vec(),
            whole("{}"),
            array(r#""start":64,"end":72"#, "[1,3]"),
            array(r#""start":64,"end":72"#, "[-1,-2]"),
            array(r#""start":64,"end":72"#, "[4611686018427387904,4]"),
            array(r#""start":60,"end":68"#, "[1,2]"),
            array(r#""start":72,"end":64"#, "[1,2]"),
            array(r#""start":18446744073709551552,"end":18446744073709551560"#, "[1,2]"),
            array(r#""start":640,"end":648"#, "[1,2]"),
        ] {
            assert!(Parcel::read(sealed(&wrong, all), 1).is_err(), "{:?}", String::from_utf8_lossy(&wrong));
        }
    }
}
