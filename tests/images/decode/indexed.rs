//! Indexed JPEGs: each decodes like the file that it contains.

use foreload::testing::decode::Backend;
use foreload::testing::decode::forms::{
    ConvertedFormat, FileRestorer, FormatConverter, KeepReason, StorageFormat,
};
use foreload::testing::simd::Level;

use super::decode;
use super::images::{Kind, stream};
use super::region::any_region;

#[test]
fn regions_are_those_of_the_jpeg_at_every_level() {
    let (mut maker, mut restorer, mut indexed, mut count) =
        (FormatConverter::default(), FileRestorer::default(), Vec::new(), 0);
    for number in 0..400 {
        let mut stream = stream(number);
        let kind = Kind::baseline(&mut stream);
        let file = kind.encode(&mut stream);
        let what = format!("image {number}, {kind:?}");
        match maker.make(ConvertedFormat::Indexed, &file, &mut indexed) {
            Ok(()) => count += 1,
            Err(reason) => {
                assert!(reason == KeepReason::Kind && !kind.one_scan, "{what}: {reason:?}");
                continue;
            }
        }
        assert!(restorer.restore(StorageFormat::Indexed, &indexed).unwrap() == file, "{what}");
        for _ in 0..4 {
            let mut region = None;
            let choose = |width, height| *region.insert(any_region(&mut stream, width, height));
            let (expected, ..) = decode(&file, Level::detect(), choose).unwrap();
            for level in Level::available() {
                let (planes, _, backend) = decode(&indexed, level, |_, _| region.unwrap()).unwrap();
                assert_eq!(backend, Backend::Indexed, "{what}");
                assert!(planes.same_samples(&expected), "{what}, {}, {region:?}", level.name());
            }
        }
    }
    assert!(count > 200, "{count}");
}
