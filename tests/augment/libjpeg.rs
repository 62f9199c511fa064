//! libjpeg (mozjpeg's, which upsamples and converts as libjpeg-turbo) as a reference: a random JPEG, its planes, its
//! pixels.

use std::mem::zeroed;

use foreload::decode::{ColorModel, Plane, Planes};
use foreload::rng::Stream;
use mozjpeg_sys::*;

/// A JPEG of random colours whose chroma has 1/`across` of the columns and 1/`down` of the rows.
pub fn encode(random: &mut Stream, width: u32, height: u32, (across, down): (u32, u32)) -> Vec<u8> {
    let rgb: Vec<u8> = (0..3 * width * height).map(|_| random.next_u32() as u8).collect();
    let (mut bytes, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the calls follow libjpeg's order; an error would abort the test's process; `bytes` is allocated by
    // libjpeg and copied before it is freed.
    unsafe {
        let mut errors: jpeg_error_mgr = zeroed();
        let mut c: jpeg_compress_struct = zeroed();
        c.common.err = jpeg_std_error(&mut errors);
        jpeg_create_compress(&mut c);
        jpeg_mem_dest(&mut c, &mut bytes, &mut size);
        c.image_width = width;
        c.image_height = height;
        c.input_components = 3;
        c.in_color_space = J_COLOR_SPACE::JCS_RGB;
        jpeg_set_defaults(&mut c);
        jpeg_set_quality(&mut c, 90, 1);
        let components = std::slice::from_raw_parts_mut(c.comp_info, 3);
        components[0].h_samp_factor = across as i32;
        components[0].v_samp_factor = down as i32;
        for chroma in &mut components[1..] {
            chroma.h_samp_factor = 1;
            chroma.v_samp_factor = 1;
        }
        jpeg_start_compress(&mut c, 1);
        for row in rgb.chunks_exact(3 * width as usize) {
            jpeg_write_scanlines(&mut c, &row.as_ptr(), 1);
        }
        jpeg_finish_compress(&mut c);
        let jpeg = std::slice::from_raw_parts(bytes, size as usize).to_vec();
        jpeg_destroy_compress(&mut c);
        libc::free(bytes.cast());
        jpeg
    }
}

/// Runs `read` on a decompressor that has read the header of `jpeg`.
fn decompress<T>(jpeg: &[u8], read: impl FnOnce(&mut jpeg_decompress_struct) -> T) -> T {
    // SAFETY: as in `encode`; `jpeg` outlives the decompressor.
    unsafe {
        let mut errors: jpeg_error_mgr = zeroed();
        let mut d: jpeg_decompress_struct = zeroed();
        d.common.err = jpeg_std_error(&mut errors);
        jpeg_create_decompress(&mut d);
        jpeg_mem_src(&mut d, jpeg.as_ptr(), jpeg.len() as _);
        jpeg_read_header(&mut d, 1);
        let result = read(&mut d);
        jpeg_destroy_decompress(&mut d);
        result
    }
}

/// R, G, B of every pixel.
pub fn rgb(jpeg: &[u8]) -> Vec<u8> {
    decompress(jpeg, |d| {
        d.out_color_space = J_COLOR_SPACE::JCS_RGB;
        // SAFETY: as in `encode`; every row has room for three bytes a pixel.
        unsafe {
            jpeg_start_decompress(d);
            let mut pixels = vec![0; 3 * (d.output_width * d.output_height) as usize];
            for row in pixels.chunks_exact_mut(3 * d.output_width as usize) {
                jpeg_read_scanlines(d, &mut row.as_mut_ptr(), 1);
            }
            jpeg_finish_decompress(d);
            pixels
        }
    })
}

/// The components' samples as the inverse DCT leaves them.
pub fn planes(jpeg: &[u8]) -> Planes {
    decompress(jpeg, |d| {
        d.raw_data_out = 1;
        // SAFETY: as in `encode`; rows are as long as libjpeg's blocks, and there are as many as it writes.
        unsafe {
            jpeg_start_decompress(d);
            let components = std::slice::from_raw_parts(d.comp_info, 3);
            let factors: Vec<_> = components.iter().map(|c| (c.h_samp_factor, c.v_samp_factor)).collect();
            let (across, down) = (factors[0].0 as u32, factors[0].1 as u32);
            let strides: Vec<_> = components
                .iter()
                .map(|c| (c.width_in_blocks as usize * 8).next_multiple_of(8 * c.h_samp_factor as usize))
                .collect();
            let (width, height) = (d.image_width, d.image_height);
            let groups = height.div_ceil(8 * down);
            let mut data: Vec<_> = (0..3)
                .map(|c| vec![0u8; strides[c] * (groups as usize * 8 * factors[c].1 as usize) + 64])
                .collect();
            for group in 0..groups as usize {
                let mut rows: Vec<Vec<*mut u8>> = Vec::new();
                for c in 0..3 {
                    let count = 8 * factors[c].1 as usize;
                    let at = |r: usize| (group * count + r) * strides[c];
                    rows.push((0..count).map(|r| data[c].as_mut_ptr().add(at(r))).collect());
                }
                let mut image: Vec<_> = rows.iter_mut().map(|r| r.as_mut_ptr()).collect();
                jpeg_read_raw_data(d, image.as_mut_ptr(), 8 * down);
            }
            jpeg_finish_decompress(d);
            let mut data = data.into_iter();
            let planes = [0, 1, 2].map(|c| {
                let (step_x, step_y) = (across / factors[c].0 as u32, down / factors[c].1 as u32);
                let (full_width, full_height) = (width.div_ceil(step_x), height.div_ceil(step_y));
                Plane {
                    data: data.next().unwrap(),
                    stride: strides[c],
                    x0: 0,
                    y0: 0,
                    width: full_width,
                    height: full_height,
                    full_width,
                    full_height,
                    step_x,
                    step_y,
                }
            });
            Planes { image_width: width, image_height: height, color: ColorModel::YCbCr, planes }
        }
    })
}
