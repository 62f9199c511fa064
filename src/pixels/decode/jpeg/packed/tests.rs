//! Tests that packed files can be restored byte for byte, and that they decode to the same planes at every SIMD level.

use super::coefficients::{ImageBlocks, block_count, read_packed};
use super::pack::MEMORY_OF_BLOCK;
use super::*;
use crate::decode::jpeg::markers::ScanHeader;
use crate::decode::{Decoder, KeepReason, Turn};
use base::rng::{RandomKey, Use};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

fn image(
    seed: u64,
    quality: u8,
    color: ColorType,
    sampling: SamplingFactor,
    more: impl Fn(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut stream = RandomKey::new(b"packed", 0, 0, Use::Augment).stream(seed);
    let (width, height) = (1 + stream.below(200) as u16, 1 + stream.below(120) as u16);
    let channels = if color == ColorType::Luma { 1 } else { 3 };
    let noise = 1 + stream.below(255);
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * channels)
        .map(|at| ((at / 7) as u8).wrapping_add(stream.below(noise) as u8))
        .collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(sampling);
    more(&mut encoder);
    encoder.encode(&pixels, width, height, color).unwrap();
    file
}

fn files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for seed in 0..40 {
        let quality = [100, 95, 75, 30, 5][seed as usize % 5];
        for sampling in
            [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2, SamplingFactor::F_4_1]
        {
            files.push(image(seed, quality, ColorType::Rgb, sampling, |_| {}));
        }
        files.push(image(seed, quality, ColorType::Rgb, SamplingFactor::F_1_2, |encoder| {
            encoder.set_optimized_huffman_tables(true);
        }));
        files.push(image(seed, quality, ColorType::Luma, SamplingFactor::F_1_1, |_| {}));
        files.push(image(seed, quality, ColorType::Rgb, SamplingFactor::F_2_2, |encoder| {
            encoder.set_progressive(true)
        }));
        files.push(image(seed, quality, ColorType::Rgb, SamplingFactor::F_2_2, |encoder| {
            encoder.set_restart_interval(1 + seed as u16);
        }));
    }
    files
}

#[test]
fn every_file_restores_and_every_level_packs_the_same() {
    let mut packers: Vec<Packer> = Level::available().map(Packer::with_level).collect();
    let mut restorers: Vec<Restorer> = Level::available().map(Restorer::with_level).collect();
    for (number, file) in files().iter().enumerate() {
        let mut first: Option<Vec<u8>> = None;
        for packer in &mut packers {
            let mut packed = Vec::new();
            assert_eq!(packer.pack(file, &mut packed), Ok(()), "file {number}");
            assert_eq!(original_length(&packed).unwrap() as usize, file.len());
            assert_eq!(first.get_or_insert_with(|| packed.clone()), &packed, "file {number}");
        }
        for restorer in &mut restorers {
            let mut restored = Vec::new();
            restorer.restore(first.as_ref().unwrap(), &mut restored).unwrap();
            assert_eq!(&restored, file);
        }
    }
}

#[test]
fn regions_are_those_of_the_jpeg_at_every_level() {
    let mut packer = Packer::new();
    let mut stream = RandomKey::new(b"packed", 0, 1, Use::Augment).stream(0);
    for file in files() {
        let mut packed = Vec::new();
        packer.pack(&file, &mut packed).unwrap();
        for _ in 0..3 {
            let draws: [u64; 4] = std::array::from_fn(|_| stream.below(1 << 20));
            let choose = |width: u32, height: u32| {
                let (x, y) = (draws[0] as u32 % width, draws[1] as u32 % height);
                let (w, h) = (1 + draws[2] as u32 % (width - x), 1 + draws[3] as u32 % (height - y));
                Region { x, y, width: w, height: h }
            };
            let mut expected = Planes::default();
            Decoder::new(u64::MAX).decode(&file, choose, &mut expected).unwrap();
            for level in Level::available() {
                let mut planes = Planes::default();
                let decoded =
                    Decoder::with_level(u64::MAX, level).decode(&packed, choose, &mut planes).unwrap();
                assert_eq!(decoded.backend, Backend::Packed);
                assert!(planes.same_samples(&expected), "{} {:?}", level.name(), decoded.region);
            }
        }
    }
}

