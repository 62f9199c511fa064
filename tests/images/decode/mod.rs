//! The decoder against libjpeg, on images made here and on a corpus of odd ones; refused files; every instruction set.

mod conceal;
mod corpus;
mod fuzz;
mod images;
mod indexed;
mod indexed_fuzz;
mod odd_kinds;
mod own_kernels;
mod packed_fuzz;
mod png;
mod progressive;
mod refusals;
mod region;
mod rows_fuzz;
mod scripts;
mod webp;

use foreload::DecodeError;
use foreload::testing::decode::{Backend, Decoder, Planes, Region};
use foreload::testing::simd::Level;
use libjpeg_reference as libjpeg;

/// Decodes the region that `choose` picks, with the instructions of `level`.
fn decode(
    bytes: &[u8],
    level: Level,
    choose: impl FnOnce(u32, u32) -> Region,
) -> Result<(Planes, Region, Backend), DecodeError> {
    let mut planes = Planes::default();
    let decoded = Decoder::with_level(100_000_000, level).decode(bytes, choose, &mut planes)?;
    assert_eq!(decoded.concealed, None);
    Ok((planes, decoded.region, decoded.backend))
}

/// The region of the whole image.
fn whole(width: u32, height: u32) -> Region {
    Region { x: 0, y: 0, width, height }
}
