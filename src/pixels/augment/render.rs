//! The pass over one image: resizes planes, converts colours, normalises, casts and stores.
//!
//! Columns are resized before rows. Source rows go through the horizontal resize into a ring buffer. An output row is
//! finished as soon as the ring buffer has the resized rows that it needs, so only a few rows are in memory at a time.
//! An output row is summed, converted and normalised in registers, block by block. For element types other than float32
//! and for NHWC, the result is cast from a row of floats.
//!
//! One family of integer kernels (`kernels/`) serves all filters. The weights (`taps.rs`) are those of PIL's
//! antialiased bilinear, bicubic and Lanczos filters, or a single weight for the nearest pixel, as torch chooses it.
//! Padding is a map of indices in the tables of weights; only a constant fill is written afterwards.
//!
//! - `exact` resizes upsampled, converted and clamped RGB, and rounds where PIL rounds.
//! - `fast` resizes the decoded planes at their own resolution with a finer intermediate, and converts colours at
//!   output size.
//!
//! Filters with negative weights overshoot. Their results are clamped between the two passes, as in PIL. Separately
//! compiled kernels do the clamping, so other filters are not slower. Images of 256 KiB and more are written past the
//! caches, because a batch of such images does not fit the caches. Then no cache line is read from memory only to be
//! overwritten. Images that are mixed in the batch stay in the caches. All SIMD levels give the same bits; the tests
//! compare them.

use super::kernels::{self, Colour, ColumnTaps, Finish, ResizedRows, RowTaps};
use super::turned::SourceRows;
use super::upsample::{PADDING, Upsampler};
use super::{Fidelity, Output, View};
use crate::decode::{ColorModel, Plane, Planes, Region, Upsampling};
use base::simd::Level;

/// The maximum number of bits after the binary point of a column's weight. Sums of up to 255 · 2^20 leave headroom in
/// 32 bits.
const COLUMN_BITS: u32 = 20;
/// The maximum number of bits after the binary point of a row's weight. It is lower than for columns, because the rows
/// of the `fast` pass have up to 15 bits themselves.
const ROW_BITS: u32 = 15;

/// Resizes, converts and stores images. An augmenter owns tables of weights and scratch memory, so each thread has its
/// own augmenter.
#[derive(Debug)]
pub struct Augmenter {
    output: Output,
    level: Level,
    finish: Finish,
    /// The filters of each component. Components with the same upsampling use the filters of the first such component.
    filters: [Filters; 3],
    sources: [SourceRows; 3],
    rings: [RowBuffer; 3],
    values: Vec<u8>,
    upsamplers: [Upsampler; 3],
    pixels: [[Vec<u8>; 3]; 2],
}

#[derive(Debug, Default)]
struct Filters {
    columns: ColumnTaps,
    rows: RowTaps,
    /// The upsampling (across, down) for which the filters were built; `None` if they were not built for this image.
    sampling: Option<(Upsampling, Upsampling)>,
}

/// A ring buffer of horizontally resized rows. Each word holds the values of two rows in one column.
#[derive(Debug, Default)]
struct RowBuffer {
    words: Vec<i32>,
    capacity: usize,
    made: usize,
}

impl Augmenter {
    /// Makes an augmenter that writes `output` with the instructions of `level`, or of the best level below it that
    /// this processor supports.
    pub fn new(output: Output, level: Level) -> Self {
        Self {
            finish: Finish::new(&output),
            output,
            level: level.lowered(),
            filters: Default::default(),
            sources: Default::default(),
            rings: Default::default(),
            values: Default::default(),
            upsamplers: Default::default(),
            pixels: Default::default(),
        }
    }

    /// Sets whether images stay in the caches because they are read again soon. Otherwise large images are written past
    /// the caches.
    pub(super) fn keep_in_caches(&mut self, kept: bool) {
        self.finish.streamed = !kept;
    }

    pub(super) fn output(&self) -> &Output {
        &self.output
    }

    pub(super) fn set_size(&mut self, height: u32, width: u32) {
        if (self.output.height, self.output.width) != (height, width) {
            (self.output.height, self.output.width) = (height, width);
            let streamed = self.finish.streamed;
            self.finish = Finish::new(&self.output);
            self.finish.streamed = streamed;
        }
    }

    /// Normalises, casts and stores an image whose grey levels at output size are given: `levels` has the planes of R,
    /// G and B. The result has the same format as that of [`Augmenter::render`].
    ///
    /// # Panics
    /// If `out` or `levels` have another size.
    pub(super) fn store(&mut self, levels: &[u8], out: &mut [u8]) {
        let pixels = self.output.width as usize * self.output.height as usize;
        assert_eq!(out.len(), self.output.bytes(), "the output buffer has the size of one image");
        assert_eq!(levels.len(), 3 * pixels, "three planes of one level for each pixel");
        let planes = [0, 1, 2].map(|c| &levels[c * pixels..][..pixels]);
        kernels::store(self.level, planes, &self.finish, out);
        self.fence_if_streamed(out);
    }

