//! LZ4, decompressed by its C library. It takes a third of the time of crates in Rust, because shuffled numbers have
//! many short repetitions. The library checks every length and distance, so damaged bytes are an error.

use lz4_sys::{
    LZ4_decompress_safe, LZ4F_VERSION, LZ4F_createDecompressionContext, LZ4F_decompress,
    LZ4F_freeDecompressionContext, LZ4F_getErrorName, LZ4F_isError, LZ4FDecompressOptions,
    LZ4FDecompressionContext,
};
use std::ffi::{CStr, c_int};

/// Decompresses a block without a frame, which must fill `to` exactly.
///
/// # Errors
/// A description of what is wrong.
pub(super) fn block(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (Ok(length), Ok(size)) = (c_int::try_from(packed.len()), c_int::try_from(to.len())) else {
        return Err("it is too long".to_owned());
    };
    // SAFETY: the library reads at most `length` bytes and writes at most `size` bytes, which the slices have.
    let found = unsafe { LZ4_decompress_safe(packed.as_ptr().cast(), to.as_mut_ptr().cast(), length, size) };
    match usize::try_from(found) {
        Ok(found) if found == to.len() => Ok(()),
        Ok(found) => Err(format!("it gives {found} bytes, must be {}", to.len())),
        Err(_) => Err(format!("it is invalid, or gives more than {} bytes", to.len())),
    }
}

/// The state of a frame's decoder, which is freed when it is dropped.
struct FrameState(LZ4FDecompressionContext);

impl Drop for FrameState {
    fn drop(&mut self) {
        // SAFETY: the library made this state, and nothing uses it afterwards.
        unsafe { LZ4F_freeDecompressionContext(self.0) };
    }
}

fn checked(code: usize) -> Result<usize, String> {
    // SAFETY: every number has a name, which is a constant of the library.
    let name = unsafe { (LZ4F_isError(code) != 0).then(|| CStr::from_ptr(LZ4F_getErrorName(code))) };
    name.map_or(Ok(code), |name| Err(name.to_string_lossy().into_owned()))
}

/// Decompresses one frame, which must fill `to` exactly.
///
/// # Errors
/// A description of what is wrong.
pub(super) fn frame(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let mut state = FrameState(LZ4FDecompressionContext(std::ptr::null_mut()));
    // SAFETY: the library stores a new state, or null if it fails, which may be freed, too.
    checked(unsafe { LZ4F_createDecompressionContext(&mut state.0, LZ4F_VERSION) })?;
    // The output is complete after one call, so the library need not keep a copy of its end.
    let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
    let (mut found, mut used) = (to.len(), packed.len());
    // SAFETY: the state is valid, and the slices have as many bytes as the two numbers say.
    let left = unsafe {
        LZ4F_decompress(state.0, to.as_mut_ptr(), &mut found, packed.as_ptr(), &mut used, &options)
    };
    if checked(left)? == 0 && found == to.len() && used == packed.len() {
        return Ok(());
    }
    Err(format!("the frame is truncated, or does not give exactly {} bytes", to.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_fills_its_place_or_is_an_error() {
        // Two literals, their repetition to 14 bytes, and five literals.
        let packed = b"\x28ab\x02\x00\x50vwxyz";
        let mut found = [0; 19];
        block(packed, &mut found).unwrap();
        assert_eq!(&found, b"ababababababab".iter().chain(b"vwxyz").copied().collect::<Vec<_>>().as_slice());
        for cut in 0..packed.len() {
            assert!(block(&packed[..cut], &mut found).is_err(), "{cut}");
        }
        for size in [0, 1, 18, 20] {
            assert!(block(packed, &mut vec![0; size]).is_err(), "{size}");
        }
        // A repetition of bytes before the block.
        assert!(block(b"\x28ab\x03\x00\x50vwxyz", &mut found).unwrap_err().contains("invalid"));
    }

    #[test]
    fn a_frame_fills_its_place_or_is_an_error() {
        // As pyarrow writes it: no checksums, and a block that is not compressed.
        let packed = b"\x04\x22\x4d\x18\x60\x40\x82\x05\0\0\x80words\0\0\0\0";
        let mut found = [0; 5];
        frame(packed, &mut found).unwrap();
        assert_eq!(&found, b"words");
        for cut in 0..packed.len() {
            assert!(frame(&packed[..cut], &mut found).is_err(), "{cut}");
        }
        for size in [0, 4, 6] {
            assert!(frame(packed, &mut vec![0; size]).is_err(), "{size}");
        }
        assert!(frame(&[&packed[..], b"x"].concat(), &mut found).is_err());
        assert!(frame(&[b"\x05", &packed[1..]].concat(), &mut found).unwrap_err().contains("frameType"));
    }
}
