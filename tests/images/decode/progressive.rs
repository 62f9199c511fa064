//! Progressive files of every kind of scan script against libjpeg, whatever the region, restart interval and level.

use foreload::DecodeError;
use foreload::testing::simd::Level;
use jpeg_encoder::ColorType;

use super::images::{Kind, stream};
use super::libjpeg::{self, Scan};
use super::region::{any_region, assert_decodes, assert_equal};
use super::scripts::{file, script};
use super::{decode, whole};

#[test]
fn planes_are_those_of_libjpeg() {
    for number in 0..300 {
        let mut stream = stream(6000 + number);
        let (bytes, what) = file(&mut stream);
        let reference = libjpeg::planes(&bytes).unwrap();
        assert_eq!(reference.warnings, 0, "{what}");
        assert_decodes(&bytes, &reference, &mut stream, 5, &format!("image {number}, {what}"));
    }
}

#[test]
fn what_the_last_scans_would_say_is_not_guessed() {
    let mut incomplete = 0;
    for number in 0..150 {
        let mut stream = stream(6500 + number);
        let mut kind = Kind::baseline(&mut stream);
        kind.progressive = true;
        let scans = script(&mut stream, kind.channels() as i32, true);
        let bytes = kind.encode_by_libjpeg(&kind.pixels(&mut stream), &scans);
        let reference = libjpeg::planes(&bytes).unwrap();
        let choose = |width, height| any_region(&mut stream, width, height);
        let (planes, region, _) = decode(&bytes, Level::detect(), choose).unwrap();
        assert_equal(&planes, region, &reference, &format!("image {number}, {kind:?}, {scans:?}"));
        incomplete += usize::from(scans.iter().all(|scan| scan.band.1 < 63));
    }
    assert!(incomplete > 5, "{incomplete}");
}

/// The ranges of a file's scans, each from its marker to the next.
fn scans(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let marker = |at: usize| bytes[at] == 0xFF && !matches!(bytes[at + 1], 0 | 0xD0..=0xD7);
    let starts = (2..bytes.len() - 1).filter(|&at| bytes[at..].starts_with(&[0xFF, 0xDA]) && marker(at));
    starts.map(|start| start..(start + 2..).find(|&at| marker(at)).unwrap()).collect()
}

#[test]
fn scans_must_go_on_where_those_before_end() {
    let (mut refused, mut decoded) = (0, 0);
    for number in 0..60 {
        let mut stream = stream(6700 + number);
        let (bytes, what) = file(&mut stream);
        for scan in scans(&bytes) {
            let without = [&bytes[..scan.start], &bytes[scan.end..]].concat();
            let result = decode(&without, Level::detect(), whole);
            let clean = libjpeg::planes(&without).ok().filter(|reference| reference.warnings == 0);
            match (result, clean) {
                (Ok((planes, region, _)), Some(reference)) => {
                    assert_equal(&planes, region, &reference, &what);
                    decoded += 1;
                }
                // libjpeg treats components without a DC scan as gray, without a warning.
                (Err(error), _) => {
                    let message = error.to_string();
                    let named =
                        ["does not continue", "without a scan of component", "truncated", "near byte"];
                    assert!(named.iter().any(|words| message.contains(words)), "{what}: {message}");
                    refused += 1;
                }
                (Ok(_), None) => panic!("{what}: libjpeg warns"),
            }
            let twice = [&bytes[..scan.end], &bytes[scan.start..]].concat();
            let message = decode(&twice, Level::detect(), whole).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("does not continue"), "{what}: {message}");
        }
    }
    assert!(refused > 50 && decoded > 50, "{refused} refused, {decoded} decoded");
}

#[test]
fn the_number_of_scans_is_limited() {
    let mut stream = stream(6800);
    let mut kind = Kind::baseline(&mut stream);
    (kind.progressive, kind.color) = (true, ColorType::Luma);
    let pixels = kind.pixels(&mut stream);
    let scan = |first, last, bits| Scan { components: vec![0], band: (first, last), bits };
    let first: Vec<_> = (0..64).map(|k| scan(k, k, (0, 1))).collect();
    let mut refined = vec![scan(0, 0, (0, 1)), scan(1, 63, (0, 1))];
    refined.extend((1..63).map(|k| scan(k, k, (1, 0))));
    let (first, refined) =
        (kind.encode_by_libjpeg(&pixels, &first), kind.encode_by_libjpeg(&pixels, &refined));
    // The encoder writes at most 64 scans, so some scans of the second file, with their tables, are appended to the
    // first.
    let at = scans(&refined);
    let end = scans(&first).last().unwrap().end;
    let files = [100, 101].map(|count| {
        let more = &refined[at[1].end..at[count - 63].end];
        [&first[..end], more, &first[end..]].concat()
    });
    let [most, more] = files;
    assert_eq!((scans(&most).len(), scans(&more).len()), (100, 101));
    let (planes, region, _) = decode(&most, Level::detect(), whole).unwrap();
    assert_equal(&planes, region, &libjpeg::planes(&most).unwrap(), "100 scans");
    let error = decode(&more, Level::detect(), whole).map(|_| ()).unwrap_err();
    assert_eq!(error, DecodeError::Unsupported("JPEG of more than 100 scans".into()));
}
