//! The kernels that decode packed and indexed images on a GPU, compiled for the CPU. In any order of their threads they
//! make the samples of the CPU's decoder, and access only the bytes of the wanted rows and the planes.

use foreload::testing::decode::cuda::{CudaImage, CudaKernel, CudaPlan, ImageAddresses, LaunchTables};
use foreload::testing::decode::forms::{ConvertedFormat, FormatConverter};
use foreload::testing::decode::{Decoder, Planes};
use foreload::testing::rng::{RandomKey, Use};

use super::fuzz::{answer as of_cpu, image, region, samples};
use super::images::{Kind, stream};
use super::region::any_region;
use crate::fuzz::fuzz_seed;

const PAGE: usize = 4096;

/// Memory between two pages that cannot be accessed.
struct Guarded {
    mapping: *mut u8,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which no other code uses.
        let mapping = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes + 2 * PAGE, libc::PROT_NONE, flags, -1, 0).cast::<u8>()
        };
        assert_ne!(mapping.cast(), libc::MAP_FAILED);
        // SAFETY: these pages are in the mapping.
        let opened =
            unsafe { libc::mprotect(mapping.add(PAGE).cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        Self { mapping, bytes }
    }

    /// The last `bytes` bytes of the memory, or the first.
    fn part(&mut self, bytes: usize, is_last: bool) -> &mut [u8] {
        let skipped = if is_last { self.bytes - bytes } else { 0 };
        // SAFETY: the bytes are in the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.add(PAGE + skipped), bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no part of it is borrowed any more.
        unsafe { libc::munmap(self.mapping.cast(), self.bytes + 2 * PAGE) };
    }
}

/// An image with its input and output memory.
struct Job<'a> {
    plan: &'a CudaPlan,
    planes: Guarded,
    /// The bytes as they were read, and the memory into which they are gathered: whole quads between guard pages.
    bytes: Guarded,
    gathered: Guarded,
    /// The gathered bytes that the decoders get: words of four bytes between guard pages.
    words: Guarded,
}

impl<'a> Job<'a> {
    /// With `from_ends`, the input ends where its memory ends; otherwise the output does.
    fn new(image: &[u8], plan: &'a CudaPlan, from_ends: bool) -> Self {
        let (quads, words) = (Self::whole(plan, 16), Self::whole(plan, 4));
        let [planes, bytes, gathered, words] =
            [plan.layout.bytes as usize, quads, quads, words].map(Guarded::new);
        let mut job = Self { plan, planes, bytes, gathered, words };
        job.from(from_ends)[..plan.bytes.len()].copy_from_slice(&image[plan.bytes.clone()]);
        job.to(from_ends).fill(0xa5);
        job
    }

    /// The size of memory that holds the needed bytes in whole units of `unit` bytes. They do not begin with the first
    /// byte of a unit.
    fn whole(plan: &CudaPlan, unit: usize) -> usize {
        (plan.bytes.start % unit + plan.bytes.len()).next_multiple_of(unit)
    }

    fn from(&mut self, from_ends: bool) -> &mut [u8] {
        &mut self.bytes.part(Self::whole(self.plan, 16), from_ends)[self.plan.bytes.start % 16..]
    }

    fn gathered(&mut self, from_ends: bool) -> &mut [u8] {
        self.gathered.part(Self::whole(self.plan, 16), from_ends)
    }

    fn words(&mut self, from_ends: bool) -> &mut [u8] {
        self.words.part(Self::whole(self.plan, 4), from_ends)
    }

    /// The addresses of all memory for the kernel that gathers.
    fn places(&mut self, from_ends: bool) -> ImageAddresses {
        let from = self.from(from_ends).as_ptr() as u64;
        let bytes = self.gathered(from_ends).as_ptr() as u64;
        ImageAddresses { from, bytes, planes: self.to(from_ends).as_ptr() as u64 }
    }

    /// The bytes of the first quad before the first word.
    fn skipped(plan: &CudaPlan) -> usize {
        plan.bytes.start % 16 / 4 * 4
    }

    /// The addresses of all memory for the decoders. The bytes before the first word are not in any memory.
    fn places_in_words(&mut self, from_ends: bool) -> ImageAddresses {
        let bytes = self.words(from_ends).as_ptr() as u64 - Self::skipped(self.plan) as u64;
        ImageAddresses { bytes, ..self.places(from_ends) }
    }

