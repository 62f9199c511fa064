//! libjpeg (mozjpeg's C code, which decodes like libjpeg-turbo's) as the reference of tests and benchmarks.

mod damaged;

use std::mem::zeroed;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mozjpeg_sys::*;

pub use damaged::{Coefficients, coefficients, pillow_decodes};
pub use mozjpeg_sys::J_COLOR_SPACE;

/// The result of libjpeg for a file: its components as they are coded.
pub struct Reference {
    /// The width of the image in pixels.
    pub width: u32,
    /// The height of the image in pixels.
    pub height: u32,
    /// The sampling factors of each component, horizontal and vertical.
    pub factors: Vec<(u32, u32)>,
    /// The samples of each component by the accurate inverse DCT, as (stride, samples). Rows and columns are whole
    /// blocks, with 64 more bytes at the end.
    pub planes: Vec<(usize, Vec<u8>)>,
    /// The number of warnings: problems that libjpeg found but decoded anyway.
    pub warnings: i64,
}

impl Reference {
    /// The image columns and rows per sample of a component.
    pub fn steps(&self, component: usize) -> (u32, u32) {
        let max = |of: fn(&(u32, u32)) -> u32| self.factors.iter().map(of).max().unwrap_or(1);
        let (h, v) = self.factors[component];
        (max(|factors| factors.0) / h, max(|factors| factors.1) / v)
    }
}

/// An image to encode.
#[derive(Debug, Clone, Copy)]
pub struct Encoding {
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// The number of channels: 1 for gray, 3 for RGB, 4 for CMYK.
    pub channels: usize,
    /// The sampling factors of the first component; the others have (1, 1).
    pub factors: (u32, u32),
    /// The quality, 1..=100.
    pub quality: i32,
    /// The number of MCUs between restart markers; 0 means that there are none.
    pub restart_interval: u32,
    /// Whether Huffman tables are made for the image.
    pub optimised: bool,
    /// Whether the file is progressive, in many scans.
    pub progressive: bool,
}

/// One scan of a progressive file.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The indices of its components.
    pub components: Vec<i32>,
    /// The first and the last coefficient in coding order.
    pub band: (i32, i32),
    /// The number of low bits that the previous scans omitted (0 in a first scan), and the number that this scan omits.
    pub bits: (i32, i32),
}

/// The most scans that the encoder has room for.
pub const MAX_SCANS: usize = 64;

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

/// Runs `read` on a decompressor that has read the header of `jpeg`; returns libjpeg's error code if it fails.
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