/// Decoding a region needs only the bytes that the header summary names. With fewer bytes, decoding fails.
#[test]
fn an_outline_says_which_parts_a_region_needs() {
    let mut packer = Packer::new();
    let mut stream = RandomKey::new(b"packed", 0, 2, Use::Augment).stream(0);
    let mut files = files();
    files.push(tall());
    let (mut part, mut whole) = (0, 0);
    for (number, file) in files.iter().enumerate() {
        let mut packed = Vec::new();
        packer.pack(file, &mut packed).unwrap();
        let header_summary = PackedHeaderSummary::read(&PackedHeaderSummary::of(&packed).unwrap()).unwrap();
        let (width, height) = header_summary.size();
        assert_eq!((width, height), size(&packed).unwrap(), "file {number}");
        for _ in 0..8 {
            let mut below = |limit: u32| stream.below(limit.into()) as u32;
            let (x, y) = (below(width), below(height));
            let region = Region { x, y, width: 1 + below(width - x), height: 1 + below(height - y) };
            let parts = header_summary.parts(region, packed.len() as u32).unwrap();
            let mut poisoned = packed.clone();
            poisoned[parts.head as usize..parts.start as usize].fill(0xA5);
            poisoned[parts.end as usize..].fill(0xA5);
            (part, whole) = (part + parts.bytes() as usize, whole + packed.len());
            for level in Level::available() {
                let mut decoder = Decoder::with_level(u64::MAX, level);
                let (mut expected, mut planes) = (Planes::default(), Planes::default());
                let choose = |_, _| region;
                decoder.decode(&packed, choose, &mut expected).unwrap();
                decoder.decode_parts(&poisoned, Some(parts), choose, &mut planes).unwrap();
                assert!(planes.same_samples(&expected), "file {number} {} {region:?}", level.name());
                // Decoding also fails if `parts` leaves out bytes that `packed` contains.
                let head = PackedHead::read(&packed).unwrap();
                let rows = head.bytes_of(&layout(&head, region).unwrap());
                let (first, last) = (rows.start as u32, rows.end as u32);
                let late = WantedBytes { start: first + 1, ..parts };
                for fewer in [late, WantedBytes { end: last - 1, ..parts }, WantedBytes::until(last - 1)] {
                    let refused = decoder.decode_parts(&packed, Some(fewer), choose, &mut planes);
                    assert!(refused.unwrap_err().to_string().contains("were not read"), "file {number}");
                }
                let cut = WantedBytes { head: parts.head - 1, ..parts };
                assert!(decoder.decode_parts(&packed, Some(cut), choose, &mut planes).is_err());
            }
        }
    }
    assert!(part < whole * 9 / 10, "{part} of {whole} bytes");
}

