//! JPEG decoding with nvJPEG: the choice of the nvJPEG backend for an image, and the layout of the planes.
//!
//! The decoding engine is tried first if the GPU has one, then CUDA kernels. An image that all backends refuse is
//! decoded by the CPU, whose result is final. nvJPEG's success is not trusted: a probe tries every backend on known
//! images (`trial.rs`), and the pipeline checks that every line of the planes was written (`pipeline/cuda/check.rs`).

mod batched;
mod decoder;
mod library;
mod memory;
mod phased;
mod specimen;
mod trial;

pub use decoder::{CallOutcomes, ImageOutcome, NvJpegDecoder};
pub use library::Library;

use super::{ColorModel, JpegHeader, PlanesLayout, Process, Region};
use std::fmt::Write;
use std::sync::Arc;

/// A backend of nvJPEG. The variants are in order of speed: of the backends that can decode an image, the first is the
/// fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NvJpegBackend {
    /// The GPU's fixed-function engine, for baseline files of one scan.
    Hardware,
    /// CUDA kernels that decode many images in one call, including the Huffman codes: whole baseline files of one scan.
    CudaBatched,
    /// CUDA kernels that decode one image after another, including progressive files. The CPU decodes the Huffman
    /// codes, except those of huge baseline images; see [`host_decodes_huffman`].
    Cuda,
}

impl NvJpegBackend {
    /// All backends, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Hardware, Self::CudaBatched, Self::Cuda];

    /// The backend's name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::CudaBatched => "cuda_batched",
            Self::Cuda => "cuda",
        }
    }

    /// The smallest number of images, all colour or all grey, that the backend gets in a call.
    /// [`NvJpegBackend::CudaBatched`] gets at least that many images or none, unless no other backend is allowed. With
    /// fewer images it leaves the Huffman codes to one core of the CPU. (Comment on `NVJPEG_BACKEND_GPU_HYBRID` in
    /// nvjpeg.h: "bigger than 50"; with nvJPEG 13.0 on an H200 no such threshold was measurable.)
    pub const fn min_images_per_call(self) -> usize {
        match self {
            Self::CudaBatched => 51,
            Self::Hardware | Self::Cuda => 1,
        }
    }

    /// Whether the backend accepts a call with this many images, all colour or all grey.
    pub const fn accepts_call_of(self, images: usize) -> bool {
        images >= self.min_images_per_call()
    }

    /// The largest number of images, all colour or all grey, that the backend gets in a call. More images are divided
    /// evenly among calls. A call of the engine occupies a host thread until it returns. The best limit for the kernels
    /// is unknown.
    ///
    /// The engine's limit was measured on an H200 with nvJPEG 13.0 and three threads that do nothing else (`rates
    /// HARDWARE` in `benches/results/gpu-probe.jsonl`). Photographs decoded per second, and CPU time per photograph:
    ///
    /// - calls of 32 images: 23 600, 99 µs
    /// - calls of 64 images: 24 600, 105 µs
    /// - calls of 128 images: 14 300, 201 µs
    /// - calls of 256 images: 16 800, 177 µs
    pub(super) const fn max_images_per_call(self) -> usize {
        match self {
            Self::Hardware => 64,
            Self::CudaBatched | Self::Cuda => usize::MAX,
        }
    }

    /// The highest ability that the backend can have.
    pub fn best(self) -> Ability {
        if self == Self::CudaBatched { Ability::Whole } else { Ability::Region }
    }
}

/// For images with more pixels than this, kernels decode the Huffman codes of one image faster than a core of the CPU
/// (the threshold of nvImageCodec and DALI, `hybrid_huffman_threshold`).
const HUGE: u64 = 1_000_000;

/// Whether [`NvJpegBackend::Cuda`] leaves an image's Huffman codes to the CPU. All codes of a file are decoded,
/// regardless of the region, and the kernels support only files of one scan.
pub fn host_decodes_huffman(header: &JpegHeader) -> bool {
    let pixels = u64::from(header.width) * u64::from(header.height);
    pixels <= HUGE || header.process != Process::Baseline || !header.interleaved
}

/// The chroma subsamplings that GPU decoders support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsampling {
    /// 4:4:4: as many chroma samples as pixels.
    S444,
    /// 4:2:2: half the columns.
    S422,
    /// 4:2:0: half the columns and half the rows.
    S420,
    /// 4:4:0: half the rows.
    S440,
    /// No chroma.
    Gray,
}

