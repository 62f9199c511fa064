//! Copies and fills.

use crate::entry::{Call, Needs, enter};
use crate::shadow::{Access, Kind};
use crate::status::{self, Status};
use crate::stream::{Plan, Running};
use crate::world::lock;
use std::ffi::c_void;

/// The byte that a copy's target holds until the copy is done.
const UNFINISHED: u8 = 0x5D;

/// Rows of bytes in host or device memory.
#[derive(Debug, Clone, Copy)]
struct Rows {
    start: u64,
    pitch: u64,
}

fn accesses(kind: Kind, rows: Rows, width: u64, height: u64) -> Vec<Access> {
    if rows.pitch == width {
        return vec![Access { kind, start: rows.start, end: rows.start + width * height }];
    }
    let row = |y| rows.start + y * rows.pitch;
    (0..height).map(|y| Access { kind, start: row(y), end: row(y) + width }).collect()
}

/// A hash of the bytes.
fn digest(rows: Rows, width: u64, height: u64) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for y in 0..height {
        let start = (rows.start + y * rows.pitch) as *const u8;
        // SAFETY: the caller of the driver's function guarantees that the memory is valid.
        let bytes = unsafe { std::slice::from_raw_parts(start, width as usize) };
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            sum = (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        for byte in words.remainder() {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum
}

/// Queues a copy; `checks_host` says whether host memory must be page-locked.
fn copy(
    call: &mut Call,
    stream: u64,
    [to, from]: [Rows; 2],
    [width, height]: [u64; 2],
    checks_host: bool,
) -> Result<(usize, u64), Status> {
    let actor = call.stream(stream)?;
    if to.pitch < width || from.pitch < width {
        return Err(status::INVALID_VALUE);
    }
    let (to_device, from_device) = (call.memory.is_device(to.start), call.memory.is_device(from.start));
    call.count(
        match (from_device, to_device) {
            (false, true) => "bytes to device",
            (true, false) => "bytes to host",
            (true, true) => "bytes on device",
            (false, false) => "bytes on host",
        },
        width * height,
    );
    let mut touched = Vec::new();
    if from_device || checks_host {
        touched.extend(accesses(Kind::Read, from, width, height));
    }
    if to_device || checks_host {
        touched.extend(accesses(Kind::Write, to, width, height));
    }
    if !to_device {
        call.host_writers += 1;
    }
    // The host must not change bytes that are still to be copied; a host function before the copy may change them.
    let locked = call.is_locked(from.start, from.start + from.pitch * (height - 1) + width, call.context);
    let stable = !from_device && call.host_writers == 0 && (locked || !checks_host);
    let before = stable.then(|| digest(from, width, height));
    let plan = Plan { accesses: touched, ..Plan::default() };
    let name = call.name;
    let number = call.queue(actor, name, plan, move |running| {
        if running.sound {
            let changed = carry(running, [to, from], [width, height], before);
            if changed {
                let text =
                    format!("the host changed bytes that {} had still to copy", running.mark.operation.text);
                lock().violate(text);
            }
        }
        if !to_device {
            lock().host_writers -= 1;
        }
    });
    Ok((actor, number))
}

/// Does the work of a copy; returns whether the source has changed since the copy was queued.
fn carry(
    running: &mut Running,
    [to, from]: [Rows; 2],
    [width, height]: [u64; 2],
    before: Option<u64>,
) -> bool {
    for y in 0..height {
        // SAFETY: the bytes of the target were checked, or the caller guarantees that they are valid.
        unsafe { std::ptr::write_bytes((to.start + y * to.pitch) as *mut u8, UNFINISHED, width as usize) };
    }
    running.dawdle();
    let changed = before.is_some_and(|before| before != digest(from, width, height));
    for y in 0..height {
        let (to, from) = (to.start + y * to.pitch, from.start + y * from.pitch);
        // SAFETY: as above, for source and target.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width as usize) };
    }
    changed
}

fn line(call: &mut Call, stream: u64, to: u64, from: u64, bytes: usize) -> Result<(), Status> {
    if bytes == 0 {
        return call.stream(stream).map(drop);
    }
    let bytes = bytes as u64;
    let rows = [to, from].map(|start| Rows { start, pitch: bytes });
    copy(call, stream, rows, [bytes, 1], true).map(drop)
}

/// Does a synchronous copy; host memory need not be page-locked.
fn line_now(call: &mut Call, to: u64, from: u64, bytes: usize) -> Result<(), Status> {
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    let rows = [to, from].map(|start| Rows { start, pitch: bytes });
    let (actor, number) = copy(call, 0, rows, [bytes, 1], false)?;
    let clock = call.streams[actor].clock.clone();
    call.wait_until(|world| world.streams[actor].done >= number);
    call.host_joins(&clock);
    Ok(())
}

/// Checks that each address is in the kind of memory that the function's name says.
fn places(call: &mut Call, to: (u64, bool), from: (u64, bool)) -> Result<(), Status> {
    for (address, device) in [to, from] {
        if call.memory.is_device(address) != device {
            let (name, is) = (call.name, if device { "no device memory" } else { "no host memory" });
            call.violate(format!("{name} of {address:#x}, which is {is}"));
            return Err(status::INVALID_VALUE);
        }
    }
    Ok(())
}

macro_rules! copies {
    ($($name:ident($to:ident: $to_device:literal, $from:ident: $from_device:literal) $now:ident;)*) => {
        $(copies!(@ $now $name $to $to_device $from $from_device);)*
    };
    (@ queued $name:ident $to:ident $to_device:literal $from:ident $from_device:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($to: u64, $from: u64, bytes: usize, stream: u64) -> Status {
            enter(stringify!($name), Needs::Context, |call| {
                places(call, ($to, $to_device), ($from, $from_device))?;
                line(call, stream, $to, $from, bytes)
            })
        }
    };
    (@ now $name:ident $to:ident $to_device:literal $from:ident $from_device:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($to: u64, $from: u64, bytes: usize) -> Status {
            enter(stringify!($name), Needs::Context, |call| {
                places(call, ($to, $to_device), ($from, $from_device))?;
                line_now(call, $to, $from, bytes)
            })
        }
    };
}

copies! {
    cuMemcpyHtoDAsync_v2(device: true, host: false) queued;
    cuMemcpyDtoHAsync_v2(host: false, device: true) queued;
    cuMemcpyDtoDAsync_v2(to: true, from: true) queued;
    cuMemcpyHtoD_v2(device: true, host: false) now;
    cuMemcpyDtoH_v2(host: false, device: true) now;
    cuMemcpyDtoD_v2(to: true, from: true) now;
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) -> Status {
    enter("cuMemcpyAsync", Needs::Context, |call| line(call, stream, to, from, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> Status {
    enter("cuMemcpy", Needs::Context, |call| line_now(call, to, from, bytes))
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Rectangle {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

/// One side of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: usize,
    y: usize,
    /// The kind of memory: 1 host, 2 device, 3 array, 4 unified.
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

impl Side {
    fn rows(&self, width: usize) -> Result<Rows, Status> {
        let start = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            _ => return Err(status::INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { width } else { self.pitch } as u64;
        Ok(Rows { start: start + self.y as u64 * pitch + self.x as u64, pitch })
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy2DAsync_v2(rectangle: *const Rectangle, stream: u64) -> Status {
    enter("cuMemcpy2DAsync_v2", Needs::Context, |call| {
        if rectangle.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller of the driver's function guarantees that the pointer is valid.
        let Rectangle { from, to, width, height } = unsafe { rectangle.read() };
        if width == 0 || height == 0 {
            return Ok(());
        }
        let rows = [to.rows(width)?, from.rows(width)?];
        copy(call, stream, rows, [width as u64, height as u64], true).map(drop)
    })
}

fn fill(call: &mut Call, stream: u64, to: u64, value: &[u8], count: usize) -> Result<(), Status> {
    let actor = call.stream(stream)?;
    if count == 0 {
        return Ok(());
    }
    places(call, (to, true), (to, true))?;
    if !to.is_multiple_of(value.len() as u64) {
        return Err(status::INVALID_VALUE);
    }
    let end = to + (value.len() * count) as u64;
    let accesses = vec![Access { kind: Kind::Write, start: to, end }];
    let (name, value) = (call.name, value.to_vec());
    call.queue(actor, name, Plan { accesses, ..Plan::default() }, move |running| {
        running.dawdle();
        if !running.sound {
            return;
        }
        for (at, byte) in (to..end).zip(value.iter().cycle()) {
            // SAFETY: the bytes were checked.
            unsafe { (at as *mut u8).write(*byte) };
        }
    });
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) -> Status {
    enter("cuMemsetD8Async", Needs::Context, |call| fill(call, stream, to, &[value], count))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) -> Status {
    enter("cuMemsetD32Async", Needs::Context, |call| fill(call, stream, to, &value.to_ne_bytes(), count))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD2D8Async(
    to: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: u64,
) -> Status {
    enter("cuMemsetD2D8Async", Needs::Context, |call| {
        if pitch < width {
            return Err(status::INVALID_VALUE);
        }
        for y in 0..height {
            fill(call, stream, to + (y * pitch) as u64, &[value], width)?;
        }
        Ok(())
    })
}

const _: () = assert!(size_of::<Rectangle>() == 128 && size_of::<*mut c_void>() == 8);