/// A summary knows the orientation that the file's headers have. Without it, as in old datasets, all else is the same.
#[test]
fn a_summary_knows_how_an_image_is_turned() {
    let file = files().swap_remove(0);
    for exif in 1..=8 {
        let segment =
            [b"\xFF\xE1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[exif][..], &[0; 6]];
        let turned = [&file[..2], &segment.concat(), &file[2..]].concat();
        let mut packed = Vec::new();
        Packer::new().pack(&turned, &mut packed).unwrap();
        assert_eq!(crate::decode::orientation(&packed), (exif > 1).then_some(exif));
        let bytes = PackedHeaderSummary::of(&packed).unwrap();
        let mut old = bytes;
        (old[4], old[5]) = (old[4] & 0b0011_0111, old[5] & !8);
        let [new, old_summary] = [bytes, old].map(|bytes| PackedHeaderSummary::read(&bytes).unwrap());
        assert_eq!((new.turn().map(Turn::exif), old_summary.turn()), (Some(exif), None));
        let (width, height) = new.size();
        let region = Region { x: 0, y: height / 2, width, height: 1 };
        let parts = new.parts(region, packed.len() as u32).unwrap();
        assert_eq!(Some(parts), old_summary.parts(region, packed.len() as u32));
        assert!([bytes, old].iter().all(|by| PackedHeaderSummary::parts_are_intact(by, &packed, parts)));
    }
}

/// An image with more rows of MCUs than a header summary has row ends.
fn tall() -> Vec<u8> {
    let mut file = Vec::new();
    let pixels: Vec<u8> = (0..3 * 40 * 3000).map(|at| (at * 37 % 251) as u8).collect();
    Encoder::new(&mut file, 90).encode(&pixels, 40, 3000, ColorType::Rgb).unwrap();
    file
}

/// `parts_are_intact` ignores changes to bytes that were not read.
#[test]
fn parts_are_sound_where_all_bytes_that_were_read_are() {
    let mut packed = Vec::new();
    Packer::new().pack(&tall(), &mut packed).unwrap();
    let known = PackedHeaderSummary::of(&packed).unwrap();
    let region = Region { x: 3, y: 1400, width: 20, height: 300 };
    let parts = PackedHeaderSummary::read(&known).unwrap().parts(region, packed.len() as u32).unwrap();
    let head = PackedHead::read(&packed).unwrap();
    let wanted = head.bytes_of(&layout(&head, region).unwrap());
    let until = WantedBytes::until(parts.end);
    for parts in [parts, until] {
        assert!(PackedHeaderSummary::parts_are_intact(&known, &packed, parts));
        for at in (0..packed.len()).step_by(7) {
            let mut damaged = packed.clone();
            damaged[at] ^= 1;
            let is_sound = PackedHeaderSummary::parts_are_intact(&known, &damaged, parts);
            let is_read = parts.holds(&(at..at + 1));
            let is_wanted = at < head.length || wanted.contains(&at);
            // A row of which only a part was read is not checked, and none of its bytes is wanted.
            assert!(if is_wanted { !is_sound } else { is_sound || is_read }, "byte {at} of {parts:?}");
        }
    }
    for at in 0..PackedHeaderSummary::BYTES {
        let mut other = known;
        other[at] ^= 1;
        assert!(!PackedHeaderSummary::parts_are_intact(&other, &packed, parts), "byte {at}");
    }
    let short = &packed[..packed.len() - 1];
    assert!(
        !PackedHeaderSummary::parts_are_intact(&known, short, parts)
            && !PackedHeaderSummary::parts_are_intact(&known, &[], parts)
    );
}

#[test]
fn an_outline_may_be_any_bytes() {
    let mut stream = RandomKey::new(b"packed", 0, 3, Use::Augment).stream(0);
    assert!(PackedHeaderSummary::read(&[0; PackedHeaderSummary::BYTES]).is_none());
    let mut packed = Vec::new();
    Packer::new().pack(&tall(), &mut packed).unwrap();
    let sound = PackedHeaderSummary::of(&packed).unwrap();
    let mut planes = Planes::default();
    for seed in 0..20_000 {
        let mut bytes = sound;
        for _ in 0..1 + stream.below(4) {
            bytes[stream.below(PackedHeaderSummary::BYTES as u64) as usize] = stream.below(256) as u8;
        }
        let Some(header_summary) = PackedHeaderSummary::read(&bytes) else { continue };
        let (width, height) = header_summary.size();
        let region = Region { x: width / 3, y: height / 2, width: 1, height: 1 };
        let length = if seed % 2 == 0 { packed.len() as u32 } else { stream.below(1 << 20) as u32 };
        let Some(parts) = header_summary.parts(region, length) else { continue };
        assert!(parts.head <= parts.start && parts.start < parts.end && parts.end <= length, "{parts:?}");
        let choose = |width, height| Region { x: width / 3, y: height / 2, width: 1, height: 1 };
        let _ = Decoder::new(u64::MAX).decode_parts(&packed, Some(parts), choose, &mut planes);
    }
}

#[test]
fn what_cannot_be_packed_says_why() {
    let mut packer = Packer::new();
    let mut out = vec![1];
    assert_eq!(packer.pack(b"no image", &mut out), Err(KeepReason::NotJpeg));
    assert!(out.is_empty());
    let file = image(1, 90, ColorType::Rgb, SamplingFactor::F_2_2, |_| {});
    assert_eq!(packer.pack(&file[..file.len() / 2], &mut out), Err(KeepReason::Damaged));
    let ink = {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, 80).encode(&[128; 4 * 33 * 21], 33, 21, ColorType::Cmyk).unwrap();
        bytes
    };
    assert_eq!(packer.pack(&ink, &mut out), Err(KeepReason::Kind));
    // A junk byte before the end marker is neither coded data nor a segment, so it cannot be restored.
    let mut more = file[..file.len() - 2].to_vec();
    more.extend([0x55, 0xFF, 0xD9]);
    assert_eq!(packer.pack(&more, &mut out), Err(KeepReason::NotRestorable));
    // Bytes after the end marker are kept.
    let trailing = [file.as_slice(), b"trailing bytes \xFF\xD8\xFF"].concat();
    assert_eq!(packer.pack(&trailing, &mut out), Ok(()));
}

