//! Streams of consumers: a second one that also reads a batch, one that is destroyed too early, one that captures a
//! graph.

use crate::common::{Dataset, child, passes};
use crate::pipeline::{options, pipeline};
use crate::stand_in::{self, Cuda};
use foreload::testing::batch::Batch;
use foreload::testing::config::{AllowedBackends, LoaderOptions};
use foreload::testing::gpu::{GpuDevice, PinnedBuffer, Stream, StreamRef};
use foreload::testing::pipeline::{Epoch, Pipeline};
use std::time::Duration;

const RELAXED: u32 = 2;

/// A consumer that reads batches on streams of its own.
struct Consumer<'a> {
    cuda: &'a Cuda,
    device: GpuDevice,
    // The memory that was read to, which lives until all streams are done.
    targets: Vec<PinnedBuffer>,
}

impl<'a> Consumer<'a> {
    fn new(cuda: &'a Cuda) -> Self {
        Self { cuda, device: GpuDevice::open(0).unwrap(), targets: Vec::new() }
    }

    /// Queues a read of a batch's images on a stream.
    fn read(&mut self, batch: &Batch, stream: u64) {
        let images = batch.images();
        let mut target = PinnedBuffer::new(&self.device, images.len()).unwrap();
        let copy = self.cuda.driver::<extern "C" fn(*mut u8, u64, usize, u64) -> u32>("cuMemcpyDtoHAsync_v2");
        let _bound = self.device.bind().unwrap();
        assert_eq!(copy(target.as_mut_ptr(), images.data() as u64, images.len(), stream), 0);
        self.targets.push(target);
    }

    fn synchronize(&self) {
        self.device.synchronize().unwrap();
    }
}

fn number(stream: u64) -> StreamRef {
    // SAFETY: a stream of the test's own.
    unsafe { StreamRef::from_number(stream as i64) }.unwrap()
}

fn start(dataset: &Dataset) -> Pipeline {
    pipeline(dataset, &LoaderOptions { batch_size: 4, ..options() }, AllowedBackends::Cpu)
}

/// Takes all batches that are left and keeps them, so that every free buffer is written again.
fn go_on(mut epoch: Epoch) {
    let kept: Vec<Batch> = std::iter::from_fn(|| epoch.next_batch().unwrap()).collect();
    assert_eq!(kept.len(), 19);
}

