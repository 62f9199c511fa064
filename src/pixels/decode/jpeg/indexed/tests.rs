//! The contents of an index, and the conditions under which it is used.

use super::head::{EntryPoint, IndexedFile};
use super::*;
use crate::decode::KeepReason;
use crate::decode::jpeg::bits::FileOffsets;
use crate::decode::{Backend, Decoder, Region};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// A JPEG of 130 × 77 pixels in 4:2:0, which has 9 columns and 5 rows of MCUs.
fn file(more: impl Fn(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let pixels: Vec<u8> = (0..130 * 77 * 3u64).map(|at| (at * at / 7 % 251) as u8).collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 90);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    more(&mut encoder);
    encoder.encode(&pixels, 130, 77, ColorType::Rgb).unwrap();
    file
}

fn index(file: &[u8]) -> Vec<u8> {
    let mut indexed = Vec::new();
    Indexer::default().index(file, &mut indexed).unwrap();
    indexed
}

/// Returns an indexed image of the same file, with `change` applied to the index.
fn changed(indexed: &[u8], change: impl Fn(&mut IndexedFile, &mut Vec<EntryPoint>)) -> Vec<u8> {
    let head = IndexHead::read(indexed).unwrap();
    let mut facts = head.facts;
    let mut entries: Vec<EntryPoint> = (0..facts.mcus.1).map(|row| head.row(row).unwrap().0).collect();
    change(&mut facts, &mut entries);
    let mut out = Vec::new();
    facts.write(&entries, &mut out);
    out.extend(&indexed[head.file()]);
    out
}

fn decode(bytes: &[u8]) -> (Planes, Backend) {
    let mut planes = Planes::default();
    let middle = |_, _| Region { x: 40, y: 30, width: 50, height: 30 };
    let decoded = Decoder::new(1_000_000).decode(bytes, middle, &mut planes).unwrap();
    (planes, decoded.backend)
}

#[test]
fn rows_begin_where_their_first_bits_lie() {
    // Each row ends with a restart marker, so the next row begins with a new byte.
    let file = file(|encoder| {
        encoder.set_restart_interval(9);
    });
    let indexed = index(&file);
    let head = IndexHead::read(&indexed).unwrap();
    assert_eq!(indexed[head.file()], file);
    assert_eq!((head.facts.mcus, head.facts.file as usize), ((9, 5), file.len()));
    assert_eq!(file[head.facts.end as usize..], [0xFF, 0xD9]);
    for row in 0..5 {
        let (entry, part) = head.row(row).unwrap();
        assert_eq!((entry.skip, entry.dc, entry.byte as usize), (0, [0; 3], part.start));
        let before = &file[part.start - 2..part.start];
        assert!(row == 0 || before == [0xFF, 0xCF + row as u8], "{before:?}");
    }
    assert!(head.row(5).is_none());
}

#[test]
fn a_row_goes_on_from_the_bits_and_coefficients_before_it() {
    let file = file(|_| {});
    let indexed = index(&file);
    let head = IndexHead::read(&indexed).unwrap();
    let (mut before, mut at_bits, mut coefficients) = (0, 0, 0);
    for row in 0..5 {
        let (entry, part) = head.row(row).unwrap();
        assert!(before == 0 || part.start == before || part.start + 1 == before);
        assert!(part.start == 0 || file[part.start - 1..=part.start] != [0xFF, 0], "a stuffed zero");
        before = part.end;
        at_bits += usize::from(entry.skip > 0);
        coefficients += usize::from(entry.dc != [0; 3]);
    }
    assert_eq!(before, head.facts.end as usize);
    assert!(at_bits > 1 && coefficients == 4, "{at_bits} {coefficients}");
    assert_eq!(FileOffsets::new(&file, head.row(0).unwrap().1.start).of(usize::MAX), before);
}

