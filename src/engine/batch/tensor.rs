//! Tensors: the arrays of a batch that a consumer holds.

use super::memory::{BufferAddress, CudaMemory};
use super::pool::BatchBuffer;
use base::error::Result;
use pixels::gpu::StreamRef;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// 16-bit IEEE float (half precision).
    F16,
    /// bfloat16.
    Bf16,
    /// Unsigned byte.
    U8,
    /// 64-bit float.
    F64,
    /// Signed byte.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
}

impl Element {
    /// Returns the number of bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Returns the name of the type in NumPy and torch.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::U8 => "uint8",
            Self::F64 => "float64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bool => "bool",
        }
    }
}

/// Where the bytes of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Host memory.
    Host,
    /// Memory of the GPU with this index.
    Cuda(u32),
}

/// One contiguous array of a batch. While it exists, its buffer is not reused.
#[derive(Clone)]
pub struct Tensor {
    pub(super) buffer: Arc<BatchBuffer>,
    pub(super) data: BufferAddress,
    pub(super) shape: Vec<i64>,
    pub(super) element: Element,
    /// Whether the tensor is in host memory, although the batch's images may be on a GPU.
    pub(super) on_host: bool,
}

impl Tensor {
    pub(super) fn in_host_memory(
        buffer: &Arc<BatchBuffer>,
        data: BufferAddress,
        shape: Vec<i64>,
        element: Element,
    ) -> Self {
        Self { buffer: buffer.clone(), data, shape, element, on_host: true }
    }

    /// Returns a bool tensor as uint8, for consumers without a bool type.
    pub fn of_bytes(self) -> Self {
        Self { element: Element::U8, ..self }
    }

    fn cuda(&self) -> Option<&CudaMemory> {
        if self.on_host { None } else { self.buffer.memory().cuda() }
    }

    /// Returns the lengths of the dimensions, outermost first.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Returns the memory that holds the elements.
    pub fn place(&self) -> Place {
        if self.on_host { Place::Host } else { self.buffer.memory().place() }
    }

    /// Returns the number of bytes of all elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.element.size()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements' bytes, row-major.
    ///
    /// # Panics
    /// Panics if the tensor is on a GPU: see [`Tensor::read`].
    pub fn bytes(&self) -> &[u8] {
        assert_eq!(
            self.place(),
            Place::Host,
            "the bytes of a tensor on a GPU cannot be borrowed: use Tensor::read"
        );
        // SAFETY: the range is in memory that the buffer keeps, which lives as long as `self`. A consumer that writes
        // through `data` during the read races with itself, as with any shared tensor.
        unsafe { std::slice::from_raw_parts(self.data(), self.len()) }
    }

    /// Returns the elements' bytes, row-major. For a tensor on a GPU, waits until the batch is complete and copies the
    /// bytes to the host.
    ///
    /// # Errors
    /// [`Error::Gpu`](base::error::Error::Gpu).
    pub fn read(&self) -> Result<Cow<'_, [u8]>> {
        let Some(memory) = self.cuda() else { return Ok(Cow::Borrowed(self.bytes())) };
        let offset = self.data() as u64 - memory.buffer().ptr();
        memory.read(offset as usize, self.len()).map(Cow::Owned)
    }

    /// Returns the address of the first element, in host memory or on the GPU. Consumers may write there.
    pub fn data(&self) -> *mut u8 {
        self.data.0
    }

    /// Lets the GPU stream `stream` read the tensor until the returned [`StreamUse`] is dropped. The stream waits until
    /// the batch is complete. The memory is reused only after the work that the stream has queued by the time of the
    /// drop. For a tensor in host memory, this does nothing.
    ///
    /// # Errors
    /// [`Error::Config`](base::error::Error::Config) while the stream captures a CUDA graph;
    /// [`Error::Gpu`](base::error::Error::Gpu).
    pub fn lend(&self, stream: StreamRef) -> Result<StreamUse> {
        if let Some(memory) = self.cuda() {
            memory.add_reader(stream)?;
        }
        Ok(StreamUse { buffer: self.buffer.clone(), stream })
    }
}

/// The right of a GPU stream to read a batch. The stream must live until this value is dropped. If the stream captures
/// a CUDA graph at that time, it must live as long as the batch's pool, because the pool asks the stream later whether
/// the capture has ended.
pub struct StreamUse {
    buffer: Arc<BatchBuffer>,
    stream: StreamRef,
}

impl Drop for StreamUse {
    fn drop(&mut self) {
        if let Some(memory) = self.buffer.memory().cuda() {
            memory.remove_reader(self.stream);
        }
    }
}
