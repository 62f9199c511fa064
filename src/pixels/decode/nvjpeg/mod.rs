//! Decoding of JPEGs by the GPU: which of nvJPEG's backends serves an image, and where its planes will lie.
//!
//! The decoding engine comes first where the GPU has one, then CUDA kernels; what both refuse is left to the CPU.

mod batched;
mod decoder;
mod library;
mod memory;
mod phased;
mod specimen;
mod trial;

pub use decoder::ImageOutcome;
pub use decoder::{NvJpegDecoder, Verdict};
pub use library::Library;

use super::{ColorModel, JpegHeader, PlanesLayout, Process, Region};
use std::fmt::Write;
use std::sync::Arc;

/// One of nvJPEG's backends. The first that serves an image is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NvJpegBackend {
    /// The GPU's fixed-function engine: baseline files of one scan.
    Hardware,
    /// CUDA kernels that decode many images in one call, Huffman codes included: whole baseline files of one scan.
    CudaBatched,
    /// CUDA kernels that decode image by image, also progressive files. The CPU decodes the Huffman codes, except those
    /// of huge baseline images; see [`by_host`].
    Cuda,
}

impl NvJpegBackend {
    /// All backends, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Hardware, Self::CudaBatched, Self::Cuda];

    /// The name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::CudaBatched => "cuda_batched",
            Self::Cuda => "cuda",
        }
    }

    /// The fewest images, colour or gray, that are given to the backend in a call. [`NvJpegBackend::CudaBatched`] gets
    /// that many of a kind or none, unless no other backend may decode them: it leaves the Huffman codes of fewer
    /// images to one core of the CPU. (Comment on `NVJPEG_BACKEND_GPU_HYBRID` in nvjpeg.h: "bigger than 50"; with
    /// nvJPEG 13.0 on an H200 there was no such step.)
    pub const fn least_of_call(self) -> usize {
        match self {
            Self::CudaBatched => 51,
            Self::Hardware | Self::Cuda => 1,
        }
    }

    /// Whether this many images, all colour or all gray, may be given to the backend in a call.
    pub const fn takes_call_of(self, images: usize) -> bool {
        images >= self.least_of_call()
    }

    /// The most images, colour or gray, that are given to the backend in a call; more are divided evenly. The engine's
    /// calls keep the host busy while they last. Three threads that do nothing else have of an H200 (nvJPEG 13.0,
    /// `rates HARDWARE` in `benches/results/gpu-probe.jsonl`) 23 600 photographs/s in calls of 32, at 99 µs of CPU
    /// each; 24 600 in calls of 64, at 105; 14 300 in calls of 128, at 201; and 16 800 in calls of 256, at 177. What
    /// limit would be best for the kernels is not known.
    pub(super) const fn most_of_call(self) -> usize {
        match self {
            Self::Hardware => 64,
            Self::CudaBatched | Self::Cuda => usize::MAX,
        }
    }

    /// The most that the backend can be able to do.
    pub fn best(self) -> Ability {
        if self == Self::CudaBatched { Ability::Whole } else { Ability::Region }
    }
}

/// From this many pixels on, kernels decode the Huffman codes of one image faster than a core of the CPU (the threshold
/// of nvImageCodec and DALI, `hybrid_huffman_threshold`).
const HUGE: u64 = 1_000_000;

/// Whether [`NvJpegBackend::Cuda`] leaves an image's Huffman codes to the CPU. All codes of a file are decoded,
/// whatever region is wanted, and the kernels can only decode those of one scan.
pub fn by_host(header: &JpegHeader) -> bool {
    let pixels = u64::from(header.width) * u64::from(header.height);
    pixels <= HUGE || header.process != Process::Baseline || !header.interleaved
}

/// The chroma subsampling of an image, as far as a GPU decoder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsampling {
    /// 4:4:4, with as many chroma samples as pixels.
    S444,
    /// 4:2:2, with half the columns.
    S422,
    /// 4:2:0, with half the columns and half the rows.
    S420,
    /// 4:4:0, with half the rows.
    S440,
    /// No chroma.
    Gray,
}

impl Subsampling {
    /// All kinds of subsampling.
    pub const ALL: [Self; 5] = [Self::S444, Self::S422, Self::S420, Self::S440, Self::Gray];

    /// The subsampling of a file; `None` for any other kind.
    pub fn of(header: &JpegHeader) -> Option<Self> {
        match header.color()? {
            ColorModel::Gray => Some(Self::Gray),
            ColorModel::Rgb => None,
            ColorModel::YCbCr => {
                let steps = |index| header.sampling(index).map(|s| (s.step_x, s.step_y));
                match (steps(0)?, steps(1)?, steps(2)?) {
                    ((1, 1), (1, 1), (1, 1)) => Some(Self::S444),
                    ((1, 1), (2, 1), (2, 1)) => Some(Self::S422),
                    ((1, 1), (2, 2), (2, 2)) => Some(Self::S420),
                    ((1, 1), (1, 2), (1, 2)) => Some(Self::S440),
                    _ => None,
                }
            }
        }
    }

