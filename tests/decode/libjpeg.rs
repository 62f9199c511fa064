//! libjpeg (mozjpeg's C code, which decodes as libjpeg-turbo's) as the reference.

use std::mem::zeroed;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mozjpeg_sys::*;

use super::images::Kind;

/// What libjpeg makes of a file.
pub struct Reference {
    /// Samples of each component, rows of `stride`.
    pub planes: Vec<(usize, Vec<u8>)>,
    /// Things libjpeg found wrong but decoded anyway.
    pub warnings: i64,
}

unsafe extern "C-unwind" fn fail(common: &mut jpeg_common_struct) {
    // SAFETY: libjpeg sets `err` before it reports anything through it.
    let code = unsafe { (*common.err).msg_code };
    resume_unwind(Box::new(code));
}

unsafe extern "C-unwind" fn count(common: &mut jpeg_common_struct, level: i32) {
    if level < 0 {
        // SAFETY: as in `fail`.
        unsafe { (*common.err).num_warnings += 1 };
    }
}

/// Runs `read` on a decompressor that has read the header of `jpeg`; libjpeg's error code if it fails.
fn decompress<T>(jpeg: &[u8], read: impl FnOnce(&mut jpeg_decompress_struct) -> T) -> Result<(T, i64), i32> {
    // SAFETY: the calls follow libjpeg's order; `jpeg` and `errors` outlive the decompressor; errors unwind through
    // libjpeg, which is compiled for it, and only the decompressor is used after that, to free its memory.
    unsafe {
        let mut errors: jpeg_error_mgr = zeroed();
        let mut d: jpeg_decompress_struct = zeroed();
        d.common.err = jpeg_std_error(&mut errors);
        (*d.common.err).error_exit = Some(fail);
        (*d.common.err).emit_message = Some(count);
        jpeg_create_decompress(&mut d);
        let result = catch_unwind(AssertUnwindSafe(|| {
            jpeg_mem_src(&mut d, jpeg.as_ptr(), jpeg.len() as _);
            jpeg_read_header(&mut d, 1);
            read(&mut d)
        }));
        jpeg_destroy_decompress(&mut d);
        result
            .map(|value| (value, errors.num_warnings))
            .map_err(|code| *code.downcast().expect("libjpeg's code"))
    }
}

/// The components as they are coded, by the accurate inverse DCT.
pub fn planes(jpeg: &[u8]) -> Result<Reference, i32> {
    let (planes, warnings) = decompress(jpeg, |d| {
        // SAFETY: raw reads write whole block rows into buffers of so many samples; the component descriptions are
        // `num_components` many.
        unsafe {
            d.raw_data_out = 1;
            d.out_color_space = d.jpeg_color_space;
            d.dct_method = J_DCT_METHOD::JDCT_ISLOW;
            jpeg_start_decompress(d);
            let components = std::slice::from_raw_parts(d.comp_info, d.num_components as usize);
            let v_max = components.iter().map(|c| c.v_samp_factor).max().unwrap() as usize;
            let block_rows = (d.image_height as usize).div_ceil(8 * v_max);
            let mut planes: Vec<(usize, Vec<u8>)> = components
                .iter()
                .map(|c| {
                    let stride = 8 * (c.width_in_blocks as usize + 8);
                    (stride, vec![0; stride * 8 * c.v_samp_factor as usize * block_rows])
                })
                .collect();
            for block_row in 0..block_rows {
                let mut rows: Vec<Vec<*mut u8>> = planes
                    .iter_mut()
                    .zip(components)
                    .map(|((stride, plane), c)| {
                        let lines = 8 * c.v_samp_factor as usize;
                        plane[block_row * lines * *stride..][..lines * *stride]
                            .chunks_mut(*stride)
                            .map(|row| row.as_mut_ptr())
                            .collect()
                    })
                    .collect();
                let mut image: Vec<_> = rows.iter_mut().map(|rows| rows.as_mut_ptr()).collect();
                jpeg_read_raw_data(d, image.as_mut_ptr(), 8 * v_max as u32);
            }
            planes
        }
    })?;
    Ok(Reference { planes, warnings })
}

/// Interleaved pixels in `space`, upsampled and converted by libjpeg, and its warnings.
pub fn pixels(jpeg: &[u8], space: J_COLOR_SPACE) -> Result<(Vec<u8>, i64), i32> {
    decompress(jpeg, |d| {
        // SAFETY: each row has `output_width` pixels of `output_components` bytes.
        unsafe {
            d.out_color_space = space;
            jpeg_start_decompress(d);
            let row = d.output_width as usize * d.output_components as usize;
            let mut pixels = vec![0; row * d.output_height as usize];
            for row in pixels.chunks_mut(row) {
                jpeg_read_scanlines(d, &mut row.as_mut_ptr(), 1);
            }
            pixels
        }
    })
}

/// Encodes gray or RGB pixels in one baseline scan.
pub fn encode(pixels: &[u8], kind: &Kind) -> Vec<u8> {
    let (mut bytes, mut size) = (std::ptr::null_mut(), 0);
    let channels = kind.channels();
    // The encoder's enumeration holds them as in a frame header.
    let (h, v) = (kind.sampling as u8 >> 4, kind.sampling as u8 & 15);
    // SAFETY: the calls follow libjpeg's order; an error unwinds and fails the test; `bytes` is allocated by libjpeg and
    // copied before it is freed; each row has `width` pixels.
    unsafe {
        let mut errors: jpeg_error_mgr = zeroed();
        let mut c: jpeg_compress_struct = zeroed();
        c.common.err = jpeg_std_error(&mut errors);
        (*c.common.err).error_exit = Some(fail);
        jpeg_create_compress(&mut c);
        jpeg_mem_dest(&mut c, &mut bytes, &mut size);
        c.image_width = kind.width.into();
        c.image_height = kind.height.into();
        c.input_components = channels as i32;
        c.in_color_space = if channels == 1 { J_COLOR_SPACE::JCS_GRAYSCALE } else { J_COLOR_SPACE::JCS_RGB };
        jpeg_c_set_int_param(
            &mut c,
            J_INT_PARAM::JINT_COMPRESS_PROFILE,
            JINT_COMPRESS_PROFILE_VALUE::JCP_FASTEST as i32,
        );
        jpeg_set_defaults(&mut c);
        jpeg_set_quality(&mut c, kind.quality.into(), 1);
        c.optimize_coding = kind.optimised.into();
        c.restart_interval = kind.restart_interval.into();
        let components = std::slice::from_raw_parts_mut(c.comp_info, channels);
        components[0].h_samp_factor = h.into();
        components[0].v_samp_factor = v.into();
        jpeg_start_compress(&mut c, 1);
        for row in pixels.chunks_exact(channels * usize::from(kind.width)) {
            jpeg_write_scanlines(&mut c, &row.as_ptr(), 1);
        }
        jpeg_finish_compress(&mut c);
        let jpeg = std::slice::from_raw_parts(bytes, size as usize).to_vec();
        jpeg_destroy_compress(&mut c);
        libc::free(bytes.cast());
        jpeg
    }
}