/// Decodes the components as they are coded.
///
/// # Errors
/// The error code of libjpeg.
pub fn planes(jpeg: &[u8]) -> Result<Reference, i32> {
    let (mut reference, warnings) = decompress(jpeg, |d| {
        // SAFETY: raw reads write whole rows of blocks into buffers of that size; there are `num_components` component
        // descriptions.
        unsafe {
            d.raw_data_out = 1;
            d.out_color_space = d.jpeg_color_space;
            d.dct_method = J_DCT_METHOD::JDCT_ISLOW;
            // Smoothing would invent data that files without their last scans do not have.
            d.do_block_smoothing = 0;
            jpeg_start_decompress(d);
            let components = std::slice::from_raw_parts(d.comp_info, d.num_components as usize);
            let v_max = components.iter().map(|c| c.v_samp_factor).max().unwrap_or(1) as usize;
            let block_rows = (d.image_height as usize).div_ceil(8 * v_max);
            let mut planes: Vec<(usize, Vec<u8>)> = components
                .iter()
                .map(|c| {
                    let stride = 8 * (c.width_in_blocks as usize + 8);
                    (stride, vec![0; stride * 8 * c.v_samp_factor as usize * block_rows + 64])
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
            let factors = components.iter().map(|c| (c.h_samp_factor as u32, c.v_samp_factor as u32));
            let factors = factors.collect();
            Reference { width: d.image_width, height: d.image_height, factors, planes, warnings: 0 }
        }
    })?;
    reference.warnings = warnings;
    Ok(reference)
}

/// Decodes interleaved pixels in `space`, upsampled and converted by libjpeg; returns them with the number of warnings.
///
/// # Errors
/// The error code of libjpeg.
pub fn pixels(jpeg: &[u8], space: J_COLOR_SPACE) -> Result<(Vec<u8>, i64), i32> {
    let mut pixels = Vec::new();
    let warnings = pixels_into(jpeg, space, &mut pixels)?;
    Ok((pixels, warnings))
}

/// Decodes like [`fn@pixels`], into memory that can be reused.
///
/// # Errors
/// The error code of libjpeg.
pub fn pixels_into(jpeg: &[u8], space: J_COLOR_SPACE, pixels: &mut Vec<u8>) -> Result<i64, i32> {
    let decoded = decompress(jpeg, |d| {
        // SAFETY: each row has `output_width` pixels of `output_components` bytes.
        unsafe {
            d.out_color_space = space;
            jpeg_start_decompress(d);
            let row = d.output_width as usize * d.output_components as usize;
            pixels.resize(row * d.output_height as usize, 0);
            for row in pixels.chunks_mut(row) {
                jpeg_read_scanlines(d, &mut row.as_mut_ptr(), 1);
            }
        }
    });
    Ok(decoded?.1)
}

/// Encodes interleaved pixels; sequential images in one scan, progressive ones in libjpeg's scans.
pub fn encode(pixels: &[u8], image: &Encoding) -> Vec<u8> {
    encode_scans(pixels, image, &[])
}

/// Encodes like [`encode`]; progressive images use these scans, or libjpeg's if there are none.
pub fn encode_scans(pixels: &[u8], image: &Encoding, scans: &[Scan]) -> Vec<u8> {
    encode_as(pixels, image, scans, None)
}

/// Encodes like [`encode`], but converts the pixels to this colour space and uses these sampling factors of each
/// component instead of the image's.
pub fn encode_in(pixels: &[u8], image: &Encoding, space: J_COLOR_SPACE, factors: &[(u32, u32)]) -> Vec<u8> {
    encode_as(pixels, image, &[], Some((space, factors)))
}

fn encode_as(
    pixels: &[u8],
    image: &Encoding,
    scans: &[Scan],
    coded: Option<(J_COLOR_SPACE, &[(u32, u32)])>,
) -> Vec<u8> {
    assert!(scans.len() <= MAX_SCANS, "libjpeg does not look where it writes");
    let &Encoding { width, height, channels, factors, quality, restart_interval, optimised, progressive } =
        image;
    let (mut bytes, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the calls follow libjpeg's order; an error unwinds and fails the test; `bytes` is allocated by libjpeg
    // and copied before it is freed; each row has `width` pixels.
    unsafe {
        let mut errors: jpeg_error_mgr = zeroed();
        let mut c: jpeg_compress_struct = zeroed();
        c.common.err = jpeg_std_error(&mut errors);
        (*c.common.err).error_exit = Some(fail);
        jpeg_create_compress(&mut c);
        jpeg_mem_dest(&mut c, &mut bytes, &mut size);
        c.image_width = width;
        c.image_height = height;
        c.input_components = channels as i32;
        c.in_color_space = match channels {
            1 => J_COLOR_SPACE::JCS_GRAYSCALE,
            3 => J_COLOR_SPACE::JCS_RGB,
            _ => J_COLOR_SPACE::JCS_CMYK,
        };
        jpeg_c_set_int_param(
            &mut c,
            J_INT_PARAM::JINT_COMPRESS_PROFILE,
            JINT_COMPRESS_PROFILE_VALUE::JCP_FASTEST as i32,
        );
        jpeg_set_defaults(&mut c);
        if let Some((space, _)) = coded {
            jpeg_set_colorspace(&mut c, space);
        }
        jpeg_set_quality(&mut c, quality, 1);
        c.optimize_coding = optimised.into();
        c.restart_interval = restart_interval;
        let scans: Vec<jpeg_scan_info> = scans.iter().map(scan_info).collect();
        if progressive && scans.is_empty() {
            jpeg_simple_progression(&mut c);
        } else if progressive {
            (c.scan_info, c.num_scans) = (scans.as_ptr(), scans.len() as i32);
        }
        let components = std::slice::from_raw_parts_mut(c.comp_info, channels);
        (components[0].h_samp_factor, components[0].v_samp_factor) = (factors.0 as i32, factors.1 as i32);
        for chroma in &mut components[1..] {
            (chroma.h_samp_factor, chroma.v_samp_factor) = (1, 1);
        }
        for (component, &(h, v)) in components.iter_mut().zip(coded.iter().flat_map(|(_, factors)| *factors))
        {
            (component.h_samp_factor, component.v_samp_factor) = (h as i32, v as i32);
        }
        jpeg_start_compress(&mut c, 1);
        for row in pixels.chunks_exact(channels * width as usize) {
            jpeg_write_scanlines(&mut c, &row.as_ptr(), 1);
        }
        jpeg_finish_compress(&mut c);
        let jpeg = std::slice::from_raw_parts(bytes, size as usize).to_vec();
        jpeg_destroy_compress(&mut c);
        libc::free(bytes.cast());
        jpeg
    }
}

fn scan_info(scan: &Scan) -> jpeg_scan_info {
    let mut component_index = [0; 4];
    component_index[..scan.components.len()].copy_from_slice(&scan.components);
    jpeg_scan_info {
        comps_in_scan: scan.components.len() as i32,
        component_index,
        Ss: scan.band.0,
        Se: scan.band.1,
        Ah: scan.bits.0,
        Al: scan.bits.1,
    }
}