impl Subsampling {
    /// All kinds of subsampling.
    pub const ALL: [Self; 5] = [Self::S444, Self::S422, Self::S420, Self::S440, Self::Gray];

    /// The subsampling of a file; `None` for an unsupported subsampling.
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

/// The ability of a backend for one subsampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Cannot decode; the next backend is tried.
    #[default]
    None,
    /// Decodes whole images.
    Whole,
    /// Decodes whole images and regions of images.
    Region,
}

/// The abilities of a GPU and its nvJPEG. [`Abilities::probe`] determines them once; clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Abilities {
    table: AbilityTable,
    /// For each backend and subsampling, the reason why the backend cannot do more.
    notes: Arc<[[Option<String>; Subsampling::ALL.len()]; NvJpegBackend::ALL.len()]>,
    /// The number of decoding engines, and of cores per engine.
    engines: Option<(u32, u32)>,
    /// The first backend whose trial failed but might succeed another time, and the reason.
    failed: Option<(NvJpegBackend, String)>,
}

/// The abilities of each backend for each subsampling, as pairs: the ability for images of any size, and the ability
/// for images whose size is a multiple of the pixels that a chroma sample spans.
#[derive(Debug, Clone, Copy, Default)]
struct AbilityTable([[(Ability, Ability); Subsampling::ALL.len()]; NvJpegBackend::ALL.len()]);

impl Abilities {
    /// Sets the ability of `backend` for `sampling`.
    pub fn set(&mut self, backend: NvJpegBackend, sampling: Subsampling, ability: Ability) {
        self.table.0[backend as usize][sampling as usize] = (ability, ability);
    }

    /// Sets the ability of `backend` for images whose size is a multiple of the pixels that a chroma sample spans.
    pub fn set_even(&mut self, backend: NvJpegBackend, sampling: Subsampling, ability: Ability) {
        self.table.0[backend as usize][sampling as usize].1 = ability;
    }

    fn note(&mut self, backend: NvJpegBackend, sampling: Subsampling, reason: Option<String>) {
        Arc::make_mut(&mut self.notes)[backend as usize][sampling as usize] = reason;
    }

    /// The ability of `backend` for `sampling` and images of any size.
    pub fn get(&self, backend: NvJpegBackend, sampling: Subsampling) -> Ability {
        self.table.0[backend as usize][sampling as usize].0
    }

    /// Whether `backend` can decode at least one kind of image.
    pub fn serves(&self, backend: NvJpegBackend) -> bool {
        let mut samplings = Subsampling::ALL.into_iter();
        samplings.any(|sampling| self.get_even(backend, sampling) != Ability::None)
    }

    /// The ability of `backend` for `sampling` and images whose size is a multiple of the pixels that a chroma sample
    /// spans.
    pub fn get_even(&self, backend: NvJpegBackend, sampling: Subsampling) -> Ability {
        self.table.0[backend as usize][sampling as usize].1
    }

    /// The number of the GPU's decoding engines, and of cores per engine, if nvJPEG reports them.
    pub fn engines(&self) -> Option<(u32, u32)> {
        self.engines
    }

    /// The backend whose trial failed for a reason other than its abilities, for example a lack of memory, and the
    /// reason.
    pub fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.failed.as_ref()
    }

    /// Describes in one line what a backend can decode, and why it cannot do more.
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
                let _ = write!(text, ", {} with even width and height", what(even));
            }
            if let Some(reason) = &self.notes[backend as usize][sampling as usize] {
                let _ = write!(text, " ({reason})");
            }
        }
        text
    }

    /// The backends that can decode an image, in the order in which they are tried. If there are none, the CPU decodes
    /// the image.
    pub fn backends(&self, header: &JpegHeader) -> impl Iterator<Item = NvJpegBackend> + use<> {
        let (table, header) = (self.table, *header);
        NvJpegBackend::ALL.into_iter().filter(move |&backend| table.of(&header, backend) != Ability::None)
    }

    /// The layout of an image's planes when `backend` decodes at least `region`; `None` if the backend cannot.
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
            // The engine and the batched kernels need files of one scan, because they do not process further scans.
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

/// The device memory for a plane of a [`PlaneLayout`](crate::decode::layout::PlaneLayout).
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
    /// The bytes of the file. nvJPEG's guide does not say whether page-locked bytes save a copy.
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
