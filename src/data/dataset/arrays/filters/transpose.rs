//! Chunks with another order of dimensions than row-major.

/// The most dimensions of an array.
const MOST_DIMENSIONS: usize = 32;

/// Checks that `order` is a permutation of the dimensions, and that a chunk has `bytes` bytes.
pub(super) fn check(size: u32, shape: &[u64], order: &[u32], bytes: u64) -> Result<(), String> {
    let stated = shape.iter().try_fold(u64::from(size), |product, &length| product.checked_mul(length));
    let mut is_listed = [false; MOST_DIMENSIONS];
    let listed = order.len() == shape.len()
        && shape.len() <= MOST_DIMENSIONS
        && order.iter().all(|&dimension| {
            let place = is_listed.get_mut(dimension as usize).filter(|_| (dimension as usize) < shape.len());
            place.is_some_and(|place| !std::mem::replace(place, true))
        });
    if listed && stated == Some(bytes) {
        return Ok(());
    }
    Err(format!("has chunks of the shape {shape:?} in the order {order:?}, which do not match"))
}

/// Copies a chunk whose dimensions are stored in the order `order` to row-major order.
pub(super) fn rows_first(
    size: u32,
    shape: &[u64],
    order: &[u32],
    from: &[u8],
    to: &mut [u8],
) -> Result<(), String> {
    super::same_length(from, to)?;
    check(size, shape, order, from.len() as u64)?;
    if from.is_empty() {
        // The other lengths may be of any size.
        return Ok(());
    }
    match size {
        1 => copy::<1>(shape, order, from, to),
        2 => copy::<2>(shape, order, from, to),
        4 => copy::<4>(shape, order, from, to),
        8 => copy::<8>(shape, order, from, to),
        _ => return Err(format!("its elements have {size} bytes")),
    }
    Ok(())
}

/// The arguments were checked, so all indices are inside of the slices.
fn copy<const N: usize>(shape: &[u64], order: &[u32], from: &[u8], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    // For each dimension: its length, the distance of its elements in `from`, and the current index.
    let (mut lengths, mut steps, mut indices) =
        ([1; MOST_DIMENSIONS], [0; MOST_DIMENSIONS], [0; MOST_DIMENSIONS]);
    lengths.iter_mut().zip(shape).for_each(|(place, &length)| *place = length as usize);
    let mut step = 1;
    for &dimension in order.iter().rev() {
        steps[dimension as usize] = step;
        step *= lengths[dimension as usize];
    }
    let last = shape.len().saturating_sub(1);
    let mut start = 0;
    for row in to.chunks_exact_mut(lengths[last].max(1)) {
        let elements = from[start..].iter().step_by(steps[last].max(1));
        row.iter_mut().zip(elements).for_each(|(place, element)| *place = *element);
        for dimension in (0..last).rev() {
            indices[dimension] += 1;
            start += steps[dimension];
            if indices[dimension] < lengths[dimension] {
                break;
            }
            start -= indices[dimension] * steps[dimension];
            indices[dimension] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_get_their_order() {
        // Of zarr: the stored dimension k is the array's dimension order[k].
        let element = |i: u64, j: u64, k: u64| (i * 12 + j * 4 + k) as u16;
        let (shape, order) = ([2, 3, 4], [2, 0, 1]);
        let mut stored = Vec::new();
        for k in 0..4 {
            for i in 0..2 {
                (0..3).for_each(|j| stored.extend(element(i, j, k).to_ne_bytes()));
            }
        }
        let mut found = vec![0; 48];
        rows_first(2, &shape, &order, &stored, &mut found).unwrap();
        let rows: Vec<u8> = (0..24u16).flat_map(u16::to_ne_bytes).collect();
        assert_eq!(found, rows);
        rows_first(2, &[24], &[0], &rows, &mut found).unwrap();
        assert_eq!(found, rows);
        let mut one = [0; 8];
        rows_first(8, &[], &[], &rows[..8], &mut one).unwrap();
        assert_eq!(one, rows[..8]);
        rows_first(1, &[0, 1 << 40, 1 << 40], &[0, 1, 2], &[], &mut []).unwrap();
    }

    #[test]
    fn what_does_not_match_is_an_error() {
        let wrong: [(u32, &[u64], &[u32]); 7] = [
            (2, &[2, 3], &[0, 0]),
            (2, &[2, 3], &[0, 2]),
            (2, &[2, 3], &[0]),
            (2, &[2, 4], &[1, 0]),
            (4, &[2, 3], &[1, 0]),
            (3, &[2, 2], &[1, 0]),
            (2, &[1 << 63, 3], &[1, 0]),
        ];
        for (size, shape, order) in wrong {
            assert!(
                rows_first(size, shape, order, &[0; 12], &mut [0; 12]).is_err(),
                "{size} {shape:?} {order:?}"
            );
        }
        assert!(check(1, &[1; 33], &[0; 33], 1).is_err());
    }
}
