//! JPEGs by the GPU: which of nvJPEG's ways serves an image, and where its planes will lie.
//!
//! The decoding engine comes first where the GPU has one, then CUDA kernels; what both refuse is left to the CPU.

mod batched;
mod decoder;
mod layout;
mod library;
mod memory;
mod phased;
mod specimen;
mod trial;

pub(crate) use decoder::ImageOutcome;
pub use decoder::{NvJpegDecoder, Verdict};
pub(crate) use layout::PlaneLayout;
pub use layout::PlanesLayout;
pub use library::Library;

use super::{ColorModel, JpegHeader, Process, Region};
use std::fmt::Write;
use std::sync::Arc;

/// One of nvJPEG's ways to decode; the first that serves an image is the cheapest for the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NvJpegBackend {
    /// The GPU's fixed-function engine: baseline files of one scan.
    Hardware,
    /// CUDA kernels, Huffman codes included, many images in one call: baseline files of one scan, whole.
    CudaBatched,
    /// CUDA kernels, image by image: progressive files too. The CPU decodes the Huffman codes, but those of huge
    /// baseline images; see [`by_host`].
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

    /// The fewest images, colour or gray, that are given to it in a call. [`NvJpegBackend::CudaBatched`] gets so many
    /// of a kind or none, but where nobody else may: the Huffman codes of fewer it leaves to one core of the CPU.
    /// (Comment on `NVJPEG_BACKEND_GPU_HYBRID` in nvjpeg.h: "bigger than 50".)
    pub const fn least_of_call(self) -> usize {
        match self {
            Self::CudaBatched => 51,
            Self::Hardware | Self::Cuda => 1,
        }
    }

    /// Whether so many images, all colour or all gray, may be given to it in a call.
    pub const fn takes_call_of(self, images: usize) -> bool {
        images >= self.least_of_call()
    }

    /// The most that can be asked of it.
    pub fn best(self) -> Ability {
        if self == Self::CudaBatched { Ability::Whole } else { Ability::Region }
    }
}

/// From so many pixels on, kernels are faster with the Huffman codes of one image than a core of the CPU is (the
/// threshold of nvImageCodec and DALI, `hybrid_huffman_threshold`).
const HUGE: u64 = 1_000_000;

/// Whether [`NvJpegBackend::Cuda`] leaves an image's Huffman codes to the CPU. All of a file's codes are decoded,
/// whatever region is wanted of it, and the kernels know those of one scan.
pub fn by_host(header: &JpegHeader) -> bool {
    let pixels = u64::from(header.width) * u64::from(header.height);
    pixels <= HUGE || header.process != Process::Baseline || !header.interleaved
}

/// How a colour image's chroma is sampled, as far as a GPU decoder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsampling {
    /// 4:4:4: as many samples as pixels.
    S444,
    /// 4:2:2: half the columns.
    S422,
    /// 4:2:0: half the columns, half the rows.
    S420,
    /// 4:4:0: half the rows.
    S440,
    /// No chroma.
    Gray,
}

impl Subsampling {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::S444, Self::S422, Self::S420, Self::S440, Self::Gray];

    /// That of a file; `None` for any other.
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

    /// As it is usually written.
    pub fn name(self) -> &'static str {
        match self {
            Self::S444 => "4:4:4",
            Self::S422 => "4:2:2",
            Self::S420 => "4:2:0",
            Self::S440 => "4:4:0",
            Self::Gray => "gray",
        }
    }

    /// Image columns and rows that one chroma sample spans.
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
    /// Nothing: the next backend's turn.
    #[default]
    None,
    /// Whole images.
    Whole,
    /// Whole images, or a region of one.
    Region,
}

/// What a GPU and its nvJPEG can decode; found out once, by [`Abilities::probe`], then shared freely.
#[derive(Debug, Clone, Default)]
pub struct Abilities {
    table: AbilityTable,
    /// Why a backend cannot do more.
    notes: Arc<[[Option<String>; Subsampling::ALL.len()]; NvJpegBackend::ALL.len()]>,
    /// Decoding engines, and cores of each.
    engines: Option<(u32, u32)>,
    /// The first backend whose trial failed though it may serve another time, and why.
    failed: Option<(NvJpegBackend, String)>,
}

