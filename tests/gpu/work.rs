//! A program like those of the pipeline: slots to the device, a kernel, an event, another stream, back to the host.

use crate::stand_in;
use foreload::testing::gpu::{
    Arg, Capability, Event, Function, GpuDevice, InFlight, KernelImage, MemoryPool, Module,
};
use foreload::testing::gpu::{PinnedBuffer, Registration, Stream};
use foreload::testing::slot::SlotPool;

/// The kernel that the stand-in implements: `to[i] = from[i] + addend`.
const ADD: &str = ".version 7.0\n.target sm_80\n.visible .entry standin_add()\n";

/// Loads the kernel.
pub fn add(device: &GpuDevice) -> foreload::Result<Function> {
    let images = [KernelImage::Ptx(Capability { major: 8, minor: 0 }, ADD)];
    Module::load(device, &images)?.function("standin_add", &[8, 8, 4, 4])
}

/// Takes the bytes of a slot through a kernel on one stream and a copy on another. The result is each byte plus 3.
pub fn everything(bytes: &[u8]) -> foreload::Result<Vec<u8>> {
    let device = GpuDevice::open(0)?;
    let slots = SlotPool::new(4 << 20)?;
    let registration = Registration::new(&device, &slots)?;
    let pool = MemoryPool::new(&device, 1 << 20)?;
    let add = add(&device)?;
    let (first, second) = (Stream::new(&device)?, Stream::new(&device)?);
    let [input, output] = [pool.allocate(&first, bytes.len())?, pool.allocate(&first, bytes.len())?];
    let kept = pool.allocate(&second, bytes.len())?;

    let mut slot = slots.try_take(bytes.len()).expect("an empty pool");
    slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    let source = registration.pin(slot)?.part(0..bytes.len())?;
    let mut flight = InFlight::new(&first)?;
    flight.copy_to_device(input.whole(), &source)?;
    drop(source);
    flight.fill(output.whole(), 0)?;
    let count = bytes.len() as u32;
    let arguments = [Arg::Pointer(output.ptr()), Arg::Pointer(input.ptr()), Arg::U32(count), Arg::U32(3)];
    // SAFETY: both buffers live until the streams are done, and this stream allocated them.
    unsafe { add.launch(&first, [count.div_ceil(64), 1, 1], [64, 1, 1], 0, &arguments) }?;
    flight.submit()?;
    second.wait(flight.event())?;
    let mut onward = InFlight::new(&second)?;
    onward.copy_on_device(kept.whole(), output.whole())?;
    onward.submit()?;
    let result = second.copy_to_host(PinnedBuffer::new(&device, bytes.len())?, kept.whole())?;
    // The buffers that the second stream reads are freed on the first.
    first.wait(onward.event())?;
    onward.event().is_done()?;
    onward.wait()?;
    assert!(onward.is_done()?);
    flight.wait()?;
    Ok(result.to_vec())
}

#[test]
fn bytes_take_the_whole_way() {
    let cuda = stand_in::cuda();
    let bytes: Vec<u8> = (0..50_000u32).map(|i| (i * 7) as u8).collect();
    for _ in 0..20 {
        let result = everything(&bytes).unwrap();
        assert!(result.iter().zip(&bytes).all(|(result, byte)| *result == byte.wrapping_add(3)));
    }
    assert_eq!(cuda.count("bytes to device"), 20 * 50_000);
    assert_eq!(cuda.count("bytes to host"), 20 * 50_000);
    assert_eq!(cuda.count("launches"), 20);
}

#[test]
fn threads_do_not_disturb_each_other() {
    let cuda = stand_in::cuda();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..10 {
                    let bytes = vec![thread * 20 + round; 3000];
                    assert_eq!(everything(&bytes).unwrap(), vec![thread * 20 + round + 3; 3000]);
                }
            });
        }
    });
    assert_eq!(cuda.count("launches"), 40);
}

#[test]
fn work_in_flight_keeps_its_memory_until_it_is_done() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let slots = SlotPool::new(2 << 20).unwrap();
    let registration = Registration::new(&device, &slots).unwrap();
    let pool = MemoryPool::new(&device, 1 << 20).unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = pool.allocate(&stream, 1000).unwrap();
    let mut flight = InFlight::new(&stream).unwrap();
    let before = slots.usage().in_use;
    for _ in 0..50 {
        let slot = registration.pin(slots.try_take(1000).unwrap()).unwrap().part(0..1000).unwrap();
        flight.copy_to_device(buffer.whole(), &slot).unwrap();
    }
    assert!(slots.usage().in_use > before, "slots are held");
    flight.submit().unwrap();
    flight.wait().unwrap();
    assert_eq!(slots.usage().in_use, before, "and come back");
    // These objects are dropped in each order, also with work still queued.
    let slot = registration.pin(slots.try_take(1000).unwrap()).unwrap().part(0..1000).unwrap();
    flight.copy_to_device(buffer.whole(), &slot).unwrap();
    drop((pool, device, registration, stream));
    drop(slots);
    drop(buffer);
    drop(slot);
    drop(flight);
}

