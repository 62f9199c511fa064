//! Device memory with a cap, page-locked memory, and all ways to free them.

use crate::stand_in;
use foreload::testing::gpu::{GpuDevice, InFlight, MemoryPool, PinnedBuffer, Registration, Stream};
use foreload::testing::slot::SlotPool;

#[test]
fn the_cap_holds_and_names_its_setting() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device, 1 << 20).unwrap();
    let most = pool.allocate(&stream, (1 << 20) - 512).unwrap();
    let refused = pool.allocate(&stream, 513).unwrap_err().to_string();
    assert!(
        refused.starts_with("config: device_memory: is 1048576 bytes, of which 1048064 are in use"),
        "{refused}"
    );
    let last = pool.allocate(&stream, 1).unwrap();
    assert_eq!((last.bytes(), last.ptr() % 512), (1, 0));
    assert_eq!(pool.usage().unwrap().used, 1 << 20);
    drop(most);
    let again = pool.allocate(&stream, 1 << 19).unwrap();
    let usage = pool.usage().unwrap();
    assert_eq!((usage.cap, usage.used, usage.peak), (1 << 20, (1 << 19) + 512, 1 << 20));
    assert!(usage.reserved >= usage.used && usage.reserved_peak >= usage.peak, "{usage:?}");
    drop((last, again));
    stream.synchronize().unwrap();
    let kept = pool.usage().unwrap();
    assert_eq!((kept.used, kept.reserved), (0, usage.reserved), "what was freed stays with the pool");
    assert!(pool.allocate(&stream, usize::MAX).is_err());
    let none = MemoryPool::new(&device, 0).err().unwrap().to_string();
    assert!(none.contains("device_memory"), "{none}");
}

#[test]
fn no_call_allocates_after_the_first_round() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device, 64 << 20).unwrap();
    let round = || {
        let buffers: Vec<_> = (1..9).map(|i| pool.allocate(&stream, i << 20).unwrap()).collect();
        drop(buffers);
        pool.usage().unwrap().reserved
    };
    let reserved = round();
    for _ in 0..20 {
        assert_eq!(round(), reserved);
    }
}

#[test]
fn a_full_device_is_told_apart_from_the_cap() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device, 4 << 30).unwrap();
    let full = pool.allocate(&stream, 2 << 30).unwrap_err().to_string();
    let expected = "cuMemAllocFromPoolAsync: CUDA_ERROR_OUT_OF_MEMORY: out of memory (of 2147483648 bytes); lower \
                    device_memory or batch_size, or free other GPU memory of this process";
    assert_eq!(full, expected);
    assert_eq!(pool.usage().unwrap().used, 0, "what was refused is not counted");
    let (free, total) = device.memory().unwrap();
    assert_eq!((free, total), (1 << 30, 1 << 30));
    assert_eq!(cuda.count("bytes allocated"), 0);
}

#[test]
fn a_pool_may_be_as_large_as_the_device_or_larger() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    for cap in [1 << 30, usize::MAX] {
        let pool = MemoryPool::new(&device, cap).unwrap();
        assert_eq!(pool.allocate(&stream, 1 << 20).unwrap().bytes(), 1 << 20);
    }
}

#[test]
fn buffers_and_slices_have_bounds() {
    let _cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device, 1 << 20).unwrap();
    let buffer = pool.allocate(&stream, 1000).unwrap();
    assert!(buffer.range(1, 1000).is_err() && buffer.range(usize::MAX, 2).is_err());
    let part = buffer.range(100, 200).unwrap();
    assert_eq!((part.ptr(), part.part(10, 20).unwrap().bytes()), (buffer.ptr() + 100, 20));
    assert!(part.part(190, 20).is_err());
    let pinned = PinnedBuffer::new(&device, 300).unwrap().into_slice().unwrap();
    assert!(pinned.part(0..301).is_err() && pinned.part(200..300).unwrap().len() == 100);
    let mut flight = InFlight::new(&stream).unwrap();
    let uneven = flight.copy_to_device(part, &pinned).unwrap_err().to_string();
    assert!(uneven.contains("cannot copy 300 bytes into 200 bytes"), "{uneven}");
    assert!(flight.copy_on_device(part, buffer.whole()).is_err());
}

