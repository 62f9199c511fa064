//! What a batch holds of its samples, and where in its buffer.

use super::{Element, Raggedness};
use crate::augment::{DType, MemoryFormat, Output};

/// Every tensor of a batch begins at a multiple of this: what DLPack asks of a tensor's data.
const ALIGN: usize = 256;

/// What a batch holds of each sample beside its label, id and mask bit.
#[derive(Debug, Clone, Default)]
pub struct BatchLayout {
    /// Images that the pass makes: a tensor for each, [n, 3, height, width] or [n, height, width, 3].
    pub images: Vec<Output>,
    /// Further tensors, of as many elements for every sample.
    pub columns: Vec<Column>,
    /// The fields whose values differ in length from sample to sample, and how their arrays are put together.
    pub values: Vec<Raggedness>,
}

/// A tensor with as many elements for every sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Their type.
    pub element: Element,
    /// Lengths of the dimensions behind the first, which counts the samples.
    pub shape: Vec<u32>,
}

impl Column {
    /// Bytes of a sample.
    pub fn bytes(&self) -> usize {
        let elements = self.shape.iter().fold(1usize, |product, &n| product.saturating_mul(n as usize));
        elements.saturating_mul(self.element.size())
    }
}

impl BatchLayout {
    /// A batch of images alone.
    pub fn of_images(output: Output) -> Self {
        Self { images: vec![output], ..Self::default() }
    }

    /// Bytes of a buffer for `capacity` samples.
    pub fn bytes(&self, capacity: usize) -> usize {
        Plan::new(self, capacity).bytes
    }

    /// Bytes of what a buffer for `capacity` samples holds beside the images.
    pub fn column_bytes(&self, capacity: usize) -> usize {
        let Plan { bytes, columns, .. } = Plan::new(self, capacity);
        bytes - columns
    }
}

/// Where everything lies in a buffer: the images, then the columns.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// First byte and bytes a sample of each tensor of images.
    pub images: Vec<Span>,
    /// Where the columns begin.
    pub columns: usize,
    /// From there on.
    pub labels: usize,
    /// From there on.
    pub ids: usize,
    /// From there on.
    pub mask: usize,
    /// First byte from there on, and bytes a sample, of each further column.
    pub further: Vec<Span>,
    /// Bytes in all.
    pub bytes: usize,
}

/// A tensor in a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Its first byte.
    pub start: usize,
    /// Bytes of a sample.
    pub each: usize,
}

impl Plan {
    /// Saturates instead of overflowing: such a batch is refused by whoever compares it with memory.
    pub(crate) fn new(layout: &BatchLayout, capacity: usize) -> Self {
        let mut end = 0usize;
        let mut take = |each: usize| {
            let start = end;
            let bytes = capacity.saturating_mul(each).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
            end = end.saturating_add(bytes);
            Span { start, each }
        };
        let images = layout.images.iter().map(|output| take(output.bytes())).collect();
        let labels = take(8).start;
        let ids = take(8).start;
        let mask = take(1).start;
        let further: Vec<Span> = layout.columns.iter().map(|column| take(column.bytes())).collect();
        let from_columns = |span: Span| Span { start: span.start - labels, ..span };
        Self {
            images,
            columns: labels,
            labels: 0,
            ids: ids - labels,
            mask: mask - labels,
            further: further.into_iter().map(from_columns).collect(),
            bytes: end,
        }
    }
}

impl Output {
    /// The type of a tensor of such images.
    pub fn element(&self) -> Element {
        match self.dtype {
            DType::F32 => Element::F32,
            DType::F16 => Element::F16,
            DType::Bf16 => Element::Bf16,
            DType::U8 => Element::U8,
        }
    }
}

/// The shape of `n` images, and the type of their elements.
pub(super) fn of_images(output: &Output, n: u32) -> (Vec<i64>, Element) {
    let (n, h, w) = (i64::from(n), i64::from(output.height), i64::from(output.width));
    let shape = match output.format {
        MemoryFormat::Nchw => vec![n, 3, h, w],
        MemoryFormat::Nhwc => vec![n, h, w, 3],
    };
    (shape, output.element())
}
