//! libjpeg's results for damaged files: which files it refuses if it is called as by Pillow, and their coefficients.

use std::os::raw::c_long;

use mozjpeg_sys::*;

use super::decompress;

/// The coefficients of one component.
pub struct Coefficients {
    /// The number of blocks in a row.
    pub columns: usize,
    /// The blocks row after row, each in natural order (8·row + column), not dequantised.
    pub blocks: Vec<[i16; 64]>,
    /// The quantisation table in natural order; zeros where no scan holds the component.
    pub steps: [u16; 64],
}

unsafe extern "C-unwind" fn wait_for_more(_: &mut jpeg_decompress_struct) -> boolean {
    0
}

unsafe extern "C-unwind" fn skip(d: &mut jpeg_decompress_struct, bytes: c_long) {
    // SAFETY: the source exists, and its pointer stays inside of its buffer or at its end.
    unsafe {
        let source = &mut *d.src;
        let bytes = usize::try_from(bytes).unwrap_or(0).min(source.bytes_in_buffer);
        source.next_input_byte = source.next_input_byte.add(bytes);
        source.bytes_in_buffer -= bytes;
    }
}

/// Whether Pillow's decoder returns an image for this file. Pillow has no more bytes when libjpeg asks for them, needs
/// all rows, and reads the data after them as far as possible.
pub fn pillow_decodes(jpeg: &[u8]) -> bool {
    let decoded = decompress(jpeg, |d| {
        // SAFETY: the header was read from memory; from here on no bytes are made up. Each row has `output_width`
        // pixels of `output_components` bytes.
        unsafe {
            (*d.src).fill_input_buffer = Some(wait_for_more);
            (*d.src).skip_input_data = Some(skip);
            if jpeg_start_decompress(d) == 0 {
                return false;
            }
            let mut row = vec![0; d.output_width as usize * d.output_components as usize];
            for _ in 0..d.output_height {
                if jpeg_read_scanlines(d, &mut row.as_mut_ptr(), 1) != 1 {
                    return false;
                }
            }
            jpeg_finish_decompress(d);
            true
        }
    });
    decoded.is_ok_and(|(complete, _)| complete)
}

/// The coefficients of every component, and the number of libjpeg's warnings. An end marker is inserted at the file's
/// end.
///
/// # Errors
/// The error code of libjpeg.
pub fn coefficients(jpeg: &[u8]) -> Result<(Vec<Coefficients>, i64), i32> {
    decompress(jpeg, |d| {
        // SAFETY: there are `num_components` arrays and component descriptions, and a row has at least
        // `width_in_blocks` blocks.
        unsafe {
            let arrays = jpeg_read_coefficients(d);
            let components = std::slice::from_raw_parts(d.comp_info, d.num_components as usize);
            let access = (*d.common.mem).access_virt_barray.expect("libjpeg's memory manager");
            let read = |(index, component): (usize, &jpeg_component_info)| {
                let columns = component.width_in_blocks as usize;
                let rows = 0..component.height_in_blocks;
                let blocks = rows.flat_map(|row| {
                    let rows = access(&mut d.common, *arrays.add(index), row, 1, 0);
                    std::slice::from_raw_parts((*rows).cast::<[i16; 64]>(), columns).to_vec()
                });
                let table = component.quant_table.as_ref();
                Coefficients {
                    columns,
                    blocks: blocks.collect(),
                    steps: table.map_or([0; 64], |table| table.quantval),
                }
            };
            components.iter().enumerate().map(read).collect()
        }
    })
}
