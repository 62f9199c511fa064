//! Boxes of random arrays are gathered by all types of conversions, and compared with the reference.

use super::super::{Arithmetic, BoxCorner, GatheredBox, MemoryOrder, Number, NumberConversion, StoredType};
use super::super::{WorkType, copied_bytes, fill, gather};
use super::{cast, is_same, reference, seed, stored, up_to};
use base::error::DecodeError;
use base::names::NamedValue;
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;

/// A random conversion, and random elements for it.
fn random_conversion(random: &mut RandomStream) -> (StoredType, Number, Arithmetic) {
    let names = Number::NAMES;
    let from = names[up_to(random, names.len() - 1)].1;
    let to = if random.below(4) == 0 { from } else { names[up_to(random, names.len() - 1)].1 };
    let mut with = Arithmetic::default();
    if to.is_float() && random.below(2) == 0 {
        let mut some = |value: f64| (random.below(2) == 0).then_some(value);
        with.scale = some(0.37);
        with.offset = some(-12.7);
        with.mean.extend(some(3.3));
        with.std.extend(some(0.7));
        with.missing.extend(some(3.0).and_then(|value| from.bits_of(value)));
        with.missing.extend(some(0.0).and_then(|value| from.bits_of(value)));
        with.work = some(0.0).map(|_| if random.below(2) == 0 { WorkType::F32 } else { WorkType::F64 });
    }
    (stored(from, random.below(2) == 0), to, with)
}

fn random_elements(random: &mut RandomStream, of: StoredType, count: usize) -> Vec<u8> {
    let size = of.number.size();
    let small = random.below(4) > 0;
    let element = |_| {
        let bits = match random.next_u64() {
            bits if small => of.number.bits_of((bits % 100) as f64).unwrap_or(bits & 1),
            bits => bits >> (64 - 8 * size),
        };
        let native = if cfg!(target_endian = "big") { bits << (64 - 8 * size) } else { bits };
        let mut bytes = native.to_ne_bytes()[..size].to_vec();
        if of.swapped {
            bytes.reverse();
        }
        bytes
    };
    (0..count).flat_map(element).collect()
}

#[test]
fn boxes_are_gathered_element_by_element() {
    let seed = seed();
    let (mut gathered, mut failed, mut copied) = (0, 0, 0);
    for case in 0..2000 {
        let random = &mut RandomKey::new(b"gather", seed, 0, Use::Augment).stream(case);
        let (from, to, mut with) = random_conversion(random);
        let rank = up_to(random, 4);
        // A few boxes have a dimension that is longer than a block.
        let long = if random.below(8) == 0 { up_to(random, 3) } else { rank };
        let mut lengths = vec![0u64; rank];
        let (mut chunk_shape, mut chunk_at, mut row_shape, mut row_at) =
            (lengths.clone(), lengths.clone(), lengths.clone(), lengths.clone());
        for axis in 0..rank {
            let most = if axis == long { 600 } else { 6 };
            lengths[axis] = random.below(most) + u64::from(random.below(20) > 0);
            let mut around =
                || if random.below(2) == 0 { (0, 0) } else { (random.below(3), random.below(3)) };
            for (shape, at) in [(&mut chunk_shape, &mut chunk_at), (&mut row_shape, &mut row_at)] {
                let (before, after) = around();
                (shape[axis], at[axis]) = (before + lengths[axis] + after, before);
            }
        }
        // The chunk is contiguous in any order of its dimensions.
        let mut axes: Vec<usize> = (0..rank).collect();
        if random.below(2) == 0 {
            for axis in 0..rank {
                axes.swap(axis, up_to(random, rank - 1));
            }
        }
        let permuted: Vec<u64> = axes.iter().map(|&axis| chunk_shape[axis]).collect();
        let mut chunk_strides = vec![0; rank];
        for (stride, &axis) in MemoryOrder::RowMajor.strides(&permuted).into_iter().zip(&axes) {
            chunk_strides[axis] = stride;
        }
        let row_strides = MemoryOrder::RowMajor.strides(&row_shape);
        let (mut shape, mut channel) = (lengths.clone(), 0);
        if rank > 0 && to.is_float() && random.below(2) == 0 {
            with.axis = up_to(random, rank - 1);
            shape[with.axis] += random.below(2) * random.below(5);
            let channels = shape[with.axis];
            channel = random.below(channels - lengths[with.axis] + 1);
            with.mean = (0..channels).map(|channel| channel as f64 * 1.7).collect();
            with.std = (0..channels).map(|channel| channel as f64 + 0.3).collect();
        }
        let what = format!(
            "FORELOAD_SEED={seed} case {case}: {from:?} to {to:?}, {with:?}, box {lengths:?} of {chunk_shape:?} with \
             strides {chunk_strides:?} at {chunk_at:?} to {row_shape:?} at {row_at:?}"
        );
        let elements = |shape: &[u64]| shape.iter().product::<u64>() as usize;
        let chunk = random_elements(random, from, elements(&chunk_shape));
        let before = random_elements(random, stored(to, false), elements(&row_shape));
        let of = GatheredBox {
            lengths: &lengths,
            chunk: BoxCorner { at: &chunk_at, strides: &chunk_strides },
            row: BoxCorner { at: &row_at, strides: &row_strides },
            channel,
        };
        let mut expected = Some(before.clone());
        let is_possible = NumberConversion::new(Level::Portable, from, &shape, to, &with).is_ok();
        for number in 0..if is_possible { elements(&lengths) as u64 } else { 0 } {
            let (mut rest, mut in_chunk, mut in_row, mut of_channel) = (number, 0, 0, 0);
            for axis in (0..rank).rev() {
                let index = rest % lengths[axis];
                rest /= lengths[axis];
                in_chunk += (chunk_at[axis] + index) * chunk_strides[axis];
                in_row += (row_at[axis] + index) * row_strides[axis];
                if axis == with.axis {
                    of_channel = channel + index;
                }
            }
            let raw = &chunk[in_chunk as usize * from.number.size()..][..from.number.size()];
            match (reference(from, to, &with, of_channel as usize, raw), &mut expected) {
                (Some(bytes), Some(row)) => {
                    row[in_row as usize * to.size()..][..to.size()].copy_from_slice(&bytes)
                }
                _ => expected = None,
            }
        }
        let mut of_levels = Vec::new();
        for level in Level::available() {
            let Ok(conversion) = NumberConversion::new(level, from, &shape, to, &with) else { continue };
            let mut row = before.clone();
            match (gather(&chunk, &mut row, &of, &conversion), &expected) {
                (Ok(()), Some(expected)) => {
                    let mut pairs = row.chunks(to.size()).zip(expected.chunks(to.size()));
                    assert!(pairs.all(|(one, other)| is_same(to, one, other)), "{} {what}", level.name());
                    if let Some([from, at, bytes]) = copied_bytes([chunk.len(), row.len()], &of, &conversion)
                    {
                        let mut copy = before.clone();
                        copy[at..at + bytes].copy_from_slice(&chunk[from..from + bytes]);
                        assert_eq!(copy, row, "{what}");
                        copied += 1;
                    }
                    of_levels.push(row);
                    gathered += 1;
                }
                (Err(DecodeError::Damaged(message)), None) => {
                    assert!(message.contains("cannot hold"), "{message} {what}");
                    failed += 1;
                }
                (result, expected) => panic!("{result:?} {expected:?} {} {what}", level.name()),
            }
        }
        assert!(of_levels.windows(2).all(|rows| rows[0] == rows[1]), "levels differ: {what}");
    }
    assert!(
        gathered > 1000 && failed > 20 && (20..gathered / 4).contains(&copied),
        "{gathered} gathered, {failed} failed, {copied} copied"
    );
}

