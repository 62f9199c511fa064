//! The kernels that the stand-in implements: the memory that each accesses, and the CPU function that does its work.

use crate::augment;
use crate::decode;
use crate::shadow::{Access, Kind};
use crate::status::{INVALID_IMAGE, NO_BINARY_FOR_GPU, Status};
use crate::stream::Running;

/// A launch, with its arguments copied.
pub struct Launch {
    pub name: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub arguments: Vec<Vec<u8>>,
}

impl Launch {
    fn number<const N: usize>(&self, index: usize) -> [u8; N] {
        self.arguments[index][..].try_into().expect("an argument of the kernel's size")
    }

    /// An argument that is an address.
    pub fn address(&self, index: usize) -> u64 {
        u64::from_ne_bytes(self.number(index))
    }

    /// An argument that is an `unsigned int`.
    pub fn unsigned(&self, index: usize) -> u32 {
        u32::from_ne_bytes(self.number(index))
    }
}

/// A kernel that images may have.
pub struct Kernel {
    pub name: &'static str,
    /// The sizes of its parameters in bytes.
    pub parameters: fn() -> Vec<usize>,
    /// Records all accesses, then does the work; returns an error if the launch is wrong.
    pub run: fn(&Launch, &mut Running) -> Result<(), String>,
}

/// All kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "standin_add", parameters: || vec![8, 8, 4, 4], run: add },
    Kernel { name: kernels_stand_in::KERNELS[0], parameters: augment::parameters, run: augment::run },
    Kernel { name: kernels_stand_in::KERNELS[1], parameters: augment::parameters, run: augment::run },
    Kernel {
        name: kernels_stand_in::UNTOUCHED,
        parameters: || kernels_stand_in::UNTOUCHED_PARAMETERS.to_vec(),
        run: augment::run_untouched,
    },
    Kernel {
        name: kernels_stand_in::OPS,
        parameters: || kernels_stand_in::OPS_PARAMETERS.to_vec(),
        run: augment::run_ops,
    },
    Kernel {
        name: kernels_stand_in::ERASE,
        parameters: || kernels_stand_in::ERASE_PARAMETERS.to_vec(),
        run: augment::run_erase,
    },
    Kernel { name: kernels_stand_in::GATHER, parameters: || vec![8], run: decode::run_gather },
    Kernel {
        name: kernels_stand_in::PACKED,
        parameters: || kernels_stand_in::PACKED_PARAMETERS.to_vec(),
        run: decode::run_packed,
    },
    Kernel {
        name: kernels_stand_in::INDEXED,
        parameters: || kernels_stand_in::INDEXED_PARAMETERS.to_vec(),
        run: decode::run_indexed,
    },
    Kernel { name: kernels_stand_in::MIX, parameters: augment::parameters, run: augment::run_mix },
];

/// The kernel `standin_add(u8 *to, const u8 *from, unsigned count, unsigned addend)`: `to[i] = from[i] + addend`.
fn add(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let (to, from, count) = (launch.address(0), launch.address(1), u64::from(launch.unsigned(2)));
    let sides = launch.grid.iter().chain(&launch.block).map(|side| u64::from(*side));
    if sides.product::<u64>() < count || launch.shared != 0 {
        return Err("too few threads, or shared memory that it does not use".to_owned());
    }
    let sound = running.check(Access { kind: Kind::Read, start: from, end: from + count })
        & running.check(Access { kind: Kind::Write, start: to, end: to + count });
    running.dawdle();
    if !sound {
        return Ok(());
    }
    for at in 0..count {
        // SAFETY: the check shows that both are device memory.
        unsafe {
            let value = ((from + at) as *const u8).read();
            ((to + at) as *mut u8).write(value.wrapping_add(launch.unsigned(3) as u8));
        }
    }
    Ok(())
}

/// The bytes of an image, if a device with this capability accepts it: ELF for its architecture, or PTX that is not
/// newer.
pub fn inspect(image: *const u8, (major, minor): (i32, i32)) -> Result<Vec<u8>, Status> {
    // SAFETY: the caller of cuModuleLoadData guarantees an ELF header or a string that ends in NUL: at least 4 bytes.
    let magic = unsafe { std::slice::from_raw_parts(image, 4) };
    if magic == b"\x7fELF" {
        return elf(image, major, minor);
    }
    // SAFETY: as above.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) }.to_bytes();
    let target = String::from_utf8_lossy(text);
    let target = target.split_once(".target sm_").ok_or(INVALID_IMAGE)?.1;
    let digits: String = target.chars().take_while(char::is_ascii_digit).collect();
    let target: i32 = digits.parse().map_err(|_| INVALID_IMAGE)?;
    if target > 10 * major + minor { Err(NO_BINARY_FOR_GPU) } else { Ok(text.to_vec()) }
}

/// The machine number of CUDA's ELF files.
const EM_CUDA: u16 = 190;

fn elf(image: *const u8, major: i32, minor: i32) -> Result<Vec<u8>, Status> {
    // SAFETY: an ELF file of 64 bits begins with 64 bytes of header.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let field = |at: usize, size: usize| {
        header[at..at + size].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let (machine, version, flags) = (field(18, 2) as u16, header[8], field(48, 4) as u32);
    if machine != EM_CUDA {
        return Err(INVALID_IMAGE);
    }
    // The architecture is in the flags from bit 0 on, with ABI version 8 and later from bit 8 on.
    let target = if version >= 8 { flags >> 8 & 0xffff } else { flags & 0xff } as i32;
    if target / 10 != major || target % 10 > minor {
        return Err(NO_BINARY_FOR_GPU);
    }
    // The section headers come last.
    let end = field(40, 8) + field(58, 2) * field(60, 2);
    let programs = field(32, 8) + field(54, 2) * field(56, 2);
    // SAFETY: the file is as long as its header says.
    Ok(unsafe { std::slice::from_raw_parts(image, end.max(programs) as usize) }.to_vec())
}
