//! A corpus of hostile and odd JPEGs from other decoders' test suites, if the checkout has it: each file gives
//! libjpeg's pixels or one clear error.

use std::collections::BTreeMap;
use std::path::PathBuf;

use foreload::DecodeError;
use foreload::testing::decode::Backend;
use foreload::testing::decode::forms::{ConvertedFormat, FileRestorer, FormatConverter, StorageFormat};
use foreload::testing::decode::packed::{Packer, Restorer};
use foreload::testing::simd::Level;

use super::conceal::{Tally, check};
use super::images::stream;
use super::odd_kinds::assert_is_libjpegs;
use super::region::any_region;
use super::{decode, libjpeg, whole};

/// The files of the corpus, sorted by name; `None` if the corpus is missing and not required.
fn files() -> Option<Vec<PathBuf>> {
    let shared = std::env::var_os("FORELOAD_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let mut files = Vec::new();
    for directory in ["jpeg-decoder", "zune-image"] {
        if let Ok(entries) = std::fs::read_dir(shared.join("jpegs").join(directory)) {
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    files.sort();
    if files.is_empty() {
        assert!(std::env::var_os("FORELOAD_REQUIRE_SHARED").is_none(), "no corpus in {}", shared.display());
        println!("skipped: no corpus in {}", shared.display());
        return None;
    }
    Some(files)
}

#[test]
fn every_damaged_file_gives_what_libjpeg_gives() {
    let Some(files) = files() else { return };
    let (mut tally, mut left) = (Tally::default(), 0);
    for (number, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).unwrap();
        // Damage before the first scan is not concealed. A file that is much too short for its image size is refused.
        let header = foreload::testing::decode::parse_header(&bytes);
        if header.as_ref().is_ok_and(|header| header.region_decodable) {
            check(&bytes, &mut stream(number as u64), &mut tally, &name);
        } else if libjpeg::pillow_decodes(&bytes) && decode(&bytes, Level::detect(), whole).is_err() {
            println!("{name}: {:?}", header.err());
            left += 1;
        }
    }
    println!("{tally:?}, {left} are not concealed");
    assert!(tally.concealed >= 10 && left <= 40, "{tally:?}, {left} are not concealed");
}

#[test]
fn every_file_gives_libjpegs_pixels_or_a_clear_error() {
    let Some(files) = files() else { return };
    let (mut equal, mut refused) = (0, 0);
    for (number, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).unwrap();
        let (planes, region, backend) = match decode(&bytes, Level::detect(), whole) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                println!("{name}: {error}");
                refused += 1;
                // Files that libjpeg decodes without a warning must be decoded, unless they are of an unsupported kind.
                let clean = libjpeg::planes(&bytes).is_ok_and(|reference| reference.warnings == 0);
                if clean && !matches!(error, DecodeError::Unsupported(_)) {
                    println!("    although libjpeg finds nothing wrong");
                }
                continue;
            }
        };
        if backend != Backend::Region {
            println!("{name}: {backend:?}");
            continue;
        }
        let reference =
            libjpeg::planes(&bytes).unwrap_or_else(|code| panic!("{name}: libjpeg fails with {code}"));
        assert_is_libjpegs(&planes, region, &bytes, &reference, &name);
        let mut stream = stream(number as u64);
        for _ in 0..3 {
            let choose = |width, height| any_region(&mut stream, width, height);
            let (planes, region, _) = decode(&bytes, Level::detect(), choose).unwrap();
            assert_is_libjpegs(&planes, region, &bytes, &reference, &name);
        }
        equal += 1;
    }
    println!("{equal} decoded, {refused} refused");
    assert!(equal >= 40, "{equal} decoded, {refused} refused");
}

#[test]
fn every_file_is_packed_so_that_nothing_changes_or_kept() {
    let Some(files) = files() else { return };
    let (mut packer, mut restorer) = (Packer::new(), Restorer::new());
    let (mut packed, mut restored) = (Vec::new(), Vec::new());
    let (mut count, mut kept) = (0, BTreeMap::<_, u32>::new());
    for (number, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).unwrap();
        if let Err(reason) = packer.pack(&bytes, &mut packed) {
            *kept.entry(format!("{reason:?}")).or_default() += 1;
            continue;
        }
        count += 1;
        restorer.restore(&packed, &mut restored).unwrap();
        assert!(restored == bytes, "{name}");
        for level in Level::available() {
            let region = || {
                let mut stream = stream(number as u64);
                move |width, height| any_region(&mut stream, width, height)
            };
            let (expected, ..) = decode(&bytes, level, region()).unwrap();
            let (planes, _, backend) = decode(&packed, level, region()).unwrap();
            assert_eq!(backend, Backend::Packed, "{name}");
            assert!(planes.same_samples(&expected), "{name}");
        }
    }
    println!("{count} are packed; kept: {kept:?}");
    assert!(count >= 60, "{count}");
}

#[test]
fn every_file_is_indexed_so_that_nothing_changes_or_kept() {
    let Some(files) = files() else { return };
    let (mut maker, mut restorer, mut indexed) =
        (FormatConverter::default(), FileRestorer::default(), Vec::new());
    let (mut count, mut errors, mut kept) = (0, 0, BTreeMap::<_, u32>::new());
    for (number, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(path).unwrap();
        if let Err(reason) = maker.make(ConvertedFormat::Indexed, &bytes, &mut indexed) {
            *kept.entry(format!("{reason:?}")).or_default() += 1;
            continue;
        }
        count += 1;
        assert!(restorer.restore(StorageFormat::Indexed, &indexed).unwrap() == bytes, "{name}");
        for level in Level::available() {
            let mut stream = stream(number as u64);
            for _ in 0..4 {
                let mut drawn = None;
                let choose = |width, height| *drawn.insert(any_region(&mut stream, width, height));
                let expected = decode(&bytes, level, choose);
                let Some(region) = drawn else { panic!("{name} has an index, but no size") };
                match (expected, decode(&indexed, level, |_, _| region)) {
                    (Ok((expected, ..)), Ok((planes, _, backend))) => {
                        assert_eq!(backend, Backend::Indexed, "{name}");
                        assert!(planes.same_samples(&expected), "{name}, {region:?}");
                    }
                    (Err(expected), Err(error)) => {
                        assert_eq!(error.to_string(), expected.to_string(), "{name}");
                        errors += 1;
                    }
                    (expected, found) => panic!("{name}: {} and {}", expected.is_ok(), found.is_ok()),
                }
            }
        }
    }
    println!("{count} are indexed, {errors} regions are errors; kept: {kept:?}");
    assert!(count >= 40, "{count}");
}
