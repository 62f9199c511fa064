//! `foreload show`: the contact sheet, as a file.

use super::{Workshop, code, foreload, stderr};

const LIST: &str = r#"[{"RandomResizedCrop": {"size": 64}}, {"RandomHorizontalFlip": {"p": 1.0}}, {"Grayscale": {}},
    {"ToDtype": {"dtype": "float16"}}, {"Normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}}]"#;

/// The width, height and levels of a PNG.
fn read(path: &str) -> (u32, u32, Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut levels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut levels).unwrap();
    (info.width, info.height, levels)
}

#[test]
fn a_sheet_shows_each_sample_whole_and_as_the_network_sees_it() {
    let workshop = Workshop::new();
    workshop.images("data", "folder", 12, 12);
    let data = workshop.path("data").display().to_string();
    let out = workshop.path("sheet.png").display().to_string();
    let draw = |more: &[&str]| {
        let words = [&["show", &data, "--out", &out, "--transforms", LIST], more].concat();
        let output = foreload(&words);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        read(&out)
    };
    let (width, height, levels) = draw(&["--samples", "3,7"]);
    // The view is grey, and comes after the whole image, which is not grey.
    let pixel = |x: u32, y: u32| <[u8; 3]>::try_from(&levels[3 * (y * width + x) as usize..][..3]).unwrap();
    let colours = |columns: std::ops::Range<u32>| {
        let all = columns.flat_map(|x| (8..72).map(move |y| pixel(x, y)));
        all.filter(|[r, g, b]| r != g || g != b).count()
    };
    let second = width - 8 - 160;
    assert!(colours(8..72) > 500 && colours(second..second + 64) == 0);
    // One epoch draws the same each time; a second epoch adds other draws next to these.
    assert_eq!(draw(&["--samples", "3,7"]).2, levels);
    let (both, same, _) = draw(&["--samples", "3,7", "--epochs", "2"]);
    assert_eq!((both, same), (width + 168, height));
    let (_, taller, _) = draw(&["--rows", "5"]);
    assert!(taller > 2 * height);
}

#[test]
fn what_makes_no_sheet_is_said() {
    let workshop = Workshop::new();
    workshop.images("data", "folder", 4, 4);
    let data = workshop.path("data").display().to_string();
    let refused = |more: &[&str]| {
        let output = foreload(&[&["show", &data], more].concat());
        assert_eq!(code(&output), 2);
        stderr(&output)
    };
    assert!(refused(&["--samples", "4"]).contains("sample_id: is 4, but the dataset has 4"));
    assert!(
        refused(&["--epochs", "1000"])
            .contains("rows: asks for 4 samples with 1 views in each of 1000 epochs")
    );
    assert!(refused(&["--out", "a.jpg"]).contains("out: is a.jpg, but a sheet is a PNG: name it a.png"));
    assert!(
        refused(&["--recipe", "simclr"]).contains("recipe: is \"simclr\", but only the foreload command of")
    );
}