    /// Copies the words of the gathered bytes that the decoders are allowed to read.
    fn hand_over(&mut self, from_ends: bool) {
        let skipped = Self::skipped(self.plan);
        let gathered = self.gathered(from_ends)[skipped..].to_vec();
        let words = self.words(from_ends);
        words.copy_from_slice(&gathered[..words.len()]);
    }

    fn to(&mut self, from_ends: bool) -> &mut [u8] {
        self.planes.part(self.plan.layout.bytes as usize, !from_ends)
    }

    /// The samples, plane by plane and row by row.
    fn samples(mut self, from_ends: bool) -> Vec<u8> {
        let plan = self.plan;
        let to = self.to(from_ends);
        let mut samples = Vec::new();
        for plane in plan.layout.used() {
            for row in to[plane.offset as usize..].chunks(plane.stride as usize).take(plane.height as usize) {
                samples.extend(&row[..plane.width as usize]);
            }
        }
        samples
    }
}

/// Runs the launches of the tables for which `asked` returns true.
fn run(tables: &LaunchTables, turn: u32, damage: &mut [u32], asked: impl Fn(CudaKernel) -> bool) {
    let mut entries = vec![0u64; tables.bytes().div_ceil(8)];
    // SAFETY: integers are bytes, and there are at least as many.
    tables.write(unsafe { std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast(), tables.bytes()) });
    let launches = tables.launches(entries.as_ptr() as u64, damage.as_mut_ptr() as u64);
    for launch in launches.filter(|launch| asked(launch.kernel)) {
        let (threads, shared) = launch.kernel.block();
        let (grid, block) = ([launch.blocks, 1, 1], [threads, 1, 1]);
        let arguments: Vec<_> =
            launch.arguments.iter().map(|argument| (&raw const *argument).cast()).collect();
        // SAFETY: these are the kernel's arguments, and the memory that they point to is large enough.
        let done = unsafe {
            match launch.kernel {
                CudaKernel::Gather => {
                    kernels_stand_in::launch_gather(grid, block, shared, turn, arguments.try_into().unwrap())
                }
                CudaKernel::Packed => {
                    kernels_stand_in::launch_packed(grid, block, shared, turn, arguments.try_into().unwrap())
                }
                CudaKernel::Indexed => {
                    kernels_stand_in::launch_indexed(grid, block, shared, turn, arguments.try_into().unwrap())
                }
            }
        };
        done.unwrap();
    }
}

/// The samples of each of these images; `None` for an image with damaged rows. The threads of a block run in the order
/// of `turn`.
fn decode(images: &[(&[u8], CudaPlan)], turn: u32) -> Vec<Option<Vec<u8>>> {
    let from_ends = turn % 3 == 1;
    let (mut gathering, mut decoding) = (LaunchTables::default(), LaunchTables::default());
    let mut jobs: Vec<_> = images.iter().map(|(image, plan)| Job::new(image, plan, from_ends)).collect();
    for (number, job) in jobs.iter_mut().enumerate() {
        // Indices in reverse order, so that they cannot equal those of the images by chance.
        let damage = (images.len() - 1 - number) as u32;
        gathering.add(job.plan, job.places(from_ends), damage);
        decoding.add(job.plan, job.places_in_words(from_ends), damage);
    }
    let mut damage = vec![0u32; images.len()];
    // The gathered bytes may end in the middle of a quad. The decoders read only the words of it that they need.
    run(&gathering, turn, &mut damage, |kernel| kernel == CudaKernel::Gather);
    jobs.iter_mut().for_each(|job| job.hand_over(from_ends));
    run(&decoding, turn, &mut damage, |kernel| kernel != CudaKernel::Gather);
    let jobs = jobs.into_iter().zip(damage.iter().rev());
    jobs.map(|(job, damage)| (*damage == 0).then(|| job.samples(from_ends))).collect()
}

/// The kernel's result, comparable with the CPU's result of [`of_cpu`] with at most `most` pixels: the samples, or the
/// error.
pub fn answer(image: &[u8], most: u64, seed: u64) -> Result<Vec<u8>, String> {
    let own = CudaImage::read(image).map_err(|error| error.to_string())?.ok_or("not read")?;
    let (width, height) = own.size();
    if u64::from(width) * u64::from(height) > most {
        return Err("too large".into());
    }
    let plan = own.plan(region(seed, (width, height))).map_err(|error| error.to_string())?;
    let turn = [1, 3, 127, 37][seed as usize % 4];
    decode(&[(image, plan.ok_or("not planned")?)], turn).remove(0).ok_or("damaged rows".into())
}