#[test]
fn events_tell_and_time() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let [start, end] = [Event::timed(&device).unwrap(), Event::timed(&device).unwrap()];
    assert!(start.is_done().unwrap(), "never recorded: nothing to wait for");
    start.record(&stream).unwrap();
    let pool = MemoryPool::new(&device, 1 << 20).unwrap();
    let buffer = pool.allocate(&stream, 1 << 16).unwrap();
    InFlight::new(&stream).unwrap().fill(buffer.whole(), 1).unwrap();
    end.record(&stream).unwrap();
    end.synchronize().unwrap();
    assert!(end.is_done().unwrap() && stream.is_done().unwrap());
    assert!(end.since(&start).unwrap() >= start.since(&start).unwrap());
    let untimed = Event::new(&device).unwrap();
    untimed.record(&stream).unwrap();
    let refused = end.since(&untimed).unwrap_err().to_string();
    assert_eq!(refused, "cuEventElapsedTime: CUDA_ERROR_INVALID_HANDLE: invalid resource handle");
}

#[test]
fn a_thread_keeps_its_own_context() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.synchronize().unwrap());
    });
    let bound = device.bind().unwrap();
    let before = cuda.calls("cuCtxSetCurrent");
    stream.synchronize().unwrap();
    assert_eq!(cuda.calls("cuCtxSetCurrent"), before, "it is current already");
    drop(bound);
    assert_eq!(cuda.calls("cuCtxSetCurrent"), before + 1);
}

#[test]
fn a_thread_of_ours_has_its_context_for_good() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.attach_thread().unwrap();
            let calls = || {
                let names = ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"];
                names.map(|name| cuda.calls(name))
            };
            let before = calls();
            stream.synchronize().unwrap();
            assert!(device.memory().unwrap().1 > 0);
            assert_eq!(calls(), before, "nothing is left to do");
        });
    });
}

#[test]
fn an_image_that_a_driver_does_not_take_is_followed_by_the_next() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let images = [7, 8].map(|major| KernelImage::Ptx(Capability { major, minor: 0 }, ADD));
    for refusal in [200, 209, 218, 221, 222, 223, 300, 801] {
        cuda.fail("cuModuleLoadData", 1, refusal);
        let module = Module::load(&device, &images).unwrap_or_else(|error| panic!("{refusal}: {error}"));
        assert_eq!(module.image(), "compute_70 (PTX)", "{refusal}");
    }
    cuda.fail("cuModuleLoadData", 1, 2);
    let full = Module::load(&device, &images).err().unwrap().to_string();
    assert!(full.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{full}");
}

#[test]
fn kernels_are_checked_before_they_run() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let eight = Capability { major: 8, minor: 0 };
    let module = Module::load(&device, &[KernelImage::Ptx(eight, ADD)]).unwrap();
    assert_eq!(module.image(), "compute_80 (PTX)");
    let missing = module.function("nowhere", &[]).err().unwrap().to_string();
    assert!(missing.contains("CUDA_ERROR_NOT_FOUND"), "{missing}");
    let wrong = module.function("standin_add", &[8, 8, 4]).err().unwrap().to_string();
    assert!(wrong.contains("[8, 8, 4, 4]"), "{wrong}");
    // Drivers before CUDA 12.4 do not report the sizes of parameters.
    cuda.fail("cuFuncGetParamInfo", 1, 0);
    module.function("standin_add", &[8, 8, 4, 4]).unwrap();
    let add = add(&device).unwrap();
    // SAFETY: the launch is refused before it is queued.
    let few = unsafe { add.launch(&stream, [1, 1, 1], [64, 1, 1], 0, &[Arg::U32(1)]) }.unwrap_err();
    assert!(few.to_string().contains("standin_add takes parameters of [8, 8, 4, 4]"), "{few}");
    let newer = Capability { major: 12, minor: 0 };
    let none =
        Module::load(&device, &[KernelImage::Ptx(newer, ADD), KernelImage::Cubin(eight, &[])]).err().unwrap();
    assert!(
        none.to_string().contains("compute capability 9.0): this build has compute_120 (PTX), sm_80"),
        "{none}"
    );
}