    /// The usual notation.
    pub fn name(self) -> &'static str {
        match self {
            Self::S444 => "4:4:4",
            Self::S422 => "4:2:2",
            Self::S420 => "4:2:0",
            Self::S440 => "4:4:0",
            Self::Gray => "gray",
        }
    }

    /// The image columns and rows that one chroma sample spans.
    pub fn steps(self) -> (u32, u32) {
        match self {
            Self::S444 | Self::Gray => (1, 1),
            Self::S422 => (2, 1),
            Self::S420 => (2, 2),
            Self::S440 => (1, 2),
        }
    }
}

/// What one backend can do with one kind of sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// It can do nothing; the next backend is tried.
    #[default]
    None,
    /// It can decode whole images.
    Whole,
    /// It can decode whole images, or a region of one.
    Region,
}

/// What a GPU and its nvJPEG can decode. [`Abilities::probe`] finds it out once; then it is shared freely.
#[derive(Debug, Clone, Default)]
pub struct Abilities {
    table: AbilityTable,
    /// The reasons why a backend cannot do more with a subsampling.
    notes: Arc<[[Option<String>; Subsampling::ALL.len()]; NvJpegBackend::ALL.len()]>,
    /// The number of decoding engines, and of the cores of each.
    engines: Option<(u32, u32)>,
    /// The first backend whose trial failed although it may succeed another time, and why.
    failed: Option<(NvJpegBackend, String)>,
}

/// What each backend can do with each subsampling: with images of any size, and with images whose chroma has no samples
/// that lie half outside.
#[derive(Debug, Clone, Copy, Default)]
struct AbilityTable([[(Ability, Ability); Subsampling::ALL.len()]; NvJpegBackend::ALL.len()]);

impl Abilities {
    /// Notes what `backend` can do with `sampling`.
    pub fn set(&mut self, backend: NvJpegBackend, sampling: Subsampling, ability: Ability) {
        self.table.0[backend as usize][sampling as usize] = (ability, ability);
    }

    /// Notes what `backend` can do with images whose size is a multiple of what a chroma sample spans.
    pub fn set_even(&mut self, backend: NvJpegBackend, sampling: Subsampling, ability: Ability) {
        self.table.0[backend as usize][sampling as usize].1 = ability;
    }

    /// Notes why `backend` cannot do more with `sampling`.
    fn note(&mut self, backend: NvJpegBackend, sampling: Subsampling, reason: Option<String>) {
        Arc::make_mut(&mut self.notes)[backend as usize][sampling as usize] = reason;
    }

    /// What `backend` can do with `sampling`, whatever the size.
    pub fn get(&self, backend: NvJpegBackend, sampling: Subsampling) -> Ability {
        self.table.0[backend as usize][sampling as usize].0
    }

    /// Whether `backend` decodes some kind of image.
    pub fn serves(&self, backend: NvJpegBackend) -> bool {
        let mut samplings = Subsampling::ALL.into_iter();
        samplings.any(|sampling| self.get_even(backend, sampling) != Ability::None)
    }

    /// What `backend` can do with `sampling` where chroma has no samples that lie half outside.
    pub fn get_even(&self, backend: NvJpegBackend, sampling: Subsampling) -> Ability {
        self.table.0[backend as usize][sampling as usize].1
    }

    /// The number of the GPU's decoding engines and of the cores of each, if nvJPEG says.
    pub fn engines(&self) -> Option<(u32, u32)> {
        self.engines
    }

    /// The backend whose trial failed for a reason that does not say what it can do, such as a lack of memory, and that
    /// reason.
    pub fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.failed.as_ref()
    }

    /// Describes in a line what a backend can do, and why it cannot do more.
    pub fn describe(&self, backend: NvJpegBackend) -> String {
        let mut text = String::new();
        for sampling in Subsampling::ALL {
            let (any, even) = (self.get(backend, sampling), self.get_even(backend, sampling));
            let what = |ability| match ability {
                Ability::None => "no",
                Ability::Whole => "whole images",
                Ability::Region => "regions",
            };
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{}: {}", sampling.name(), what(any));
            if even > any {
                let _ = write!(text, ", {} of even size", what(even));
            }
            if let Some(reason) = &self.notes[backend as usize][sampling as usize] {
                let _ = write!(text, " ({reason})");
            }
        }
        text
    }

    /// The backends that serve an image, in the order in which they are tried. The CPU decodes it if there are none.
    pub fn backends(&self, header: &JpegHeader) -> impl Iterator<Item = NvJpegBackend> + use<> {
        let (table, header) = (self.table, *header);
        NvJpegBackend::ALL.into_iter().filter(move |&backend| table.of(&header, backend) != Ability::None)
    }

    /// The layout of an image's planes if `backend` decodes at least `region` of it; `None` if it cannot.
    pub fn layout(
        &self,
        header: &JpegHeader,
        region: Region,
        backend: NvJpegBackend,
    ) -> Option<PlanesLayout> {
        match self.table.of(header, backend) {
            Ability::None => None,
            Ability::Whole => PlanesLayout::of(header, header.whole()),
            Ability::Region => PlanesLayout::of(header, region),
        }
    }
}

