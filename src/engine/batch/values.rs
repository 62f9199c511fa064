//! Values whose lengths differ from sample to sample: strings, bytes, arrays. They are always in host memory. The
//! thread that completes a batch joins the values of each field.

use super::layout::of_images;
use super::leased::LeasedMap;
use super::memory::{BufferAddress, map};
use super::{Batch, Element, Tensor};
use base::error::{Error, Result};
use memmap2::MmapMut;
use pixels::augment::{Output, patch_positions, patches};
use std::ops::Range;
use std::sync::Arc;

/// The value of a field of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Bytes, or a JSON document.
    Bytes(Vec<u8>),
    /// An array of one type, row-major.
    Array(Array),
}

/// An array of a field: numbers of one type, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of the elements.
    pub element: Element,
    /// The lengths of the dimensions, outermost first.
    pub shape: Vec<i64>,
    /// The bytes of the elements, in this machine's order.
    pub bytes: Vec<u8>,
}

impl Array {
    /// Makes an array of an image in the format of `output`, with exactly [`Output::bytes`] bytes.
    pub fn of_image(output: &Output, bytes: Vec<u8>) -> Self {
        let (shape, element) = of_images(output, 1);
        Self { element, shape: shape[1..].to_vec(), bytes }
    }

    /// Makes the arrays of an image's patches of `side` × `side` pixels, and of their positions: a row for each patch.
    pub fn of_patches(output: &Output, side: u32, image: &[u8]) -> [Self; 2] {
        let bytes = patches(output, side, image);
        let positions: Vec<u8> = patch_positions(output, side).flatten().flat_map(i32::to_ne_bytes).collect();
        let (count, columns) = ((positions.len() / 8) as i64, 3 * i64::from(side) * i64::from(side));
        [
            Self { element: output.dtype.into(), shape: vec![count, columns], bytes },
            Self { element: Element::I32, shape: vec![count, 2], bytes: positions },
        ]
    }
}

/// The values of a field in a batch.
pub enum FieldValues {
    /// One string per sample; `None` for a sample without the member.
    Texts(Vec<Option<String>>),
    /// The bytes of each sample; `None` for a sample without the member.
    Bytes(Vec<Option<Vec<u8>>>),
    /// Arrays of one shape: one tensor, [n, ...].
    Dense(Tensor),
    /// Arrays that differ only in the length of their first dimension, as one tensor of rows and one of offsets. Sample
    /// i has the rows from `offsets[i]` to `offsets[i + 1]`.
    Ragged {
        /// The rows of all samples, one sample after another.
        values: Tensor,
        /// The index of each sample's first row, then the number of all rows: `[n + 1]`, int64, or int32 for patches.
        offsets: Tensor,
    },
    /// Arrays of any shapes, one tensor per sample; `None` for a sample without the member.
    Tensors(Vec<Option<Tensor>>),
}

pub(super) enum Gathered {
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Dense(Block, Element, Vec<i64>),
    Ragged { values: Block, element: Element, shape: Vec<i64>, offsets: (Block, Element) },
    Tensors(Vec<Option<(Block, Element, Vec<i64>)>>),
}

/// Memory that belongs to one batch. It is aligned to a page, or to 64 bytes if another process wrote it.
pub(super) struct Block {
    base: BufferAddress,
    bytes: usize,
    _map: BlockMap,
}