#[test]
fn only_the_arena_of_a_registration_can_be_pinned() {
    let cuda = stand_in::cuda();
    let before = cuda.calls("cuMemHostUnregister");
    let device = GpuDevice::open(0).unwrap();
    let slots = SlotPool::new(2 << 20).unwrap();
    let registration = Registration::new(&device, &slots).unwrap();
    let foreign = SlotPool::new(2 << 20).unwrap();
    assert!(registration.pin(foreign.try_take(10).unwrap()).is_err());
    assert!(registration.pin(vec![0u8; 100]).is_err());
    let own = registration.pin(slots.try_take(10).unwrap()).unwrap();
    // The arena stays mapped and registered until its last slice is dropped.
    drop((registration, slots));
    assert_eq!((own[0], cuda.calls("cuMemHostUnregister")), (0, before));
    drop(own);
    assert_eq!(cuda.calls("cuMemHostUnregister"), before + 1);
}

#[test]
fn what_cannot_be_registered_is_an_error_with_a_name() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    let slots = SlotPool::new(2 << 20).unwrap();
    cuda.fail("cuMemHostRegister_v2", 1, 0);
    let refused = Registration::new(&device, &slots).err().unwrap().to_string();
    assert!(refused.contains("out of memory (of 2097152 bytes); lower memory"), "{refused}");
    let _once = Registration::new(&device, &slots).unwrap();
    let twice = Registration::new(&device, &slots).err().unwrap().to_string();
    assert!(twice.contains("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), "{twice}");
}

/// Drops all kinds of device objects in many orders.
#[test]
fn any_order_of_dropping_is_safe() {
    for seed in 0..24u64 {
        let _cuda = stand_in::cuda();
        let device = GpuDevice::open(0).unwrap();
        let slots = SlotPool::new(2 << 20).unwrap();
        let registration = Registration::new(&device, &slots).unwrap();
        let pool = MemoryPool::new(&device, 1 << 20).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffer = pool.allocate(&stream, 1000).unwrap();
        let slice = registration.pin(slots.try_take(1000).unwrap()).unwrap().part(0..1000).unwrap();
        let mut flight = InFlight::new(&stream).unwrap();
        flight.copy_to_device(buffer.whole(), &slice).unwrap();
        if seed % 2 == 0 {
            flight.submit().unwrap();
        }
        let mut all: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(device),
            Box::new(slots),
            Box::new(registration),
            Box::new(pool),
            Box::new(stream),
            Box::new(buffer),
            Box::new(slice),
            Box::new(flight),
        ];
        let mut random = seed;
        while !all.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            drop(all.swap_remove((random >> 33) as usize % all.len()));
        }
    }
}

/// The driver registers no memory twice. Memory that it could not release stays registered, so the next arena must have
/// another address.
#[test]
fn memory_that_the_driver_keeps_is_not_mapped_anew() {
    let (_, said) = crate::children::run(&mut crate::common::child(keeps_memory));
    // The stand-in reports memory that is kept as a leak.
    assert!(said.contains("keeps_memory ... ok") && said.contains("LEAK: 4 page-locked ranges"), "{said}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn keeps_memory() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    for _ in 0..4 {
        let registration = Registration::new(&device, &SlotPool::new(1 << 20).unwrap()).unwrap();
        cuda.fail("cuMemHostUnregister", 1, 700);
        drop(registration);
    }
    assert_eq!(cuda.leaks()[0], "4 page-locked ranges");
    // The lease of the stand-in is never returned: other tests would see this leak.
    std::mem::forget(cuda);
}