/// If a row ends in the middle of an FF byte, the row also needs the stuffed zero after this byte.
#[test]
fn a_row_ends_with_the_zero_behind_an_ff() {
    let mut found = 0;
    for height in 1..150u16 {
        let pixels: Vec<u8> =
            (0..48 * u64::from(height)).map(|at| (at * at * u64::from(height) / 7 % 251) as u8).collect();
        let mut file = Vec::new();
        Encoder::new(&mut file, 95).encode(&pixels, 48, height, ColorType::Luma).unwrap();
        let indexed = index(&file);
        let head = IndexHead::read(&indexed).unwrap();
        for row in 1..head.facts.mcus.1 {
            let (entry, _) = head.row(row).unwrap();
            if entry.skip == 0 || file[entry.byte as usize] != 0xFF {
                continue;
            }
            found += 1;
            let above = |_, _| Region { x: 0, y: 8 * row - 8, width: 48, height: 8 };
            let mut planes = Planes::default();
            let decoded = Decoder::new(1_000_000).decode(&indexed, above, &mut planes).unwrap();
            assert_eq!(decoded.backend, Backend::Indexed, "height {height}, row {row}");
        }
    }
    assert!(found > 2, "{found}");
}

#[test]
fn an_index_that_leads_nowhere_is_not_used() {
    let indexed = index(&file(|_| {}));
    let (expected, backend) = decode(&indexed);
    assert_eq!(backend, Backend::Indexed);
    let check = |what: &str, change: &dyn Fn(&mut IndexedFile, &mut Vec<EntryPoint>)| {
        let (planes, backend) = decode(&changed(&indexed, change));
        assert_eq!(backend, Backend::Region, "{what}");
        assert!(planes.same_samples(&expected), "{what}");
    };
    check("behind the file", &|_, entries| entries[2].byte = u32::MAX);
    check("behind the next row", &|_, entries| entries[2].byte = entries[3].byte + 1);
    check("no data", &|facts, entries| entries.iter_mut().for_each(|entry| entry.byte = facts.end));
    check("coefficients out of range", &|_, entries| entries[2].dc = [i16::MAX; 3]);
    check("another number of columns", &|facts, _| facts.mcus.0 = 8);
    check("another number of rows", &|facts, entries| {
        facts.mcus.1 = 6;
        entries.push(entries[0]);
    });
}

#[test]
fn a_damaged_head_is_an_error() {
    let indexed = index(&file(|_| {}));
    let mut planes = Planes::default();
    let mut whole = |bytes: &[u8]| {
        let region = |width, height| Region { x: 0, y: 0, width, height };
        Decoder::new(1_000_000).decode(bytes, region, &mut planes)
    };
    let head = indexed.len() - original_length(&indexed).unwrap() as usize;
    for at in 0..head {
        let mut damaged = indexed.clone();
        damaged[at] ^= 4;
        assert!(whole(&damaged).is_err() && original_length(&damaged).is_err(), "byte {at}");
    }
    for length in [0, 7, 8, 27, head - 1, head, indexed.len() - 1] {
        assert!(whole(&indexed[..length]).is_err(), "{length} bytes");
    }
    let error = whole(&[&indexed[..], &[0]].concat()).unwrap_err().to_string();
    assert!(error.contains("its head says"), "{error}");
}

#[test]
fn other_kinds_and_damaged_files_have_no_index() {
    let mut indexer = Indexer::default();
    let mut refused = |file: &[u8]| {
        let mut out = vec![1, 2, 3];
        let kept = indexer.index(file, &mut out).unwrap_err();
        assert!(out.is_empty());
        kept
    };
    assert_eq!(refused(b"\x89PNG\r\n\x1a\n"), KeepReason::NotJpeg);
    assert_eq!(refused(&index(&file(|_| {}))), KeepReason::NotJpeg);
    assert_eq!(refused(&file(|encoder| encoder.set_progressive(true))), KeepReason::Kind);
    // With this setting the encoder codes each component in its own scan.
    assert_eq!(refused(&file(|encoder| encoder.set_optimized_huffman_tables(true))), KeepReason::Kind);
    let sound = file(|_| {});
    assert_eq!(refused(&sound[..sound.len() - 2]), KeepReason::Damaged);
    let mut damaged = sound.clone();
    let middle = sound.len() - 1000;
    damaged[middle..middle + 8].copy_from_slice(&[0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0]);
    assert_eq!(refused(&damaged), KeepReason::Damaged);
}