impl AbilityTable {
    fn of(&self, header: &JpegHeader, backend: NvJpegBackend) -> Ability {
        let known = match (header.process, backend) {
            // The engine and the batched kernels need files of one scan: they would have to see the others, too.
            (Process::Baseline, _) => header.interleaved || backend == NvJpegBackend::Cuda,
            (Process::Progressive, NvJpegBackend::Cuda) => true,
            _ => false,
        };
        match Subsampling::of(header) {
            Some(sampling) if known && header.precision == 8 => {
                let (step_x, step_y) = sampling.steps();
                let even = header.width.is_multiple_of(step_x) && header.height.is_multiple_of(step_y);
                let (any, of_even) = self.0[backend as usize][sampling as usize];
                if even { of_even } else { any }
            }
            _ => Ability::None,
        }
    }
}

/// The device memory that a plane of a [`PlaneLayout`](crate::decode::layout::PlaneLayout) is written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneTarget {
    /// The device address of the first stored sample.
    pub ptr: u64,
    /// The bytes from one row to the next, at least the stored width.
    pub stride: u32,
}

/// One image to decode.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The bytes of the file. nvJPEG's guide does not say whether it saves a copy if they are page-locked.
    pub bytes: &'a [u8],
    /// The headers, from [`super::parse_header`].
    pub header: &'a JpegHeader,
    /// The layout from [`Abilities::layout`] for the requested region and backend.
    pub layout: &'a PlanesLayout,
    /// The device memory for each plane of the layout.
    pub planes: [PlaneTarget; 3],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::header::JpegColorSpace;

    fn all(ability: Ability) -> Abilities {
        let mut abilities = Abilities::default();
        for backend in NvJpegBackend::ALL {
            for sampling in Subsampling::ALL {
                abilities.set(backend, sampling, ability);
            }
        }
        abilities
    }

    #[test]
    fn the_backends_of_an_image_go_by_its_header() {
        let abilities = all(Ability::Whole);
        let backends = |header: &JpegHeader| abilities.backends(header).collect::<Vec<_>>();
        let plain = JpegHeader::baseline([(2, 2), (1, 1), (1, 1), (0, 0)], 3);
        assert_eq!(backends(&plain), NvJpegBackend::ALL);
        assert_eq!(backends(&JpegHeader { interleaved: false, ..plain }), [NvJpegBackend::Cuda]);
        assert_eq!(backends(&JpegHeader { process: Process::Progressive, ..plain }), [NvJpegBackend::Cuda]);
        assert_eq!(backends(&JpegHeader { process: Process::Extended, ..plain }), []);
        assert_eq!(backends(&JpegHeader { precision: 12, ..plain }), []);
        assert_eq!(backends(&JpegHeader { color_space: JpegColorSpace::Rgb, ..plain }), []);
        assert_eq!(backends(&JpegHeader::baseline([(4, 1), (1, 1), (1, 1), (0, 0)], 3)), []);
        assert_eq!(backends(&JpegHeader::baseline([(2, 1), (1, 1), (2, 1), (0, 0)], 3)), []);
        assert_eq!(backends(&JpegHeader::baseline([(1, 1), (1, 1), (1, 1), (1, 1)], 4)), []);
        let mut engine_only_420 = abilities.clone();
        engine_only_420.set(NvJpegBackend::Hardware, Subsampling::S444, Ability::None);
        let full = JpegHeader::baseline([(1, 1), (1, 1), (1, 1), (0, 0)], 3);
        assert_eq!(
            engine_only_420.backends(&full).collect::<Vec<_>>(),
            [NvJpegBackend::CudaBatched, NvJpegBackend::Cuda]
        );
        assert_eq!(engine_only_420.layout(&full, full.whole(), NvJpegBackend::Hardware), None);
    }

    #[test]
    fn subsampling_has_its_usual_names() {
        let of = |y, c| Subsampling::of(&JpegHeader::baseline([y, c, c, (0, 0)], 3));
        assert_eq!(of((1, 1), (1, 1)), Some(Subsampling::S444));
        assert_eq!(of((2, 2), (2, 2)), Some(Subsampling::S444));
        assert_eq!(of((2, 1), (1, 1)), Some(Subsampling::S422));
        assert_eq!(of((2, 2), (1, 1)), Some(Subsampling::S420));
        assert_eq!(of((1, 2), (1, 1)), Some(Subsampling::S440));
        assert_eq!(of((4, 1), (1, 1)), None);
        assert_eq!(
            Subsampling::of(&JpegHeader::baseline([(1, 1), (0, 0), (0, 0), (0, 0)], 1)),
            Some(Subsampling::Gray)
        );
    }
}
