//! What a consumer holds of a batch.

use super::memory::Base;
use super::pool::Buffer;
use std::sync::Arc;

/// Type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Unsigned byte.
    U8,
    /// 64-bit signed integer.
    I64,
    /// One byte, 0 or 1.
    Bool,
}

impl Element {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::Bool => 1,
            Self::I64 => 8,
        }
    }

    /// The name NumPy and torch know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::U8 => "uint8",
            Self::I64 => "int64",
            Self::Bool => "bool",
        }
    }
}

/// One contiguous array of a batch. While it lives its buffer is not used again.
#[derive(Clone)]
pub struct Tensor {
    #[expect(dead_code, reason = "held, not used")]
    pub(super) buffer: Arc<Buffer>,
    pub(super) data: Base,
    pub(super) shape: Vec<i64>,
    pub(super) element: Element,
}

impl Tensor {
    /// Lengths of the dimensions, outermost first.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The elements' bytes, row-major.
    pub fn bytes(&self) -> &[u8] {
        let count: i64 = self.shape.iter().product();
        // SAFETY: the range is of memory that the buffer keeps, which lives as long as `self`. A consumer that writes through
        // `data` while it reads here races with itself, as with any shared tensor.
        unsafe { std::slice::from_raw_parts(self.data(), count as usize * self.element.size()) }
    }

    /// The first element, for consumers that may write.
    pub fn data(&self) -> *mut u8 {
        self.data.0
    }
}