    /// Writes the view of `planes` to `out` (exactly [`Output::bytes`] bytes, of any alignment). Every byte is
    /// written.
    ///
    /// # Panics
    /// If `out` has another size, or `planes` do not hold [`View::region`] as [`Planes`] promises.
    pub fn render(&mut self, planes: &Planes, view: &View, out: &mut [u8]) {
        self.render_turned(planes, view, false, out);
    }

    /// Renders like [`Augmenter::render`]. If `transposed`, the columns of `planes` are the rows of the image; such
    /// planes are not Y, Cb and Cr in the `exact` pass.
    pub(super) fn render_turned(&mut self, planes: &Planes, view: &View, transposed: bool, out: &mut [u8]) {
        assert_eq!(out.len(), self.output.bytes(), "the output buffer has the size of one image");
        let (width, height) = (self.output.width as usize, self.output.height as usize);
        let (shown_x, shown_y) = (view.columns(&self.output).shown(), view.rows(&self.output).shown());
        let columns = if view.flip {
            width - shown_x.end as usize..width - shown_x.start as usize
        } else {
            shown_x.start as usize..shown_x.end as usize
        };
        let mut rows = shown_y.start as usize..shown_y.end as usize;
        if !columns.is_empty() && !rows.is_empty() {
            let exact = self.output.fidelity == Fidelity::Exact;
            match planes.color {
                ColorModel::YCbCr if exact => self.render_converted(planes, view, rows.clone(), out),
                _ => self.render_planes((planes, transposed), view, rows.clone(), out),
            }
        }
        if view.vertical_flip {
            rows = height - rows.end..height - rows.start;
        }
        // The kernels write to padding pixels as well, and the fill overwrites them: padding is rare and small.
        let finish = &self.finish;
        kernels::fill(finish, 0..rows.start, 0..width, out);
        kernels::fill(finish, rows.end..height, 0..width, out);
        kernels::fill(finish, rows.clone(), 0..columns.start, out);
        kernels::fill(finish, rows, columns.end..width, out);
        self.fence_if_streamed(out);
    }

    /// Makes stores past the caches visible to the thread that receives the image.
    fn fence_if_streamed(&self, out: &[u8]) {
        if self.finish.streams(out) {
            kernels::fence(self.level);
        }
    }

    /// Resizes each plane at its own resolution.
    fn render_planes(
        &mut self,
        (planes, transposed): (&Planes, bool),
        view: &View,
        rows: std::ops::Range<usize>,
        out: &mut [u8],
    ) {
        let fraction = match self.output.fidelity {
            Fidelity::Fast => kernels::FRACTION,
            Fidelity::Exact => 0,
        };
        let (colour, count) = match planes.color {
            ColorModel::Gray => (Colour::Rgb(fraction), 1),
            ColorModel::YCbCr => (Colour::YCbCr, 3),
            ColorModel::Rgb => (Colour::Rgb(fraction), 3),
        };
        self.finish.colour = colour;
        let mut of = [0; 3];
        for (c, plane) in planes.planes[..count].iter().enumerate() {
            let sampling = self.sources[c].begin(plane, transposed);
            of[c] = (0..c).find(|&b| self.filters[b].sampling == Some(sampling)).unwrap_or(c);
            self.filters[c].sampling = None;
            if of[c] == c {
                self.filters[c].build(self.level, &self.output, view, sampling);
            }
            let filters = &self.filters[of[c]];
            let (across, down) = (&filters.columns.taps.sample_range, &filters.rows.taps.sample_range);
            let (columns, rows) = if transposed { (down, across) } else { (across, down) };
            assert_holds(plane, columns.clone(), rows.clone());
            self.rings[c].start(filters.rows.depth, filters.columns.width());
        }
        for row in rows {
            for (c, plane) in planes.planes[..count].iter().enumerate() {
                let filters = &self.filters[of[c]];
                let taps = (&filters.columns.taps, &filters.rows.taps);
                let shift = taps.0.bits - fraction;
                let (skip, start) = (taps.0.sample_range.start, taps.1.sample_range.start);
                let last = taps.1.sample_range.end - 1;
                while self.rings[c].made < filters.rows.needed(row) {
                    let first = start + 2 * self.rings[c].made as u32;
                    let pair = (start, [first, (first + 1).min(last)]);
                    let sources = self.sources[c].pair(self.level, plane, pair, skip);
                    let to = self.rings[c].next();
                    kernels::resize_columns(self.level, sources, &filters.columns, shift, to);
                }
            }
            let sources = [0, 1, 2].map(|c| {
                let c = if c < count { c } else { 0 };
                self.rings[c].source(&self.filters[of[c]], row)
            });
            let to = if view.vertical_flip { self.output.height as usize - 1 - row } else { row };
            kernels::finish_row(self.level, sources, &self.finish, to, &mut self.values, out);
        }
    }