/// Memory and output size must not grow with the number of blocks that a few bytes of a file can code.
#[test]
fn what_would_take_far_more_than_its_file_is_kept() {
    let file = image(1, 90, ColorType::Rgb, SamplingFactor::F_2_2, |_| {});
    let blocks = block_count(&ScanHeader::parse(&file).unwrap().frame);
    let mut out = Vec::new();
    assert_eq!(Packer::new().with_memory(blocks * MEMORY_OF_BLOCK).pack(&file, &mut out), Ok(()));
    let less = blocks * MEMORY_OF_BLOCK - 1;
    assert_eq!(Packer::new().with_memory(less).pack(&file, &mut out), Err(KeepReason::Large));
    assert!(out.is_empty());
    // In progressive scans, a flat image takes two bits per block.
    let mut flat = Vec::new();
    let mut encoder = Encoder::new(&mut flat, 80);
    encoder.set_progressive(true);
    encoder.set_optimized_huffman_tables(true);
    encoder.encode(&[77; 1 << 20], 1 << 10, 1 << 10, ColorType::Luma).unwrap();
    assert_eq!(Packer::new().pack(&flat, &mut out), Err(KeepReason::Large));
    assert!(out.is_empty());
}

#[test]
fn no_step_of_quantisation_is_zero() {
    let mut file = image(1, 90, ColorType::Rgb, SamplingFactor::F_2_2, |_| {});
    let (mut packer, mut packed) = (Packer::new(), Vec::new());
    packer.pack(&file, &mut packed).unwrap();
    let mut head = PackedHead::read(&packed).unwrap();
    head.tables[0][63] = 0;
    head.overwrite(&mut packed);
    let error = PackedHead::read(&packed).unwrap_err().to_string();
    assert!(error.contains("a quantisation step is 0"), "{error}");
    // The marker, the length and the table's index precede the steps of the table.
    let at = file.windows(2).position(|marker| marker == [0xFF, 0xDB]).unwrap() + 5;
    file[at + 63] = 0;
    assert_eq!(packer.pack(&file, &mut packed), Err(KeepReason::Kind));
}

