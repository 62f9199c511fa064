//! Damaged packed images, also with correct checksums, as an attacker would write them. Every SIMD level and the GPU
//! kernel give the same pixels or the same error, and restoring gives the original file or an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreload::testing::decode::packed::{Packer, Restorer};
use foreload::testing::decode::{Decoder, Planes};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;
use foreload::testing::tier::store::checksum;

use super::fuzz::{answer, damage, fuzz_runs, image};
use super::own_kernels;

/// The integer of two or four bytes at `at`, or 0 beyond the end.
fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// Corrects the checksums of head and rows, if the head can still be read.
fn repair(packed: &mut [u8]) {
    let head = number(packed, 8, 4);
    let (rows, tables) =
        (number(packed, 28, 2), 36 + 4 * number(packed, 32, 1) + 128 * number(packed, 34, 1));
    let mut start = head;
    for row in (tables..).step_by(8).take(rows) {
        let end = head + number(packed, row, 4);
        let Some(bytes) = packed.get(start..end) else { break };
        let crc = checksum(bytes).to_le_bytes();
        if let Some(place) = packed.get_mut(row + 4..row + 8) {
            place.copy_from_slice(&crc);
        }
        start = end;
    }
    if let Some(bytes) = head.checked_sub(4).and_then(|end| packed.get(..end)) {
        let crc = checksum(bytes).to_le_bytes();
        packed[head - 4..head].copy_from_slice(&crc);
    }
}

/// Damages bytes after the fixed part of the head, so that the damage gets past the checks of that part.
fn damage_inside(packed: &mut [u8], stream: &mut RandomStream) {
    for _ in 0..1 + stream.below(6) {
        let at = 24 + stream.below(packed.len() as u64 - 24) as usize;
        match stream.below(3) {
            0 => packed[at] ^= 1 << stream.below(8),
            1 => packed[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][stream.below(6) as usize],
            _ => packed[at] = stream.next_u32() as u8,
        }
    }
}

/// The result at a SIMD level: the samples and the restored file, or the errors.
type Answer = (Result<Vec<u8>, String>, Result<Vec<u8>, String>);

/// A short form of the result for messages: the samples' checksum and the file's length.
type Brief<'a> = (Result<u32, &'a String>, Result<usize, &'a String>);

fn briefly((planes, again): &Answer) -> Brief<'_> {
    (planes.as_ref().map(|planes| checksum(planes)), again.as_ref().map(Vec::len))
}

#[test]
fn damaged_packed_images_give_pixels_or_an_error() {
    let mut packer = Packer::new();
    let mut levels: Vec<_> = Level::available()
        .map(|level| (Decoder::with_level(1_000_000, level), Planes::default(), Restorer::with_level(level)))
        .collect();
    let (mut runs, mut pixels, mut restored) = (0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"packed fuzz") {
        runs += 1;
        let file = image(&mut stream);
        let mut packed = Vec::new();
        if packer.pack(&file, &mut packed).is_err() {
            continue;
        }
        match stream.below(4) {
            0 => damage(&mut packed, &mut stream),
            _ => {
                damage_inside(&mut packed, &mut stream);
                repair(&mut packed);
            }
        }
        let answers = levels.iter_mut().map(|(decoder, planes, restorer)| {
            catch_unwind(AssertUnwindSafe(|| {
                let mut again = Vec::new();
                let restored = restorer.restore(&packed, &mut again).map_err(|error| error.to_string());
                (answer(decoder, planes, &packed, seed), restored.map(|()| again))
            }))
            .unwrap_or_else(|_| panic!("a packed image made it panic: FORELOAD_FUZZ_SEED={seed}"))
        });
        let answers: Vec<_> = answers.collect();
        assert!(
            answers.windows(2).all(|pair| pair[0] == pair[1]),
            "levels differ: FORELOAD_FUZZ_SEED={seed}: {:?}",
            answers.iter().map(briefly).collect::<Vec<_>>()
        );
        let (planes, again) = &answers[0];
        let by_kernel = own_kernels::answer(&packed, 1_000_000, seed);
        assert!(
            by_kernel.as_ref().ok() == planes.as_ref().ok(),
            "the kernel differs: FORELOAD_FUZZ_SEED={seed}: {:?} {planes:?}",
            by_kernel.map(|samples| checksum(&samples))
        );
        pixels += u64::from(planes.is_ok());
        if let Ok(again) = again {
            assert!(again == &file, "another file is restored: FORELOAD_FUZZ_SEED={seed}");
            restored += 1;
        }
    }
    let counts = format!("{runs} images, {pixels} of them decoded, {restored} restored");
    println!("{counts}");
    assert!(pixels > 0 && pixels < runs, "{counts}");
}