/// What each backend can do with each sampling: with images of any size, and with those whose chroma has no samples
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

    /// Decoding engines of the GPU, and cores of each, where nvJPEG says.
    pub fn engines(&self) -> Option<(u32, u32)> {
        self.engines
    }

    /// A backend that did not come through its trial, and why, where that is no word on what it can do: there was no
    /// memory, say.
    pub fn failed(&self) -> Option<&(NvJpegBackend, String)> {
        self.failed.as_ref()
    }

    /// What a backend can do, and why not more, in a line.
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

    /// Where the planes of an image will lie if `backend` decodes at least `region` of it; `None` where it cannot.
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
            // One scan, or the engine and the batched kernels would need to see the others.
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

/// Where a plane goes: device memory for what a [`PlaneLayout`] says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneTarget {
    /// Device address of the first stored sample.
    pub ptr: u64,
    /// Bytes from one row to the next, at least the stored width.
    pub stride: u32,
}

/// One image to decode.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The file. Whether nvJPEG is spared a copy where it is page-locked, its guide does not say.
    pub bytes: &'a [u8],
    /// What [`super::parse_header`] says of it.
    pub header: &'a JpegHeader,
    /// What [`Abilities::layout`] says for the asked region and backend.
    pub layout: &'a PlanesLayout,
    /// Device memory for each plane of the layout.
    pub planes: [PlaneTarget; 3],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::header::JpegColorSpace;

    /// A baseline file of 100×80 pixels.
    pub(super) fn header(factors: [(u8, u8); 4], components: u8) -> JpegHeader {
        let color_space = if components == 1 { JpegColorSpace::Gray } else { JpegColorSpace::YCbCr };
        JpegHeader {
            width: 100,
            height: 80,
            process: Process::Baseline,
            precision: 8,
            color_space,
            components,
            factors,
            restart_interval: 0,
            interleaved: true,
            region_decodable: true,
        }
    }

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
        let plain = header([(2, 2), (1, 1), (1, 1), (0, 0)], 3);
        assert_eq!(backends(&plain), NvJpegBackend::ALL);
        assert_eq!(backends(&JpegHeader { interleaved: false, ..plain }), [NvJpegBackend::Cuda]);
        assert_eq!(backends(&JpegHeader { process: Process::Progressive, ..plain }), [NvJpegBackend::Cuda]);
        assert_eq!(backends(&JpegHeader { process: Process::Extended, ..plain }), []);
        assert_eq!(backends(&JpegHeader { precision: 12, ..plain }), []);
        assert_eq!(backends(&JpegHeader { color_space: JpegColorSpace::Rgb, ..plain }), []);
        assert_eq!(backends(&header([(4, 1), (1, 1), (1, 1), (0, 0)], 3)), []);
        assert_eq!(backends(&header([(2, 1), (1, 1), (2, 1), (0, 0)], 3)), []);
        assert_eq!(backends(&header([(1, 1), (1, 1), (1, 1), (1, 1)], 4)), []);
        let mut engine_only_420 = abilities.clone();
        engine_only_420.set(NvJpegBackend::Hardware, Subsampling::S444, Ability::None);
        let full = header([(1, 1), (1, 1), (1, 1), (0, 0)], 3);
        assert_eq!(
            engine_only_420.backends(&full).collect::<Vec<_>>(),
            [NvJpegBackend::CudaBatched, NvJpegBackend::Cuda]
        );
        assert_eq!(engine_only_420.layout(&full, full.whole(), NvJpegBackend::Hardware), None);
    }

    #[test]
    fn subsampling_has_its_usual_names() {
        let of = |y, c| Subsampling::of(&header([y, c, c, (0, 0)], 3));
        assert_eq!(of((1, 1), (1, 1)), Some(Subsampling::S444));
        assert_eq!(of((2, 2), (2, 2)), Some(Subsampling::S444));
        assert_eq!(of((2, 1), (1, 1)), Some(Subsampling::S422));
        assert_eq!(of((2, 2), (1, 1)), Some(Subsampling::S420));
        assert_eq!(of((1, 2), (1, 1)), Some(Subsampling::S440));
        assert_eq!(of((4, 1), (1, 1)), None);
        assert_eq!(Subsampling::of(&header([(1, 1), (0, 0), (0, 0), (0, 0)], 1)), Some(Subsampling::Gray));
    }
}
