//! The checks of the stand-in: each kind of wrong program is caught, and a correct program like it is not.

use crate::stand_in;
use crate::work::add;
use foreload::testing::gpu::{
    Arg, DeviceBuffer, Event, GpuDevice, InFlight, MemoryPool, PinnedBuffer, PinnedSlice, Stream,
};
use libloading::os::unix::Library;
use std::ffi::c_void;

struct Bench {
    device: GpuDevice,
    pool: MemoryPool,
    first: Stream,
    second: Stream,
    source: PinnedSlice,
}

impl Bench {
    fn new() -> Self {
        let device = GpuDevice::open(0).unwrap();
        let pool = MemoryPool::new(&device, 1 << 20).unwrap();
        let (first, second) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
        let source = PinnedBuffer::new(&device, 1000).unwrap().into_slice().unwrap();
        Self { device, pool, first, second, source }
    }

    /// A buffer that the first stream has written, and the flight that wrote it.
    fn written(&self) -> (DeviceBuffer, InFlight) {
        let buffer = self.pool.allocate(&self.first, 1000).unwrap();
        // From here on all streams may use it: the host has seen that the memory exists.
        self.first.synchronize().unwrap();
        let mut flight = InFlight::new(&self.first).unwrap();
        flight.copy_to_device(buffer.whole(), &self.source).unwrap();
        flight.submit().unwrap();
        (buffer, flight)
    }
}