enum BlockMap {
    Own(#[expect(dead_code, reason = "held, not used")] MmapMut),
    Leased(#[expect(dead_code, reason = "held, not used")] Arc<LeasedMap>),
}

impl Block {
    fn of<'a>(parts: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Self> {
        let bytes: usize = parts.clone().map(<[u8]>::len).sum();
        // A mapping cannot be empty.
        let mut map = map(bytes.max(1))?;
        let mut at = 0;
        for part in parts {
            map[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let base = BufferAddress(map.as_mut_ptr());
        Ok(Self { base, bytes, _map: BlockMap::Own(map) })
    }

    pub(super) fn part(map: &Arc<LeasedMap>, at: Range<usize>) -> Self {
        let base = BufferAddress(map.base.0.wrapping_add(at.start));
        Self { base, bytes: at.len(), _map: BlockMap::Leased(map.clone()) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is in the mapping, which lives as long as `self`, and no consumer has a tensor of it yet.
        unsafe { std::slice::from_raw_parts(self.base.0, self.bytes) }
    }
}

/// How the arrays of a field are joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Raggedness {
    /// One tensor if the types and shapes in a batch agree, with zeros where a sample has no array. If only the first
    /// dimension differs, values and offsets. Otherwise a list.
    #[default]
    AsTheyAre,
    /// Always values and offsets. If no sample of a batch has an array, the values have zero rows of this type and
    /// width.
    Always {
        /// The type of the values.
        element: Element,
        /// The number of elements in a row; `None` if rows are single numbers.
        columns: Option<u32>,
        /// The type of the offsets: int64 or int32.
        offsets: Element,
    },
    /// Always a list of tensors.
    Never,
}

pub(super) fn gather(values: Vec<Option<Value>>, raggedness: Raggedness) -> Result<Gathered> {
    let first = values.iter().flatten().next();
    match (first, raggedness) {
        (Some(Value::Array(_)), _) | (None, Raggedness::Always { .. }) => {
            let array = |value| match value {
                Some(Value::Array(array)) => Some(array),
                _ => None,
            };
            gather_arrays(values.into_iter().map(array).collect(), raggedness)
        }
        (Some(Value::Bytes(_)), _) => {
            let bytes = |value| match value {
                Some(Value::Bytes(bytes)) => Some(bytes),
                _ => None,
            };
            Ok(Gathered::Bytes(values.into_iter().map(bytes).collect()))
        }
        _ => {
            let text = |value| match value {
                Some(Value::Text(text)) => Some(text),
                _ => None,
            };
            Ok(Gathered::Texts(values.into_iter().map(text).collect()))
        }
    }
}

fn gather_arrays(arrays: Vec<Option<Array>>, raggedness: Raggedness) -> Result<Gathered> {
    let like = arrays.iter().flatten().next();
    let all = |fits: &dyn Fn(&Array, &Array) -> bool| {
        let Some(like) = like else { return true };
        arrays.iter().flatten().all(|array| array.element == like.element && fits(array, like))
    };
    let offsets = match raggedness {
        Raggedness::Always { offsets, .. } => offsets,
        _ => Element::I64,
    };
    let are_rows = all(&|array, like| !array.shape.is_empty() && array.shape.get(1..) == like.shape.get(1..));
    match (raggedness, like) {
        (Raggedness::Always { .. }, Some(like)) if !are_rows => {
            let odd = arrays.iter().flatten().find(|array| {
                array.element != like.element || array.shape.is_empty() || array.shape[1..] != like.shape[1..]
            });
            let shown = |array: &Array| format!("{} {:?}", array.element.name(), array.shape);
            let message = format!(
                "has an array with ragged=True, but one batch contains {} and {}: rows must have the same type and \
                 size to be concatenated; remove ragged=True to get a list of tensors",
                shown(like),
                shown(odd.unwrap_or(like))
            );
            Err(Error::config("fields", message))
        }
        (Raggedness::Always { element, columns, .. }, None) => {
            let shape = [0].into_iter().chain(columns.map(i64::from)).collect();
            Gathered::ragged(&arrays, element, shape, offsets)
        }
        (Raggedness::AsTheyAre, Some(like)) if all(&|array, like| array.shape == like.shape) => {
            let shape = [&[arrays.len() as i64], &like.shape[..]].concat();
            let nothing = vec![0; like.bytes.len()];
            let parts = arrays.iter().map(|array| array.as_ref().map_or(&nothing[..], |array| &array.bytes));
            Ok(Gathered::Dense(Block::of(parts)?, like.element, shape))
        }
        (Raggedness::Always { .. } | Raggedness::AsTheyAre, Some(like)) if are_rows => {
            Gathered::ragged(&arrays, like.element, like.shape.clone(), offsets)
        }
        _ => {
            let whole = |array: Array| {
                let block = Block::of(std::iter::once(&array.bytes[..]))?;
                Ok((block, array.element, array.shape))
            };
            let tensors = arrays.into_iter().map(|array| array.map(whole).transpose());
            Ok(Gathered::Tensors(tensors.collect::<Result<_>>()?))
        }
    }
}

impl Gathered {
    /// Joins arrays whose shapes differ only in the first dimension. `shape` is the shape of any of them. A missing
    /// array has no rows. `of` is the type of the offsets.
    fn ragged(arrays: &[Option<Array>], element: Element, mut shape: Vec<i64>, of: Element) -> Result<Self> {
        let mut end = 0i64;
        let mut offsets = Vec::new();
        let mut add = |end: i64| match of {
            Element::I32 => offsets.extend((end as i32).to_ne_bytes()),
            _ => offsets.extend(end.to_ne_bytes()),
        };
        add(end);
        for array in arrays {
            end += array.as_ref().map_or(0, |array| array.shape[0]);
            add(end);
        }
        shape[0] = end;
        let offsets = (Block::of(std::iter::once(&offsets[..]))?, of);
        let values = Block::of(arrays.iter().flatten().map(|array| &array.bytes[..]))?;
        Ok(Self::Ragged { values, element, shape, offsets })
    }
}

impl Batch {
    /// Returns the values of the field with the index `number` among the fields whose values differ in length.
    pub fn values(&self, number: usize) -> FieldValues {
        let tensor = |block: &Block, element: Element, shape: Vec<i64>| {
            Tensor::in_host_memory(&self.buffer, block.base, shape, element)
        };
        match &self.buffer.values[number] {
            Gathered::Texts(texts) => FieldValues::Texts(texts.clone()),
            Gathered::Bytes(bytes) => FieldValues::Bytes(bytes.clone()),
            Gathered::Dense(block, element, shape) => {
                FieldValues::Dense(tensor(block, *element, shape.clone()))
            }
            Gathered::Ragged { values, element, shape, offsets } => FieldValues::Ragged {
                values: tensor(values, *element, shape.clone()),
                offsets: tensor(&offsets.0, offsets.1, vec![i64::from(self.len) + 1]),
            },
            Gathered::Tensors(tensors) => {
                let each = |(block, element, shape): &(Block, Element, Vec<i64>)| {
                    tensor(block, *element, shape.clone())
                };
                FieldValues::Tensors(tensors.iter().map(|found| found.as_ref().map(each)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[i64], bytes: &[u8]) -> Option<Value> {
        Some(Value::Array(Array { element: Element::U8, shape: shape.to_vec(), bytes: bytes.to_vec() }))
    }

    fn bytes(block: &Block, length: usize) -> Vec<u8> {
        block.bytes()[..length].to_vec()
    }

    #[test]
    fn arrays_are_one_tensor_where_their_shapes_agree() {
        let same = || vec![array(&[2, 1], &[1, 2]), array(&[2, 1], &[3, 4])];
        let Ok(Gathered::Dense(block, _, shape)) = gather(same(), Raggedness::AsTheyAre) else { panic!() };
        assert_eq!((shape, bytes(&block, 4)), (vec![2, 2, 1], vec![1, 2, 3, 4]));
        let always = Raggedness::Always { element: Element::F32, columns: Some(4), offsets: Element::I64 };
        let Ok(Gathered::Ragged { shape, .. }) = gather(same(), always) else { panic!() };
        assert_eq!(shape, [4, 1]);
        let Ok(Gathered::Ragged { shape, element, .. }) = gather(vec![None, None], always) else { panic!() };
        assert_eq!((shape, element), (vec![0, 4], Element::F32));
        let Err(error) = gather(vec![array(&[], &[1])], always) else { panic!() };
        assert!(error.to_string().contains("uint8 []"), "{error}");
        let rows = vec![array(&[1, 2], &[1, 2]), array(&[0, 2], &[]), array(&[2, 2], &[3, 4, 5, 6])];
        let Ok(Gathered::Ragged { values, shape, offsets, .. }) = gather(rows, Raggedness::AsTheyAre) else {
            panic!()
        };
        assert_eq!((shape, bytes(&values, 6)), (vec![3, 2], vec![1, 2, 3, 4, 5, 6]));
        let ends: Vec<i64> = bytes(&offsets.0, 32)
            .chunks(8)
            .map(|raw| i64::from_ne_bytes(raw.try_into().expect("eight bytes")))
            .collect();
        assert_eq!(ends, [0, 1, 1, 3]);
        let some = vec![None, array(&[2, 1], &[1, 2]), array(&[2, 1], &[3, 4])];
        let Ok(Gathered::Dense(block, _, shape)) = gather(some, Raggedness::AsTheyAre) else { panic!() };
        assert_eq!((shape, bytes(&block, 6)), (vec![3, 2, 1], vec![0, 0, 1, 2, 3, 4]));
        let some = vec![array(&[1, 1], &[1]), None, array(&[2, 1], &[3, 4])];
        let Ok(Gathered::Ragged { offsets, .. }) = gather(some, Raggedness::AsTheyAre) else { panic!() };
        assert_eq!(bytes(&offsets.0, 32).chunks(8).map(|end| end[0]).collect::<Vec<_>>(), [0, 1, 1, 3]);
        let any = vec![array(&[1, 2], &[1, 2]), None, array(&[3], &[3, 4, 5])];
        let Ok(Gathered::Tensors(tensors)) = gather(any, Raggedness::AsTheyAre) else { panic!() };
        assert_eq!(tensors.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        let scalars = vec![array(&[], &[7]), array(&[], &[8])];
        let Ok(Gathered::Dense(_, _, shape)) = gather(scalars, Raggedness::AsTheyAre) else { panic!() };
        assert_eq!(shape, [2]);
    }
}
