//! A batch: one buffer of images, labels, sample ids and mask. Many threads fill it, and then the consumer owns it.
//!
//! A buffer is in one of three states: free in its [`BatchPool`]; in the pipeline, where one [`Ticket`] per sample and
//! one [`BatchCloser`] exist until the batch is complete; or with the consumer, which keeps it while any [`Tensor`] of
//! it exists. It is reused only after its last tensor is dropped. (→ tests/load/pipeline.rs, tests/python/)

mod encoded;
mod layout;
mod leased;
mod memory;
mod open_batch;
mod parcel;
mod pool;
mod shared;
mod tensor;
mod upload;
mod values;

pub use encoded::Encoded;
pub use layout::{BatchLayout, Column};
pub use leased::{LeaseOwner, LeasedMap, LeasedMemory};
pub use memory::{BatchStorage, CudaStorage};
pub use open_batch::{BatchCloser, Ticket};
pub use parcel::{Parcel, Remark};
pub use pool::{BatchPool, Pools};
pub use shared::{check_leasing, take_freed_buffers};
pub use tensor::StreamUse;
pub use tensor::{Element, Place, Tensor};
pub use upload::{UploadBuffer, Uploader};
pub use values::{Array, FieldValues, Raggedness, Value};

use base::error::{Error, Result};
use memory::BufferAddress;
use pixels::gpu::StreamRef;
use pool::BatchBuffer;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Receives finished batches.
pub trait Sink: Send + Sync {
    /// Takes a batch, or drops it if no consumer waits for a batch any more.
    fn put(&self, batch: Batch);
    /// Reports that a batch will not come, because there was no memory to complete it.
    fn fail(&self, error: Error);
}

/// A sample that could not be read or decoded.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The index of the sample in the batch.
    pub index: u32,
    /// The sample's id.
    pub sample: u64,
    /// Why it failed.
    pub error: Error,
    /// Whether the epoch cannot continue without this sample.
    pub fatal: bool,
}

/// A finished batch.
pub struct Batch {
    step: u64,
    len: u32,
    failures: Vec<Failure>,
    buffer: Arc<BatchBuffer>,
}

impl Batch {
    /// Returns the index of the batch in its epoch.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the batch holds no sample, for example on a rank whose stream ended before the streams of other
    /// ranks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes out the samples that failed, in the order of their indices in the batch.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// Hands the buffer to the consumer. A delivered buffer no longer counts towards the pipeline's maximum number of
    /// buffers.
    pub fn deliver(&mut self) {
        let buffer = Arc::get_mut(&mut self.buffer).expect("a batch has no tensors before its delivery");
        buffer.deliver();
    }