/// A function of the driver, for calls that our own interface does not allow.
fn driver<F: Copy>(name: &str) -> F {
    // SAFETY: it is loaded already.
    let library = unsafe { Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: the callers below name the types of `cuda.h`.
    unsafe { *library.get::<F>(name.as_bytes()).unwrap() }
}

type QueueCopy = extern "C" fn(u64, *const c_void, usize, u64) -> u32;
type QueueFree = extern "C" fn(u64, u64) -> u32;

/// Checks that there is only one violation, and that its message has these words.
#[track_caller]
fn assert_caught(cuda: &mut stand_in::Cuda, words: &[&str]) {
    let violations = cuda.violations();
    assert_eq!(violations.len(), 1, "{violations:#?}");
    for word in words {
        assert!(violations[0].contains(word), "{word} is missing: {}", violations[0]);
    }
}

#[test]
fn a_second_stream_must_wait_for_the_first() {
    let mut cuda = stand_in::cuda();
    for waits in [true, false] {
        let bench = Bench::new();
        let (buffer, mut flight) = bench.written();
        if waits {
            bench.second.wait(flight.event()).unwrap();
        }
        cuda.drain();
        let mut onward = InFlight::new(&bench.second).unwrap();
        onward.fill(buffer.whole(), 1).unwrap();
        // The host has seen that both are done, but they were unordered all the same.
        onward.wait().unwrap();
        flight.wait().unwrap();
        if waits {
            assert!(cuda.violations().is_empty());
        }
    }
    assert_caught(&mut cuda, &["cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "in no order"]);
}

#[test]
fn an_event_covers_only_what_came_before_it() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let (buffer, mut flight) = bench.written();
    bench.second.wait(flight.event()).unwrap();
    // This fill comes after the event, so nothing orders it.
    flight.fill(buffer.whole(), 2).unwrap();
    cuda.drain();
    let mut onward = InFlight::new(&bench.second).unwrap();
    onward.fill(buffer.whole(), 1).unwrap();
    onward.wait().unwrap();
    flight.wait().unwrap();
    drop((onward, flight, buffer));
    assert_caught(&mut cuda, &["cuMemsetD8Async", "in no order"]);
}

#[test]
fn a_consumer_that_still_reads_must_be_waited_for() {
    let mut cuda = stand_in::cuda();
    for waits in [true, false] {
        let bench = Bench::new();
        let (buffer, mut flight) = bench.written();
        let kept = bench.pool.allocate(&bench.second, 1000).unwrap();
        bench.second.wait(flight.event()).unwrap();
        let mut consumer = InFlight::new(&bench.second).unwrap();
        consumer.copy_on_device(kept.whole(), buffer.whole()).unwrap();
        consumer.submit().unwrap();
        if waits {
            bench.first.wait(consumer.event()).unwrap();
        }
        cuda.drain();
        // This is the next batch in the same buffer.
        flight.fill(buffer.whole(), 3).unwrap();
        flight.wait().unwrap();
        consumer.wait().unwrap();
        if waits {
            assert!(cuda.violations().is_empty());
        }
    }
    assert_caught(&mut cuda, &["cuMemsetD8Async", "writes", "cuMemcpyDtoDAsync_v2", "has read"]);
}

#[test]
fn memory_is_freed_behind_its_last_use() {
    let mut cuda = stand_in::cuda();
    for waits in [true, false] {
        let bench = Bench::new();
        let (buffer, flight) = bench.written();
        bench.second.wait(flight.event()).unwrap();
        let mut onward = InFlight::new(&bench.second).unwrap();
        onward.fill(buffer.whole(), 1).unwrap();
        onward.submit().unwrap();
        if waits {
            bench.first.wait(onward.event()).unwrap();
        }
        cuda.drain();
        drop(buffer);
        onward.wait().unwrap();
        bench.first.synchronize().unwrap();
        if waits {
            assert!(cuda.violations().is_empty());
        }
    }
    assert_caught(&mut cuda, &["cuMemFreeAsync", "cuMemsetD8Async"]);
}

#[test]
fn a_buffer_is_used_behind_its_allocation() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let buffer = bench.pool.allocate(&bench.first, 100).unwrap();
    cuda.drain();
    let mut other = InFlight::new(&bench.second).unwrap();
    other.fill(buffer.whole(), 1).unwrap();
    other.submit().unwrap();
    bench.first.wait(other.event()).unwrap();
    drop(buffer);
    bench.first.synchronize().unwrap();
    drop(other);
    assert_caught(&mut cuda, &["cuMemsetD8Async", "in no order with its allocation"]);
}

#[test]
fn freed_memory_is_not_used_and_not_freed_again() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let bound = bench.device.bind().unwrap();
    let (buffer, mut flight) = bench.written();
    let (ptr, stream) = (buffer.ptr(), bench.first.handle());
    drop(buffer);
    flight.wait().unwrap();
    let status = driver::<QueueCopy>("cuMemcpyHtoDAsync_v2")(ptr, bench.source.as_ptr().cast(), 10, stream);
    assert_eq!(status, 0, "a real driver would not notice either");
    assert_ne!(driver::<QueueFree>("cuMemFreeAsync")(ptr, stream), 0);
    let violations = cuda.violations();
    assert!(violations.iter().any(|text| text.contains("after cuMemFreeAsync")), "{violations:#?}");
    assert!(violations.iter().any(|text| text.contains("freed before")), "{violations:#?}");
    drop(bound);
}

#[test]
fn what_nobody_wrote_is_not_read() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let [from, to] = [(); 2].map(|()| bench.pool.allocate(&bench.first, 100).unwrap());
    let mut flight = InFlight::new(&bench.first).unwrap();
    flight.fill(from.range(0, 60).unwrap(), 0).unwrap();
    flight.copy_on_device(to.whole(), from.whole()).unwrap();
    flight.wait().unwrap();
    drop((from, to, flight));
    assert_caught(&mut cuda, &["cuMemcpyDtoDAsync_v2", "of which 40 at"]);
}

#[test]
fn host_memory_must_be_page_locked() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let bound = bench.device.bind().unwrap();
    let buffer = bench.pool.allocate(&bench.first, 100).unwrap();
    let pageable = [7u8; 100];
    let copy = driver::<QueueCopy>("cuMemcpyHtoDAsync_v2");
    copy(buffer.ptr(), pageable.as_ptr().cast(), 100, bench.first.handle());
    bench.first.synchronize().unwrap();
    drop((buffer, bound));
    assert_caught(&mut cuda, &["cuMemcpyHtoDAsync_v2", "not page-locked"]);
}

