//! CUDA graphs that other code of the process captures, as torch does by default. A loader's work must never become
//! part of such a graph or invalidate it.

use crate::common::{Dataset, batches, child, passes, thorough};
use crate::pipeline::{options, pipeline};
use crate::stand_in::{self, Cuda};
use foreload::testing::config::{AllowedBackends, LoaderOptions};
use foreload::testing::gpu::{Event, GpuDevice, Stream};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The driver's `CU_STREAM_CAPTURE_MODE_*`.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;

/// The error codes of a call that a capture forbids, and of ending a capture that was invalidated.
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;

/// A capture in its own thread, in the strictest mode.
struct Capture {
    end: Sender<()>,
    thread: JoinHandle<u32>,
}

impl Capture {
    fn begin(cuda: &Cuda) -> Self {
        let begin = cuda.driver::<extern "C" fn(u64, u32) -> u32>("cuStreamBeginCapture_v2");
        let finish = cuda.driver::<extern "C" fn(u64, *mut u64) -> u32>("cuStreamEndCapture");
        let ((begun, has_begun), (end, ending)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let device = GpuDevice::open(0).unwrap();
            let stream = Stream::new(&device).unwrap();
            let _bound = device.bind().unwrap();
            assert_eq!(begin(stream.handle(), GLOBAL), 0);
            begun.send(()).unwrap();
            ending.recv().unwrap();
            finish(stream.handle(), &mut 0)
        });
        has_begun.recv().unwrap();
        Self { end, thread }
    }

    /// Ends the capture; returns the driver's status.
    fn end(self) -> u32 {
        self.end.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

fn exchange(cuda: &Cuda, mut mode: u32) -> u32 {
    assert_eq!(
        cuda.driver::<extern "C" fn(*mut u32) -> u32>("cuThreadExchangeStreamCaptureMode")(&mut mode),
        0
    );
    mode
}

#[test]
fn unsafe_calls_spoil_captures_unless_a_thread_says_that_they_do_not_belong() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let synchronize = cuda.driver::<extern "C" fn(u64) -> u32>("cuStreamSynchronize");
    let everything = cuda.driver::<extern "C" fn() -> u32>("cuCtxSynchronize");
    let bound = device.bind().unwrap();
    for (mode, spoils) in [(GLOBAL, true), (THREAD_LOCAL, false)] {
        let capture = Capture::begin(&cuda);
        let former = exchange(&cuda, mode);
        assert_eq!(synchronize(stream.handle()), if spoils { UNSUPPORTED } else { 0 });
        exchange(&cuda, former);
        assert_eq!(capture.end(), if spoils { INVALIDATED } else { 0 });
    }
    // Waiting for the whole context means waiting for the stream that captures.
    let capture = Capture::begin(&cuda);
    assert_eq!(everything(), UNSUPPORTED);
    assert_eq!(capture.end(), INVALIDATED);
    drop(bound);
}

#[test]
fn a_thread_that_calls_us_keeps_its_mode() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    exchange(&cuda, THREAD_LOCAL);
    let stream = Stream::new(&device).unwrap();
    let event = Event::new(&device).unwrap();
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
    let (outer, inner) = (device.bind().unwrap(), device.bind().unwrap());
    drop(inner);
    let capture = Capture::begin(&cuda);
    assert_eq!(cuda.driver::<extern "C" fn(u64) -> u32>("cuStreamSynchronize")(stream.handle()), 0);
    drop(outer);
    assert_eq!(capture.end(), 0);
    assert_eq!(exchange(&cuda, GLOBAL), THREAD_LOCAL);
}

#[test]
fn a_capture_beside_thousands_of_batches_is_never_spoiled() {
    passes(child(loads_beside_a_capture).env("FORELOAD_STANDIN_DELAY_US", "0"));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn loads_beside_a_capture() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(40);
    let asked = LoaderOptions { batch_size: 2, image_size: (8, 8), ..options() };
    let (mut count, epochs) = (0, if thorough() { 167 } else { 20 });
    // Starts, ends of epochs, a dropped epoch and ends of loaders all happen during the capture.
    for _ in 0..3 {
        let capture = Capture::begin(&cuda);
        let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
        for number in 0..epochs {
            for batch in batches(&pipeline, number) {
                count += 1;
                if count % 100 == 0 {
                    assert_eq!(batch.labels().read().unwrap().len(), 16);
                }
            }
        }
        pipeline.epoch(epochs, 0, 1, 0).unwrap().next_batch().unwrap();
        drop(pipeline);
        assert_eq!(capture.end(), 0, "after {count} batches");
    }
    assert!(count >= if thorough() { 10_000 } else { 1000 }, "{count}");
}