    /// Waits until a batch on a GPU is complete. A batch in host memory is complete already.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn synchronize(&self) -> Result<()> {
        let ready = self.buffer.memory().cuda().and_then(|memory| memory.ready());
        ready.map_or(Ok(()), |ready| ready.synchronize())
    }

    /// Lets the GPU stream `stream` read any tensor of the batch until the batch's last tensor is dropped. The stream
    /// must live until then. Use this for a stream other than the stream that was passed to [`Tensor::lend`]. The
    /// buffer is reused only after all work that this stream has queued by then. For a batch in host memory, this does
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Config`] while the stream captures a CUDA graph; [`Error::Gpu`].
    pub fn used_by(&self, stream: StreamRef) -> Result<()> {
        self.buffer.memory().cuda().map_or(Ok(()), |memory| memory.add_reader_until_drop(stream))
    }

    /// Returns the number of the batch's layout among the layouts of its pool: 0 unless images have several sizes.
    pub fn layout(&self) -> usize {
        self.buffer.layout_number()
    }

    /// Returns the number of image tensors.
    pub fn num_images(&self) -> usize {
        self.buffer.layout().images.len()
    }

    /// Returns the first image tensor; `uint8 [n, 0]` if there is none.
    pub fn images(&self) -> Tensor {
        if self.num_images() == 0 {
            return self.tensor(0, vec![i64::from(self.len), 0], Element::U8);
        }
        self.images_of(0)
    }

    /// Returns the image tensor with the index `number`, `[n, 3, height, width]` or `[n, height, width, 3]` in the
    /// loader's dtype. There is one tensor for each view of each image field.
    ///
    /// # Panics
    /// Panics if there are not that many image tensors.
    pub fn images_of(&self, number: usize) -> Tensor {
        let (shape, element) = layout::of_images(&self.buffer.layout().images[number], self.len);
        self.tensor(self.buffer.plan().images[number].start, shape, element)
    }

    /// Returns the number of additional tensors with a fixed number of elements per sample.
    pub fn num_columns(&self) -> usize {
        self.buffer.layout().columns.len()
    }

    /// Returns the number of fields whose values differ in size from sample to sample.
    pub fn num_values(&self) -> usize {
        self.buffer.layout().values.len()
    }

    /// Returns the additional tensor with the index `number`, `[n, ...]`.
    ///
    /// # Panics
    /// Panics if there are not that many additional tensors.
    pub fn further(&self, number: usize) -> Tensor {
        let Column { element, shape } = &self.buffer.layout().columns[number];
        let shape = std::iter::once(self.len).chain(shape.iter().copied()).map(i64::from).collect();
        let offset = self.buffer.plan().columns + self.buffer.plan().further[number].start;
        self.tensor(offset, shape, *element)
    }

    /// Returns the class numbers, `int64 [n]`. They have no meaning if the dataset has no classes: see
    /// [`data::dataset::DatasetIndex::is_labeled`].
    pub fn labels(&self) -> Tensor {
        self.column(self.buffer.plan().labels, Element::I64)
    }

    /// Returns the sample ids, `int64 [n]`.
    pub fn sample_ids(&self) -> Tensor {
        self.column(self.buffer.plan().ids, Element::I64)
    }

    /// Returns which draw of its sample each row of the batch is, `int64 [n]`: 0 for the first draw of a sample in the
    /// epoch, 1 for the second. The random choices of a view depend on this number.
    pub fn occurrences(&self) -> Tensor {
        self.column(self.buffer.plan().occurrences, Element::I64)
    }

    /// Returns the mask as `uint8 [n]`, for consumers without a bool type.
    pub fn mask_bytes(&self) -> Tensor {
        self.mask().of_bytes()
    }

    /// Returns which rows of the batch hold valid samples, `bool [n]`: false for padding and for failed samples that
    /// were replaced by zeros.
    pub fn mask(&self) -> Tensor {
        self.column(self.buffer.plan().mask, Element::Bool)
    }

    fn column(&self, offset: usize, element: Element) -> Tensor {
        let columns = self.buffer.plan().columns;
        self.tensor(columns + offset, vec![i64::from(self.len)], element)
    }

    fn tensor(&self, offset: usize, shape: Vec<i64>, element: Element) -> Tensor {
        Tensor {
            buffer: self.buffer.clone(),
            data: BufferAddress(self.buffer.memory().base().0.wrapping_add(offset)),
            shape,
            element,
            on_host: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pixels::augment::{DType, Fidelity, MemoryFormat, Output};
    use std::sync::Mutex;

    #[derive(Default)]
    pub(super) struct Collected(pub(super) Mutex<Vec<Batch>>);

    impl Sink for Collected {
        fn put(&self, batch: Batch) {
            self.0.lock().unwrap().push(batch);
        }
        fn fail(&self, error: Error) {
            panic!("{error}");
        }
    }

    pub(super) fn collector() -> (Arc<dyn Sink>, Arc<Collected>) {
        let collector = Arc::<Collected>::default();
        (collector.clone(), collector)
    }

    fn pool(prefetch: usize, batches: usize) -> BatchPool {
        let output = Output {
            height: 2,
            width: 3,
            dtype: DType::U8,
            format: MemoryFormat::Nhwc,
            mean: [0.0; 3],
            std: [1.0; 3],
            fill: [0; 3],
            fidelity: Fidelity::Fast,
        };
        BatchPool::new(
            4,
            BatchLayout::of_images(output),
            Pools { slot_bytes: 0, prefetch, batches },
            BatchStorage::Host,
            || {},
        )
    }

    #[test]
    fn a_batch_is_ready_when_its_last_place_is() {
        let (ready, finished) = collector();
        let (closer, mut tickets) = pool(1, 1).begin(7, 3, &ready).unwrap().unwrap();
        closer.close();
        for (index, mut ticket) in tickets.drain(..).enumerate().rev() {
            assert!(finished.0.lock().unwrap().is_empty());
            ticket.image(0).fill(index as u8);
            ticket.finish(10 + index as u64, 30 + index as u32, 20 + index as u32, index != 1);
        }
        let batch = finished.0.lock().unwrap().pop().unwrap();
        assert_eq!((batch.step(), batch.len()), (7, 3));
        assert_eq!(batch.images().shape(), [3, 2, 3, 3]);
        assert!(batch.images().bytes().chunks(18).zip(0..).all(|(image, i)| image == [i; 18]));
        assert_eq!(batch.mask().bytes(), [1, 0, 1]);
        let longs = |tensor: Tensor| -> Vec<i64> {
            tensor.bytes().chunks(8).map(|raw| i64::from_ne_bytes(raw.try_into().unwrap())).collect()
        };
        assert_eq!(longs(batch.sample_ids()), [10, 11, 12]);
        assert_eq!(longs(batch.labels()), [20, 21, 22]);
        assert_eq!(longs(batch.occurrences()), [30, 31, 32]);
    }

    #[test]
    fn nothing_goes_on_before_the_closer_is_closed() {
        let (ready, finished) = collector();
        let pool = pool(3, 3);
        let (closer, tickets) = pool.begin(0, 1, &ready).unwrap().unwrap();
        for ticket in tickets {
            ticket.finish(0, 0, 0, true);
        }
        assert!(finished.0.lock().unwrap().is_empty());
        closer.close();
        assert_eq!(finished.0.lock().unwrap().len(), 1);
        let (closer, _) = pool.begin(1, 0, &ready).unwrap().unwrap();
        drop(closer);
        assert_eq!(finished.0.lock().unwrap().len(), 1, "a dropped closer spoils the batch");
        let (closer, _) = pool.begin(2, 0, &ready).unwrap().unwrap();
        closer.close();
        assert!(finished.0.lock().unwrap()[1].is_empty(), "a batch without places needs only its closer");
    }

    #[test]
    fn an_unfinished_place_spoils_the_batch_but_not_the_buffer() {
        let (ready, finished) = collector();
        let pool = pool(1, 1);
        let (closer, mut tickets) = pool.begin(0, 2, &ready).unwrap().unwrap();
        closer.close();
        tickets.pop().unwrap().finish(0, 0, 0, true);
        assert!(pool.begin(1, 2, &ready).unwrap().is_none(), "the pipeline's share is one buffer");
        drop(tickets);
        assert!(finished.0.lock().unwrap().is_empty());
        assert!(pool.begin(1, 2, &ready).unwrap().is_some());
    }

    #[test]
    fn no_more_buffers_are_prepared_than_the_pipeline_needs() {
        for (prefetch, batches, expected) in [(1, 4, 2), (3, 4, 4), (4, 4, 4)] {
            let pool = pool(prefetch, batches);
            let prepared = std::iter::from_fn(|| pool.prepare_one().unwrap().then_some(())).count();
            assert_eq!(prepared, expected);
            let (ready, _) = collector();
            let open: Vec<_> = (0..).map_while(|step| pool.begin(step, 0, &ready).unwrap()).collect();
            assert_eq!(open.len(), prefetch, "they are what batches are made in");
        }
    }

    #[test]
    fn a_held_tensor_keeps_its_buffer_out_of_the_pool() {
        let (ready, finished) = collector();
        let pool = pool(1, 3);
        let next = |step| {
            let (closer, tickets) = pool.begin(step, 1, &ready).unwrap()?;
            closer.close();
            for ticket in tickets {
                ticket.finish(step, 0, 0, true);
            }
            let mut batch = finished.0.lock().unwrap().pop().unwrap();
            batch.deliver();
            Some(batch)
        };
        let labels = next(0).unwrap().labels();
        let second = next(1).unwrap();
        assert!(next(2).is_none(), "two are enough for who drops each batch when it has the next");
        pool.consumer_waits();
        let third = next(2).unwrap();
        pool.consumer_waits();
        assert!(next(3).is_none(), "three is all there may be");
        assert!(pool.all_held());
        drop(labels);
        assert!(!pool.all_held());
        assert!(next(3).is_some());
        drop((second, third));
    }
}
