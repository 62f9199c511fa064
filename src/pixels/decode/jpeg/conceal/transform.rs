//! Inverse DCT of coefficients of any size.
//!
//! Damage produces coefficients that no image has. In libjpeg's C code the resulting samples wrap around. In
//! libjpeg-turbo's vector code, which Pillow and torchvision run, they saturate. Here each step has the width, the
//! wrapping and the saturation of that vector code on x86-64. For coefficients of real images, all of these give the
//! same samples.

use super::super::idct::{
    C_0_298, C_0_390, C_0_541, C_0_765, C_0_899, C_1_175, C_1_501, C_1_847, C_1_961, C_2_053, C_2_562,
    C_3_072, ZIGZAG,
};
use super::block::ZigzagBlock;

/// The number of fractional bits kept between the passes.
const KEPT: u32 = 2;
/// The number of fractional bits of the factors.
const BITS: u32 = 13;

const EVEN: [[i32; 2]; 2] = [[C_0_541, C_0_541 - C_1_847], [C_0_541 + C_0_765, C_0_541]];
const ODD_SUMS: [[i32; 2]; 2] = [[C_1_175 - C_1_961, C_1_175], [C_1_175, C_1_175 - C_0_390]];
const ODD_OUTER: [[i32; 2]; 2] = [[C_0_298 - C_0_899, -C_0_899], [-C_0_899, C_1_501 - C_0_899]];
const ODD_INNER: [[i32; 2]; 2] = [[C_2_053 - C_2_562, -C_2_562], [-C_2_562, C_3_072 - C_2_562]];

/// Transforms `block` into 8×8 samples at `out`, rows `stride` apart. `steps` is the quantisation table in coding
/// order.
pub(super) fn transform(block: &ZigzagBlock, steps: &[u16; 64], out: &mut [u8], stride: usize) {
    let mut values = [0i16; 64];
    for ((place, value), step) in ZIGZAG.iter().zip(block).zip(steps) {
        values[usize::from(*place)] = value.wrapping_mul(*step as i16);
    }
    let only_first_row = ZIGZAG.iter().zip(block).all(|(&place, &value)| place < 8 || value == 0);
    for column in 0..8 {
        let input = std::array::from_fn(|row| values[8 * row + column]);
        let output = if only_first_row { [input[0] << KEPT; 8] } else { pass(input, BITS - KEPT) };
        for (row, value) in output.into_iter().enumerate() {
            values[8 * row + column] = value;
        }
    }
    for (row, out) in values.as_chunks::<8>().0.iter().zip(out.chunks_mut(stride)) {
        for (sample, value) in out.iter_mut().zip(pass(*row, BITS + KEPT + 3)) {
            *sample = (value.clamp(-128, 127) + 128) as u8;
        }
    }
}

fn pass(input: [i16; 8], shift: u32) -> [i16; 8] {
    let both = |factors: [i32; 2], a: i16, b: i16| factors[0] * i32::from(a) + factors[1] * i32::from(b);
    let [two, three] = EVEN.map(|factors| both(factors, input[2], input[6]));
    let zero = i32::from(input[0].wrapping_add(input[4])) << BITS;
    let one = i32::from(input[0].wrapping_sub(input[4])) << BITS;
    let even = [zero + three, one + two, one - two, zero - three];

    let (a, b) = (input[7].wrapping_add(input[3]), input[5].wrapping_add(input[1]));
    let [a, b] = ODD_SUMS.map(|factors| both(factors, a, b));
    let [zero, three] = ODD_OUTER.map(|factors| both(factors, input[7], input[1]));
    let [one, two] = ODD_INNER.map(|factors| both(factors, input[5], input[3]));
    let odd = [three.wrapping_add(b), two.wrapping_add(a), one.wrapping_add(b), zero.wrapping_add(a)];

    let rounded = |sum: i32| {
        let sum = sum.wrapping_add(1 << (shift - 1)) >> shift;
        sum.clamp(i16::MIN.into(), i16::MAX.into()) as i16
    };
    std::array::from_fn(|i| {
        if i < 4 {
            rounded(even[i].wrapping_add(odd[i]))
        } else {
            rounded(even[7 - i].wrapping_sub(odd[7 - i]))
        }
    })
}