#[test]
fn a_box_is_filled_as_it_is_gathered() {
    let from = stored(Number::Signed(2), true);
    let with = Arithmetic { mean: vec![1.0, 2.0, 3.0], axis: 1, missing: vec![9], ..Arithmetic::default() };
    let conversion = NumberConversion::new(Level::detect(), from, &[4, 3], Number::Float(4), &with).unwrap();
    let row = BoxCorner { at: &[1, 0], strides: &[3, 1] };
    let of = GatheredBox { lengths: &[2, 2], chunk: row, row, channel: 1 };
    let mut filled = vec![0; 48];
    fill(&7i16.swap_bytes().to_ne_bytes(), &mut filled, &of, &conversion).unwrap();
    let floats: Vec<f32> = filled.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect();
    assert_eq!(floats, [0.0, 0.0, 0.0, 5.0, 4.0, 0.0, 5.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_box_outside_of_its_bytes_is_an_error() {
    let conversion = cast(Level::detect(), Number::Unsigned(2), Number::Unsigned(2));
    let result = |at: u64, length: u64, stride: u64, chunk: usize, row: usize| {
        let (chunk, mut row) = (vec![1; chunk], vec![0; row]);
        let of = GatheredBox {
            lengths: &[length],
            chunk: BoxCorner { at: &[at], strides: &[stride] },
            row: BoxCorner { at: &[0], strides: &[1] },
            channel: 0,
        };
        gather(&chunk, &mut row, &of, &conversion)
    };
    assert!(result(1, 3, 1, 8, 6).is_ok() && result(1, 0, 1, 0, 0).is_ok());
    assert!(result(0, 1, u64::MAX, 2, 2).is_ok());
    for (at, length, stride, chunk, row) in [
        (1, 3, 1, 7, 6),
        (1, 3, 1, 8, 5),
        (2, 3, 1, 8, 6),
        (1, 3, 2, 8, 6),
        (1, u64::MAX, 1, 8, 6),
        (u64::MAX, 3, 1, 8, 6),
        (1, 3, u64::MAX, 8, 6),
    ] {
        let error = result(at, length, stride, chunk, row).unwrap_err().to_string();
        assert!(error.contains("has too few bytes for its shape"), "{error}");
    }
}
