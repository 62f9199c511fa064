//! Which tensors a batch contains, and where they are in its buffer.

use super::{Element, Raggedness};
use pixels::arrays::Number;
use pixels::augment::{DType, MemoryFormat, Output};

/// Alignment of every tensor of a batch in bytes, as DLPack requires.
const ALIGN: usize = 256;

/// The contents of a batch in addition to the label, id, occurrence and mask of each sample.
#[derive(Debug, Clone, Default)]
pub struct BatchLayout {
    /// The image tensors, each [n, 3, height, width] or [n, height, width, 3].
    pub images: Vec<Output>,
    /// Additional tensors, which have the same number of elements for every sample.
    pub columns: Vec<Column>,
    /// The fields whose values differ in length from sample to sample, and how their arrays are joined.
    pub values: Vec<Raggedness>,
}

/// A tensor with the same number of elements for every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The type of the elements.
    pub element: Element,
    /// The lengths of the dimensions after the first, which counts the samples.
    pub shape: Vec<u32>,
}

impl Column {
    /// Returns the number of bytes per sample.
    pub fn bytes(&self) -> usize {
        let elements = self.shape.iter().fold(1usize, |product, &n| product.saturating_mul(n as usize));
        elements.saturating_mul(self.element.size())
    }
}

impl BatchLayout {
    /// Returns the layout of a batch that holds only images.
    #[cfg(test)]
    pub fn of_images(output: Output) -> Self {
        Self { images: vec![output], ..Self::default() }
    }

    /// Adds a column, and returns its number.
    pub(crate) fn add_column(&mut self, element: Element, shape: Vec<u32>) -> usize {
        self.columns.push(Column { element, shape });
        self.columns.len() - 1
    }

    /// Adds a field whose values differ in length, and returns its number.
    pub(crate) fn add_values(&mut self, raggedness: Raggedness) -> usize {
        self.values.push(raggedness);
        self.values.len() - 1
    }

    /// Returns the number of bytes of a buffer for `capacity` samples.
    pub fn bytes(&self, capacity: usize) -> usize {
        BufferPlan::new(self, capacity).bytes
    }

    /// Returns the number of bytes of the columns, which are all contents except images, in a buffer for `capacity`
    /// samples.
    pub fn column_bytes(&self, capacity: usize) -> usize {
        let BufferPlan { bytes, columns, .. } = BufferPlan::new(self, capacity);
        bytes - columns
    }
}

/// The positions of all tensors in a buffer: first the images, then the columns.
#[derive(Debug, Clone)]
pub(super) struct BufferPlan {
    pub images: Vec<TensorSpan>,
    /// Offset of the first column in the buffer. All offsets of columns below are relative to it.
    pub columns: usize,
    pub labels: usize,
    pub ids: usize,
    /// Offset of the occurrences, int64. If an epoch draws a sample several times, the occurrence numbers these draws.
    pub occurrences: usize,
    pub mask: usize,
    pub further: Vec<TensorSpan>,
    pub bytes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TensorSpan {
    pub start: usize,
    pub sample_bytes: usize,
}

impl BufferPlan {
    /// Plans a buffer for `capacity` samples. Sizes saturate instead of overflowing, because a later check of the
    /// memory limit refuses such a batch.
    pub(crate) fn new(layout: &BatchLayout, capacity: usize) -> Self {
        let mut end = 0usize;
        let mut take = |sample_bytes: usize| {
            let start = end;
            let bytes =
                capacity.saturating_mul(sample_bytes).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
            end = end.saturating_add(bytes);
            TensorSpan { start, sample_bytes }
        };
        let images = layout.images.iter().map(|output| take(output.bytes())).collect();
        let labels = take(8).start;
        let ids = take(8).start;
        let occurrences = take(8).start;
        let mask = take(1).start;
        let further: Vec<TensorSpan> = layout.columns.iter().map(|column| take(column.bytes())).collect();
        let from_columns = |span: TensorSpan| TensorSpan { start: span.start - labels, ..span };
        Self {
            images,
            columns: labels,
            labels: 0,
            ids: ids - labels,
            occurrences: occurrences - labels,
            mask: mask - labels,
            further: further.into_iter().map(from_columns).collect(),
            bytes: end,
        }
    }
}

impl From<DType> for Element {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::Bf16 => Self::Bf16,
            DType::U8 => Self::U8,
        }
    }
}

impl From<Number> for Element {
    fn from(number: Number) -> Self {
        match number {
            Number::Bool => Self::Bool,
            Number::Signed(1) => Self::I8,
            Number::Signed(2) => Self::I16,
            Number::Signed(4) => Self::I32,
            Number::Signed(_) => Self::I64,
            Number::Unsigned(1) => Self::U8,
            Number::Unsigned(2) => Self::U16,
            Number::Unsigned(4) => Self::U32,
            Number::Unsigned(_) => Self::U64,
            Number::Float(2) => Self::F16,
            Number::Float(4) => Self::F32,
            Number::Float(_) => Self::F64,
            Number::Brain => Self::Bf16,
        }
    }
}

pub(super) fn of_images(output: &Output, n: u32) -> (Vec<i64>, Element) {
    let (n, h, w) = (i64::from(n), i64::from(output.height), i64::from(output.width));
    let shape = match output.format {
        MemoryFormat::Nchw => vec![n, 3, h, w],
        MemoryFormat::Nhwc => vec![n, h, w, 3],
    };
    (shape, output.dtype.into())
}