#[test]
fn host_memory_stays_locked_and_unchanged_until_it_is_copied() {
    let mut cuda = stand_in::cuda();
    // The chain of fills before the copy takes so long that the host is surely first.
    for change in [false, true] {
        let bench = Bench::new();
        let bound = bench.device.bind().unwrap();
        let buffer = bench.pool.allocate(&bench.first, 1 << 19).unwrap();
        let mut flight = InFlight::new(&bench.first).unwrap();
        for _ in 0..60 {
            flight.fill(buffer.whole(), 0).unwrap();
        }
        let mut source = PinnedBuffer::new(&bench.device, 100).unwrap();
        let copy = driver::<QueueCopy>("cuMemcpyHtoDAsync_v2");
        copy(buffer.ptr(), source.as_ptr().cast(), 100, bench.first.handle());
        if change {
            source[50] = 1;
            bench.first.synchronize().unwrap();
        }
        drop(source);
        bench.first.synchronize().unwrap();
        drop((flight, buffer, bound));
        let violations = cuda.violations();
        let word = if change { "the host changed bytes" } else { "page-locked" };
        assert!(violations.iter().any(|text| text.contains(word)), "{word}: {violations:#?}");
        cuda.reset();
    }
}

#[test]
fn a_kernel_is_held_to_its_arguments() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let add = add(&bench.device).unwrap();
    let (input, flight) = bench.written();
    let output = bench.pool.allocate(&bench.first, 999).unwrap();
    let arguments = [Arg::Pointer(output.ptr()), Arg::Pointer(input.ptr()), Arg::U32(1000), Arg::U32(1)];
    // SAFETY: the stand-in has memory beyond the end; it must report this access.
    unsafe { add.launch(&bench.first, [1, 1, 1], [1024, 1, 1], 0, &arguments) }.unwrap();
    bench.first.synchronize().unwrap();
    drop((input, output, flight));
    assert_caught(
        &mut cuda,
        &["standin_add", "writes 1000 bytes", "beyond the end of an allocation of 999 bytes"],
    );
}

#[test]
fn contexts_and_handles_are_checked() {
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let event = Event::new(&bench.device).unwrap();
    let synchronize = driver::<extern "C" fn(u64) -> u32>("cuStreamSynchronize");
    assert_eq!(synchronize(bench.first.handle()), 201, "no context is current");
    let bound = bench.device.bind().unwrap();
    assert_eq!(synchronize(12345), 400, "nonsense is refused");
    let handle = bench.second.handle();
    let Bench { second, .. } = bench;
    drop(second);
    assert_eq!(synchronize(handle), 400);
    drop((bound, event));
    let violations = cuda.violations();
    assert_eq!(violations.len(), 2, "{violations:#?}");
    assert!(violations[0].contains("no current context"), "{violations:#?}");
    assert!(violations[1].contains("a destroyed stream"), "{violations:#?}");
}

#[test]
fn default_streams_wait_for_blocking_streams_alone() {
    use foreload::testing::gpu::StreamRef;
    let mut cuda = stand_in::cuda();
    let bench = Bench::new();
    let (buffer, flight) = bench.written();
    // Our streams and the default stream do not wait for each other. Without the event this is a race.
    for waits in [true, false] {
        let bound = bench.device.bind().unwrap();
        if waits {
            StreamRef::LEGACY.wait(flight.event()).unwrap();
        }
        let fill = driver::<extern "C" fn(u64, u8, usize, u64) -> u32>("cuMemsetD8Async");
        let stream = if waits { StreamRef::LEGACY } else { StreamRef::PER_THREAD };
        assert_eq!(fill(buffer.ptr(), 1, 1000, stream.handle()), 0);
        let done = Event::new(&bench.device).unwrap();
        done.record(stream).unwrap();
        bench.first.wait(&done).unwrap();
        drop(bound);
        // The thread's stream waits for the legacy stream, and so for the copy.
        assert!(cuda.violations().is_empty());
    }
    drop((buffer, flight));
    // SAFETY: these numbers are refused.
    let refused = |number| unsafe { StreamRef::from_number(number) }.unwrap_err().to_string();
    assert!(refused(0).contains("stream: is 0") && refused(-1).contains("stream: is -1"));
}