#[test]
fn a_launch_makes_the_samples_of_the_cpu() {
    let first = fuzz_seed();
    println!("seeds from FORELOAD_FUZZ_SEED={first} on");
    let (mut maker, mut decoder, mut planes) =
        (FormatConverter::default(), Decoder::new(1_000_000), Planes::default());
    for launch in 0..60 {
        let (mut expected, mut files) = (Vec::new(), Vec::new());
        for seed in (first + 100 * launch..).take(20) {
            let mut stream = RandomKey::new(b"own kernels", seed, 0, Use::Augment).stream(0);
            let (file, mut made) = (image(&mut stream), Vec::new());
            let form = [ConvertedFormat::Packed, ConvertedFormat::Indexed][seed as usize % 2];
            if maker.make(form, &file, &mut made).is_ok() {
                expected.push((seed, of_cpu(&mut decoder, &mut planes, &made, seed).ok()));
                files.push((seed, made));
            }
        }
        let plan = |(seed, made): &(u64, Vec<u8>)| {
            let own = CudaImage::read(made).unwrap().unwrap();
            own.plan(region(*seed, own.size())).unwrap().unwrap()
        };
        let images: Vec<_> = files.iter().map(|file| (&file.1[..], plan(file))).collect();
        for turn in [1, 127] {
            for (got, (seed, expected)) in decode(&images, turn).into_iter().zip(&expected) {
                assert!(&got == expected, "FORELOAD_FUZZ_SEED={seed}, in turns of {turn}");
            }
        }
    }
}

/// Larger images of every kind, with any restart interval.
#[test]
fn rows_of_indexed_images_are_decoded_side_by_side() {
    let (mut maker, mut decoder, mut planes) =
        (FormatConverter::default(), Decoder::new(1_000_000), Planes::default());
    let (mut indexed, mut count) = (Vec::new(), 0);
    for number in 0..400 {
        let mut stream = stream(number);
        let kind = Kind::baseline(&mut stream);
        if maker.make(ConvertedFormat::Indexed, &kind.encode(&mut stream), &mut indexed).is_err() {
            continue;
        }
        count += 1;
        for turn in [1, 127] {
            let own = CudaImage::read(&indexed).unwrap().unwrap();
            let (width, height) = own.size();
            let region = any_region(&mut stream, width, height);
            let plan = own.plan(region).unwrap().unwrap();
            decoder.decode(&indexed, |_, _| region, &mut planes).unwrap();
            let got = decode(&[(&indexed, plan)], turn).remove(0);
            assert!(
                got == Some(samples(&planes)),
                "image {number}, {kind:?}, {region:?}, in turns of {turn}"
            );
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn a_block_has_the_memory_that_it_needs() {
    let kernels = [CudaKernel::Packed, CudaKernel::Indexed];
    assert_eq!(kernels.map(|kernel| kernel.block().1), kernels_stand_in::shared_bytes());
}

#[test]
fn pieces_are_what_a_block_moves_at_once() {
    assert_eq!(LaunchTables::COPY_SIZES, kernels_stand_in::piece_bytes().map(u64::from));
}

/// An image of the largest width has more units in a row than a block has threads.
#[test]
fn the_widest_images_are_decoded_too() {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    for (width, height, sampling) in [
        (65_500, 9, SamplingFactor::F_2_2),
        (65_500, 17, SamplingFactor::F_1_1),
        (3, 3000, SamplingFactor::F_2_1),
    ] {
        let pixels: Vec<u8> =
            (0..3 * usize::from(width) * usize::from(height)).map(|i| (i * i / 77 % 251) as u8).collect();
        let (mut file, mut made) = (Vec::new(), Vec::new());
        let mut encoder = Encoder::new(&mut file, 97);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
        for form in [ConvertedFormat::Packed, ConvertedFormat::Indexed] {
            FormatConverter::default().make(form, &file, &mut made).unwrap();
            for seed in 0..4 {
                let expected =
                    of_cpu(&mut Decoder::new(1 << 24), &mut Planes::default(), &made, seed).unwrap();
                assert!(answer(&made, 1 << 24, seed) == Ok(expected), "{width}×{height} {form:?}, {seed}");
            }
        }
    }
}