/// A table that no component uses may contain zero steps.
#[test]
fn a_step_that_is_not_used_may_be_zero() {
    let file = image(1, 90, ColorType::Rgb, SamplingFactor::F_2_2, |_| {});
    let unused = [&[0xFF, 0xDB, 0, 67, 3][..], &[0; 64]].concat();
    let file = [&file[..2], &unused, &file[2..]].concat();
    let (mut packer, mut packed, mut restored) = (Packer::new(), Vec::new(), Vec::new());
    assert_eq!(packer.pack(&file, &mut packed), Ok(()));
    let head = PackedHead::read(&packed).unwrap();
    let rows = &packed[head.length..];
    let head = PackedHead { tables: [&head.tables[..], &[[0; 64]]].concat(), ..head };
    let mut with_table = Vec::new();
    head.write(&mut with_table);
    with_table.extend(rows);
    Restorer::new().restore(&with_table, &mut restored).unwrap();
    assert!(restored == file);
}

#[test]
fn rows_that_say_anything_say_the_same_at_every_level() {
    let seed: u64 = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut stream = RandomKey::new(b"hostile", seed, 0, Use::Augment).stream(0);
    let whole = |width, height| Region { x: 0, y: 0, width, height };
    let (mut packed, mut decoded) = (Vec::new(), 0);
    for number in 0..40 {
        let quality = [100, 95, 75, 30][number as usize % 4];
        let file = image(number, quality, ColorType::Rgb, SamplingFactor::F_1_1, |_| {});
        Packer::new().pack(&file, &mut packed).unwrap();
        for _ in 0..25 {
            let (mut damaged, mut head) = (packed.clone(), PackedHead::read(&packed).unwrap());
            let row = stream.below(head.rows.len() as u64) as usize;
            // The lengths of units come first. Most changes leave them intact.
            let bytes = &mut damaged[head.row(row)];
            for _ in 0..1 + stream.below(4) {
                let at = stream.below(bytes.len() as u64).max(stream.below(40)) as usize;
                bytes[at.min(bytes.len() - 1)] = stream.below(256) as u8;
            }
            head.rows[row].crc = base::crc::checksum(bytes);
            head.overwrite(&mut damaged);
            let levels = Level::available().map(|level| {
                let (mut planes, mut blocks) = (Planes::default(), ImageBlocks::default());
                let done = Decoder::with_level(u64::MAX, level).decode(&damaged, whole, &mut planes);
                let samples: Vec<_> = planes.planes.into_iter().map(|plane| plane.data).collect();
                let read =
                    read_packed(&damaged, &head, level, &mut blocks).map_err(|error| error.to_string());
                let blocks: Vec<_> =
                    blocks.components.into_iter().map(|component| component.blocks).collect();
                (done.map(|_| samples).map_err(|error| error.to_string()), read.map(|()| blocks))
            });
            let levels: Vec<_> = levels.collect();
            assert!(
                levels.iter().all(|level| *level == levels[0]),
                "FORELOAD_SEED={seed} file {number}, row {row}"
            );
            decoded += usize::from(levels[0].0.is_ok());
        }
    }
    assert!(decoded > 50, "FORELOAD_SEED={seed}: {decoded} of 1000 were decoded");
}

#[test]
fn damage_is_found_wherever_it_is() {
    let mut packer = Packer::new();
    let file = image(3, 80, ColorType::Rgb, SamplingFactor::F_2_2, |_| {});
    let mut packed = Vec::new();
    packer.pack(&file, &mut packed).unwrap();
    let (mut restored, mut planes) = (Vec::new(), Planes::default());
    let whole = |width, height| Region { x: 0, y: 0, width, height };
    for at in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Restorer::new().restore(&damaged, &mut restored).is_err(), "byte {at}");
        let plain = PackedHead::read(&packed).unwrap().original.plain as usize;
        if at < packed.len() - plain {
            assert!(Decoder::new(u64::MAX).decode(&damaged, whole, &mut planes).is_err(), "byte {at}");
        }
    }
    for length in 0..packed.len() {
        assert!(Restorer::new().restore(&packed[..length], &mut restored).is_err());
    }
}
