//! Broken indexed images: each decodes like the file that it contains, damaged or not. A wrong index leads to pixels or
//! an error, and the GPU kernel decodes the same samples as the CPU's decoder with the index.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreload::testing::decode::forms::{
    ConvertedFormat, FileRestorer, FormatConverter, StorageFormat, original_length,
};
use foreload::testing::decode::{Backend, Damaged, Decoder, Planes};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;
use foreload::testing::tier::store::checksum;

use super::fuzz::{answers, damage, decoders, fuzz_runs, image, region, samples};
use super::own_kernels;

/// Corrects the checksum of the head, if the head can still be read.
fn repair(indexed: &mut [u8]) {
    let Some(length) = indexed.get(8..12) else { return };
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    if let Some(bytes) = length.checked_sub(4).and_then(|end| indexed.get(..end)) {
        let crc = checksum(bytes).to_le_bytes();
        if let Some(place) = indexed.get_mut(length - 4..length) {
            place.copy_from_slice(&crc);
        }
    }
}

/// Damages the index, but not the file.
fn damage_index(indexed: &mut [u8], head: usize, stream: &mut RandomStream) {
    for _ in 0..1 + stream.below(6) {
        let at = 20 + stream.below(head as u64 - 24) as usize;
        match stream.below(4) {
            0 => indexed[at] ^= 1 << stream.below(8),
            1 => indexed[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][stream.below(6) as usize],
            2 => indexed[at] = indexed[at].wrapping_add(stream.below(5) as u8).wrapping_sub(2),
            _ => indexed[at] = stream.next_u32() as u8,
        }
    }
}

/// Damages an indexed image of `file`: mostly the index, whose checksum is then corrected.
fn damage_anywhere(indexed: &mut Vec<u8>, file: &[u8], stream: &mut RandomStream) {
    let head = indexed.len() - original_length(indexed).unwrap() as usize;
    match stream.below(5) {
        0 => damage(indexed, stream),
        1 => {
            damage_index(indexed, head, stream);
            let at = head + stream.below(file.len() as u64) as usize;
            indexed[at] ^= 1 << stream.below(8);
        }
        _ => damage_index(indexed, head, stream),
    }
    repair(indexed);
}

#[test]
fn damaged_files_answer_alike_with_and_without_an_index() {
    let mut both = [decoders(Damaged::Refuse), decoders(Damaged::Conceal)];
    let (mut maker, mut indexed) = (FormatConverter::default(), Vec::new());
    let (mut runs, mut indexes, mut errors) = (0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"index fuzz") {
        runs += 1;
        let mut file = image(&mut stream);
        // Most damage must not make a code invalid, because files with invalid codes have no index.
        match stream.below(3) {
            0 => damage(&mut file, &mut stream),
            _ => {
                let at = stream.below(file.len() as u64) as usize;
                file[at] ^= 1 << stream.below(8);
            }
        }
        if maker.make(ConvertedFormat::Indexed, &file, &mut indexed).is_err() {
            continue;
        }
        indexes += 1;
        for decoders in &mut both {
            let expected = answers(decoders, &file, seed);
            errors += u64::from(expected.is_err());
            let found = answers(decoders, &indexed, seed);
            assert!(found == expected, "the index changes what comes out: FORELOAD_FUZZ_SEED={seed}");
        }
    }
    let counts = format!("{runs} images, {indexes} of them indexed, {errors} errors");
    println!("{counts}");
    assert!(indexes > 0 && indexes < runs, "{counts}");
}

#[test]
fn wrong_indexes_give_pixels_or_an_error() {
    let mut decoders = decoders(Damaged::Refuse);
    let (mut maker, mut restorer, mut indexed) =
        (FormatConverter::default(), FileRestorer::default(), Vec::new());
    let (mut runs, mut same, mut other, mut errors) = (0u64, 0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"wrong index") {
        runs += 1;
        let file = image(&mut stream);
        if maker.make(ConvertedFormat::Indexed, &file, &mut indexed).is_err() {
            continue;
        }
        damage_anywhere(&mut indexed, &file, &mut stream);
        let expected = answers(&mut decoders, &file, seed);
        match answers(&mut decoders, &indexed, seed) {
            Ok(samples) if Ok(&samples) == expected.as_ref() => same += 1,
            Ok(_) => other += 1,
            Err(_) => errors += 1,
        }
        let restored = catch_unwind(AssertUnwindSafe(|| {
            restorer.restore(StorageFormat::Indexed, &indexed).map(<[u8]>::to_vec)
        }))
        .unwrap_or_else(|_| panic!("restoring panicked: FORELOAD_FUZZ_SEED={seed}"));
        let begins_alike = indexed.starts_with(b"\x8AFLINDX\x01");
        assert!(
            !begins_alike || restored.is_err() || restored.is_ok_and(|restored| restored == file),
            "another file comes back: FORELOAD_FUZZ_SEED={seed}"
        );
    }
    let counts = format!("{runs} images: {same} decode as they should, {other} otherwise, {errors} not");
    println!("{counts}");
    assert!(same > 0 && other > 0 && errors > 0, "{counts}");
}

/// Whatever is damaged in an indexed image, the kernel gives either the samples that the CPU's decoder finds with the
/// index, or none.
#[test]
fn damaged_indexed_images_are_decoded_by_their_index_or_left_to_the_cpu() {
    let (mut maker, mut planes, mut indexed) = (FormatConverter::default(), Planes::default(), Vec::new());
    let mut decoders: Vec<_> =
        Level::available().map(|level| Decoder::with_level(1_000_000, level)).collect();
    let (mut runs, mut by_index, mut left) = (0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"indexed kernel") {
        runs += 1;
        let file = image(&mut stream);
        if maker.make(ConvertedFormat::Indexed, &file, &mut indexed).is_err() {
            continue;
        }
        damage_anywhere(&mut indexed, &file, &mut stream);
        let by_kernel = own_kernels::answer(&indexed, 1_000_000, seed);
        if by_kernel == Err("not planned".into()) {
            continue;
        }
        for decoder in &mut decoders {
            let choose = |width, height| region(seed, (width, height));
            let decoded = decoder.decode(&indexed, choose, &mut planes);
            let expected = decoded.ok().filter(|decoded| decoded.backend == Backend::Indexed);
            let expected = expected.map(|_| samples(&planes));
            assert!(by_kernel.as_ref().ok() == expected.as_ref(), "FORELOAD_FUZZ_SEED={seed}: {by_kernel:?}");
        }
        by_index += u64::from(by_kernel.is_ok());
        left += u64::from(by_kernel.is_err());
    }
    let counts = format!("{runs} images, {by_index} decoded by their index, {left} left to the CPU");
    println!("{counts}");
    assert!(by_index > 0 && left > 0, "{counts}");
}