#[test]
fn a_second_stream_is_waited_for_if_it_is_announced() {
    let (mut cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(80);
    for told in [true, false] {
        let mut consumer = Consumer::new(&cuda);
        let second = Stream::new(&consumer.device).unwrap();
        let pipeline = start(&dataset);
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        let batch = epoch.next_batch().unwrap().unwrap();
        if told {
            batch.used_by(StreamRef::from(&second)).unwrap();
        } else {
            batch.synchronize().unwrap();
        }
        consumer.read(&batch, second.handle());
        drop(batch);
        go_on(epoch);
        consumer.synchronize();
        drop((pipeline, consumer));
        let violations = cuda.violations();
        assert_eq!(violations.iter().any(|text| text.contains("in no order")), !told, "{violations:#?}");
        cuda.reset();
    }
}

#[test]
fn a_stream_that_is_gone_too_early_is_waited_for_all_the_same() {
    let (mut cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(80);
    let mut consumer = Consumer::new(&cuda);
    let pipeline = start(&dataset);
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let batch = epoch.next_batch().unwrap().unwrap();
    let mut stream = 0;
    {
        let _bound = consumer.device.bind().unwrap();
        assert_eq!(cuda.driver::<extern "C" fn(*mut u64, u32) -> u32>("cuStreamCreate")(&mut stream, 1), 0);
    }
    let loan = batch.images().lend(number(stream)).unwrap();
    consumer.read(&batch, stream);
    {
        let _bound = consumer.device.bind().unwrap();
        assert_eq!(cuda.driver::<extern "C" fn(u64) -> u32>("cuStreamDestroy_v2")(stream), 0);
    }
    drop((loan, batch));
    go_on(epoch);
    consumer.synchronize();
    drop((pipeline, consumer));
    let violations = cuda.violations();
    assert!(violations.iter().all(|text| text.contains("uses a destroyed stream")), "{violations:#?}");
}

#[test]
fn a_stream_that_captures_meanwhile_is_not_touched() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(80);
    let create = cuda.driver::<extern "C" fn(*mut u64, u32) -> u32>("cuStreamCreate");
    let begin = cuda.driver::<extern "C" fn(u64, u32) -> u32>("cuStreamBeginCapture_v2");
    let end = cuda.driver::<extern "C" fn(u64, *mut u64) -> u32>("cuStreamEndCapture");
    let destroy = cuda.driver::<extern "C" fn(u64) -> u32>("cuStreamDestroy_v2");
    // Either the reader's stream captures, or a blocking stream does while the legacy default stream reads.
    for (flags, legacy) in [(1, false), (0, true)] {
        let mut consumer = Consumer::new(&cuda);
        let pipeline = start(&dataset);
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        let batch = epoch.next_batch().unwrap().unwrap();
        let mut capturing = 0;
        let bound = consumer.device.clone();
        let bound = bound.bind().unwrap();
        assert_eq!(create(&mut capturing, flags), 0);
        let reader = if legacy { StreamRef::LEGACY } else { number(capturing) };
        let loan = batch.images().lend(reader).unwrap();
        consumer.read(&batch, reader.handle());
        assert_eq!(begin(capturing, RELAXED), 0);
        let refused = batch.images().lend(reader).err().unwrap().to_string();
        assert!(refused.starts_with("config: stream: is capturing a CUDA graph"), "{refused}");
        assert_eq!(batch.used_by(reader).unwrap_err().to_string(), refused);
        drop((loan, batch));
        std::thread::scope(|scope| {
            let device = consumer.device.clone();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                let _bound = device.bind().unwrap();
                assert_eq!(end(capturing, &mut 0), 0, "the capture is sound");
            });
            go_on(epoch);
        });
        // It was to be marked after its capture, so it must have lived as long as the loader.
        drop(pipeline);
        assert_eq!(destroy(capturing), 0);
        drop(bound);
        consumer.synchronize();
    }
}

#[test]
fn what_a_stream_that_captures_has_read_may_be_the_last_of_all() {
    passes(child(ends_while_it_captures).env("FORELOAD_STANDIN_LEAKS", "ignore"));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn ends_while_it_captures() {
    let (cuda, _nvjpeg) = stand_in::both();
    cuda.abort_on_violation();
    let dataset = Dataset::folder(16);
    let mut consumer = Consumer::new(&cuda);
    let stream = Stream::new(&consumer.device).unwrap();
    let pipeline = start(&dataset);
    let batch = pipeline.epoch(0, 0, 1, 0).unwrap().next_batch().unwrap().unwrap();
    let loan = batch.images().lend(StreamRef::from(&stream)).unwrap();
    consumer.read(&batch, stream.handle());
    drop(pipeline);
    let device = consumer.device.clone();
    let bound = device.bind().unwrap();
    let begin = cuda.driver::<extern "C" fn(u64, u32) -> u32>("cuStreamBeginCapture_v2");
    let end = cuda.driver::<extern "C" fn(u64, *mut u64) -> u32>("cuStreamEndCapture");
    assert_eq!(begin(stream.handle(), 0), 0);
    // This is the thread that captures: waiting for the end of the capture would mean waiting for itself.
    drop((loan, batch));
    assert_eq!(end(stream.handle(), &mut 0), 0);
    drop(bound);
    consumer.synchronize();
    assert!(cuda.leaks().iter().any(|leak| leak.contains("1 device allocations")), "{:?}", cuda.leaks());
    std::mem::forget(cuda);
}