    /// Upsamples and converts at source resolution, then resizes R, G and B.
    fn render_converted(
        &mut self,
        planes: &Planes,
        view: &View,
        rows: std::ops::Range<usize>,
        out: &mut [u8],
    ) {
        self.finish.colour = Colour::Rgb(0);
        let sampling = (Upsampling::None, Upsampling::None);
        self.filters[0].build(self.level, &self.output, view, sampling);
        let filters = &self.filters[0];
        let (across, down) =
            (filters.columns.taps.sample_range.clone(), filters.rows.taps.sample_range.clone());
        let region =
            Region { x: across.start, y: down.start, width: across.len() as u32, height: down.len() as u32 };
        for plane in &planes.planes {
            assert_covers(plane, &region);
        }
        for ring in &mut self.rings {
            ring.start(filters.rows.depth, filters.columns.width());
        }
        let padded = (region.width as usize).next_multiple_of(PADDING);
        for row in self.pixels.iter_mut().flatten() {
            row.resize(row.len().max(padded + PADDING), 0);
        }
        let shift = filters.columns.taps.bits;
        for row in rows {
            while self.rings[0].made < filters.rows.needed(row) {
                let first = region.y + 2 * self.rings[0].made as u32;
                for (y, pixels) in (first..down.end).zip(&mut self.pixels) {
                    let mut component = self.upsamplers.iter_mut().zip(&planes.planes);
                    let mut next = || {
                        let (upsampler, plane) = component.next().expect("three components");
                        upsampler.row(self.level, plane, &region, y)
                    };
                    let from = [next(), next(), next()];
                    kernels::convert(self.level, from, pixels.each_mut().map(|p| &mut p[..padded]));
                }
                for (c, ring) in self.rings.iter_mut().enumerate() {
                    let sources = [0, 1].map(|r| &self.pixels[r][c][..]);
                    kernels::resize_columns(self.level, sources, &filters.columns, shift, ring.next());
                }
            }
            let sources = [0, 1, 2].map(|c| self.rings[c].source(filters, row));
            let to = if view.vertical_flip { self.output.height as usize - 1 - row } else { row };
            kernels::finish_row(self.level, sources, &self.finish, to, &mut self.values, out);
        }
    }
}

impl Filters {
    fn build(&mut self, level: Level, output: &Output, view: &View, sampling: (Upsampling, Upsampling)) {
        let (across, down) = sampling;
        self.columns.build(level, &view.columns(output), across, COLUMN_BITS);
        self.rows.taps.build(level, &view.rows(output), down, ROW_BITS);
        self.rows.lay_out();
        self.sampling = Some(sampling);
    }
}

impl RowBuffer {
    fn start(&mut self, depth: usize, width: usize) {
        self.capacity = depth.next_power_of_two();
        self.words.resize(self.capacity * width, 0);
        self.made = 0;
    }

    fn next(&mut self) -> &mut [i32] {
        let width = self.words.len() / self.capacity;
        let slot = self.made & (self.capacity - 1);
        self.made += 1;
        &mut self.words[slot * width..][..width]
    }

    /// Returns the horizontally resized rows from which output row `row` is computed. `row` is the index before a
    /// vertical flip.
    fn source<'a>(&'a self, filters: &'a Filters, row: usize) -> ResizedRows<'a> {
        ResizedRows {
            ring: &self.words,
            capacity: self.capacity,
            stride: self.words.len() / self.capacity,
            rows: &filters.rows,
            row,
        }
    }
}

/// Panics unless `plane` stores these columns and rows, and the bytes after them that vectors may read.
fn assert_holds(plane: &Plane, columns: std::ops::Range<u32>, rows: std::ops::Range<u32>) {
    let inside = plane.x0 <= columns.start
        && columns.end <= plane.x0 + plane.width
        && plane.y0 <= rows.start
        && rows.end <= plane.y0 + plane.height
        && plane.width as usize <= plane.stride
        && (plane.height as usize - 1) * plane.stride + plane.width as usize + PADDING <= plane.data.len();
    assert!(
        inside,
        "a plane of {}×{} samples at ({}, {}) must contain columns {columns:?} and rows {rows:?}",
        plane.width, plane.height, plane.x0, plane.y0
    );
}

/// Panics unless `plane` stores the samples from which the pixels of `region` are upsampled.
fn assert_covers(plane: &Plane, region: &Region) {
    let span = |start: u32, length: u32, method: Upsampling| match method {
        Upsampling::None => start..start + length,
        Upsampling::Repeat(step) => start / step..(start + length - 1) / step + 1,
        Upsampling::Linear { samples } => {
            (start / 2).saturating_sub(1)..((start + length - 1) / 2 + 2).min(samples)
        }
    };
    let (across, down) = plane.upsampling();
    assert_holds(plane, span(region.x, region.width, across), span(region.y, region.height, down));
}
