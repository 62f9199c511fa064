//! Operations that move whole rows, columns or planes.

/// Mirrors left and right, in place.
pub(super) fn left_right<T>(planes: &mut [T], width: usize) {
    for row in planes.chunks_exact_mut(width) {
        row.reverse();
    }
}

/// Mirrors top and bottom, in place.
pub(super) fn top_bottom<T>(plane: &mut [T], width: usize) {
    let mut rows = plane.chunks_exact_mut(width);
    while let (Some(above), Some(below)) = (rows.next(), rows.next_back()) {
        above.swap_with_slice(below);
    }
}

/// Copies plane `permutation[c]` of `from` to plane c of `to`.
pub(super) fn permute(from: &[u8], permutation: [u8; 3], to: &mut [u8]) {
    let pixels = from.len() / 3;
    for (to, channel) in to.chunks_exact_mut(pixels).zip(permutation) {
        to.copy_from_slice(&from[usize::from(channel) * pixels..][..pixels]);
    }
}
