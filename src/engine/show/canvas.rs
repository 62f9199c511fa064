//! Draws rows of pictures with text below each, as a PNG.

use crate::pipeline::PreviewImage;
use base::error::{Error, Result};
use font8x8::UnicodeFonts;

/// The width and the height of a character in pixels.
const CHARACTER: u32 = 8;
/// The distance between lines of text in pixels.
const LINE: u32 = 10;
const GAP: u32 = 8;
/// Minimum width of a column in pixels, which leaves space for text.
const NARROWEST: u32 = 160;
const INK: u8 = 30;
const PAPER: u8 = 255;

#[derive(Default)]
pub(super) struct Canvas {
    rows: Vec<Vec<SheetCell>>,
}

struct SheetCell {
    picture: PreviewImage,
    lines: Vec<String>,
}

impl SheetCell {
    fn width(&self) -> u32 {
        self.picture.width.max(NARROWEST)
    }

    fn height(&self) -> u32 {
        self.picture.height + GAP / 2 + LINE * self.lines.len() as u32
    }
}

impl Canvas {
    pub(super) fn add_row(&mut self, row: Vec<(PreviewImage, Vec<String>)>) {
        let cell = |(picture, texts): (PreviewImage, Vec<String>)| {
            let room = (picture.width.max(NARROWEST) / CHARACTER) as usize;
            let lines = texts.iter().flat_map(|text| broken(text, room)).collect();
            SheetCell { picture, lines }
        };
        self.rows.push(row.into_iter().map(cell).collect());
    }

    pub(super) fn png(&self) -> Result<Vec<u8>> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(SheetCell::width).max();
        let widths: Vec<u32> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
        let heights: Vec<u32> =
            self.rows.iter().map(|row| row.iter().map(SheetCell::height).max().unwrap_or(0)).collect();
        let all = |lengths: &[u32]| lengths.iter().map(|length| length + GAP).sum::<u32>() + GAP;
        let mut page = SheetPage::new(all(&widths), all(&heights));
        let mut top = GAP;
        for (row, height) in self.rows.iter().zip(&heights) {
            let mut left = GAP;
            for (cell, width) in row.iter().zip(&widths) {
                page.put(&cell.picture, left, top);
                let text = top + cell.picture.height + GAP / 2;
                for (line, y) in cell.lines.iter().zip((text..).step_by(LINE as usize)) {
                    page.write(line, left, y);
                }
                left += width + GAP;
            }
            top += height + GAP;
        }
        page.png()
    }
}

fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + 1 + word.len() <= room {
            line.push(' ');
        } else if !line.is_empty() {
            lines.push(String::new());
        }
        while word.len() > room {
            let rest = word.split_off(room);
            lines.last_mut().expect("there is one").extend(word);
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("there is one").extend(word);
    }
    lines
}

struct SheetPage {
    width: u32,
    height: u32,
    levels: Vec<u8>,
}

impl SheetPage {
    fn new(width: u32, height: u32) -> Self {
        Self { width, height, levels: vec![PAPER; 3 * width as usize * height as usize] }
    }

    fn put(&mut self, picture: &PreviewImage, left: u32, top: u32) {
        let bytes = 3 * picture.width as usize;
        for (y, row) in (top..).zip(picture.levels.chunks_exact(bytes.max(1))) {
            let at = 3 * (y as usize * self.width as usize + left as usize);
            self.levels[at..at + bytes].copy_from_slice(row);
        }
    }

    /// Writes a line, which must fit. Characters that the font lacks become question marks.
    fn write(&mut self, line: &str, left: u32, top: u32) {
        let glyph = |c| font8x8::BASIC_FONTS.get(c).or_else(|| font8x8::LATIN_FONTS.get(c));
        for (number, c) in line.chars().enumerate() {
            let rows = glyph(c).or_else(|| glyph('?')).unwrap_or_default();
            for (y, row) in (top..).zip(rows) {
                for x in (0..CHARACTER).filter(|x| row >> x & 1 == 1) {
                    let x = left as usize + number * CHARACTER as usize + x as usize;
                    let at = 3 * (y as usize * self.width as usize + x);
                    self.levels[at..at + 3].fill(INK);
                }
            }
        }
    }

    fn png(&self) -> Result<Vec<u8>> {
        let failed = |error: png::EncodingError| Error::Internal(format!("encoding a PNG: {error}"));
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.levels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_only_then_within_them() {
        assert_eq!(broken("brightness 1.2", 20), ["brightness 1.2"]);
        assert_eq!(broken("brightness 1.2", 10), ["brightness", "1.2"]);
        assert_eq!(broken("a/very/long/path of it", 8), ["a/very/l", "ong/path", "of it"]);
        assert_eq!(broken("", 8), [""]);
    }

    #[test]
    fn pictures_and_their_texts_stand_where_they_belong() {
        let picture = |width, height, level| PreviewImage {
            width,
            height,
            levels: vec![level; 3 * width as usize * height as usize],
        };
        let mut canvas = Canvas::default();
        canvas.add_row(vec![(picture(20, 10, 7), vec!["I".into()]), (picture(30, 5, 9), Vec::new())]);
        let bytes = canvas.png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut levels = vec![0; reader.output_buffer_size().unwrap()];
        let page = reader.next_frame(&mut levels).unwrap();
        assert_eq!((page.width, page.height), (3 * GAP + 2 * NARROWEST, 2 * GAP + 10 + GAP / 2 + LINE));
        let at = |x: u32, y: u32| levels[3 * (y * page.width + x) as usize];
        assert_eq!((at(GAP, GAP), at(GAP + 19, GAP + 9), at(GAP + 20, GAP)), (7, 7, PAPER));
        let second = 2 * GAP + NARROWEST;
        assert_eq!((at(second, GAP), at(second + 29, GAP + 4), at(second, GAP + 5)), (9, 9, PAPER));
        let text = GAP + 10 + GAP / 2;
        let inked = (0..CHARACTER).flat_map(|y| (0..CHARACTER).map(move |x| (x, y)));
        assert!(inked.filter(|(x, y)| at(GAP + x, text + y) == INK).count() > 8);
    }
}
