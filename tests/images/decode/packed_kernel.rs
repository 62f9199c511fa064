//! The kernel that decodes packed images on a GPU, compiled for the CPU: it makes the samples of the CPU's decoder, in
//! whichever order its threads run, and touches nothing beside the bytes of the wanted rows and its planes.

use foreload::testing::decode::cuda::{PackedLauncher, PackedTable};
use foreload::testing::decode::packed::{PackedImage, PackedPlan, Packer};
use foreload::testing::decode::{Decoder, Planes};
use foreload::testing::rng::{RandomKey, Use};

use super::fuzz::{answer as of_cpu, first_seed, image, region};

const PAGE: usize = 4096;

/// Memory between pages that nobody may touch.
struct Guarded {
    mapping: *mut u8,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, nobody else's.
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
        // SAFETY: the mapping is ours, and nobody has a part of it any more.
        unsafe { libc::munmap(self.mapping.cast(), self.bytes + 2 * PAGE) };
    }
}

/// A packed image with the memory that it is decoded from and to.
struct Job<'a> {
    plan: &'a PackedPlan,
    planes: Guarded,
    bytes: Guarded,
}

impl<'a> Job<'a> {
    /// What is decoded from ends where the memory does, or else what is decoded to.
    fn new(packed: &[u8], plan: &'a PackedPlan, from_ends: bool) -> Self {
        let [planes, bytes] = [plan.layout.bytes as usize, plan.bytes.len()].map(Guarded::new);
        let mut job = Self { plan, planes, bytes };
        job.from(from_ends)[..plan.bytes.len()].copy_from_slice(&packed[plan.bytes.clone()]);
        job.to(from_ends).fill(0xa5);
        job
    }

    fn from(&mut self, from_ends: bool) -> &mut [u8] {
        // Words are read whole, so that the last one ends where the memory does.
        let bytes = self.plan.bytes.len();
        self.bytes.part(if from_ends { bytes.next_multiple_of(4) } else { bytes }, from_ends)
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

/// The samples of each of these packed images; `None` for one with damaged rows. The threads of a block run in the
/// order of `turn`.
fn decode(images: &[(&[u8], PackedPlan)], turn: u32) -> Vec<Option<Vec<u8>>> {
    let from_ends = turn % 3 == 1;
    let mut table = PackedTable::default();
    let mut jobs: Vec<_> = images.iter().map(|(packed, plan)| Job::new(packed, plan, from_ends)).collect();
    for (number, job) in jobs.iter_mut().enumerate() {
        let [to, from] = [job.to(from_ends).as_ptr() as u64, job.from(from_ends).as_ptr() as u64];
        // Numbers in reverse order, so that they are not those of the images by chance.
        table.add(job.plan, to, from, (images.len() - 1 - number) as u32);
    }
    let mut entries = vec![0u64; table.bytes().div_ceil(8)];
    // SAFETY: integers are bytes, and there are at least as many.
    table.write(unsafe { std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast(), table.bytes()) });
    let mut damage = vec![0u32; images.len()];
    let (table_at, damage_at) = (entries.as_ptr() as u64, damage.as_mut_ptr() as u64);
    let rows_at = table_at + table.rows_at() as u64;
    let arguments = [&table_at, &rows_at, &damage_at].map(|argument| (&raw const *argument).cast());
    let (threads, shared) = PackedLauncher::BLOCK;
    let (grid, block) = ([table.rows() as u32, 1, 1], [threads, 1, 1]);
    // SAFETY: the arguments are the kernel's, and what they point to is as large as it takes it to be.
    unsafe { kernels_stand_in::launch_packed(grid, block, shared, turn, arguments) }.unwrap();
    let jobs = jobs.into_iter().zip(damage.iter().rev());
    jobs.map(|(job, damage)| (*damage == 0).then(|| job.samples(from_ends))).collect()
}

/// What the kernel answers where the CPU gives [`of_cpu`] of at most `most` pixels: the samples, or why there are none.
pub fn answer(packed: &[u8], most: u64, seed: u64) -> Result<Vec<u8>, String> {
    let head = PackedImage::read(packed).map_err(|error| error.to_string())?;
    let (width, height) = head.size();
    if u64::from(width) * u64::from(height) > most {
        return Err("too large".into());
    }
    let plan = head.plan(region(seed, (width, height))).map_err(|error| error.to_string())?;
    let turn = [1, 3, 127, 37][seed as usize % 4];
    decode(&[(packed, plan)], turn).remove(0).ok_or("damaged rows".into())
}

#[test]
fn a_launch_makes_the_samples_of_the_cpu() {
    let first = first_seed();
    println!("seeds from FORELOAD_FUZZ_SEED={first} on");
    let (mut packer, mut decoder, mut planes) = (Packer::new(), Decoder::new(1_000_000), Planes::default());
    for launch in 0..60 {
        let mut expected = Vec::new();
        let mut files = Vec::new();
        for seed in (first + 100 * launch..).take(20) {
            let mut stream = RandomKey::new(b"packed kernel", seed, 0, Use::Augment).stream(0);
            let mut packed = Vec::new();
            if packer.pack(&image(&mut stream), &mut packed).is_ok() {
                expected.push((seed, of_cpu(&mut decoder, &mut planes, &packed, seed).ok()));
                files.push((seed, packed));
            }
        }
        let plan = |(seed, packed): &(u64, Vec<u8>)| {
            let head = PackedImage::read(packed).unwrap();
            head.plan(region(*seed, head.size())).unwrap()
        };
        let images: Vec<_> = files.iter().map(|file| (&file.1[..], plan(file))).collect();
        for turn in [1, 127] {
            for (got, (seed, expected)) in decode(&images, turn).into_iter().zip(&expected) {
                assert!(&got == expected, "FORELOAD_FUZZ_SEED={seed}, in turns of {turn}");
            }
        }
    }
}

#[test]
fn a_block_has_the_memory_that_it_needs() {
    assert_eq!(PackedLauncher::BLOCK.1, kernels_stand_in::packed_shared());
}

/// An image as wide as can be has more units in a row than a block has threads.
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
        let (mut file, mut packed) = (Vec::new(), Vec::new());
        let mut encoder = Encoder::new(&mut file, 97);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
        Packer::new().pack(&file, &mut packed).unwrap();
        for seed in 0..4 {
            let expected = of_cpu(&mut Decoder::new(1 << 24), &mut Planes::default(), &packed, seed).unwrap();
            assert!(answer(&packed, 1 << 24, seed) == Ok(expected), "{width}×{height}, region {seed}");
        }
    }
}
