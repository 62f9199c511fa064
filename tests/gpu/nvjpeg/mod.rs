//! Decoding by nvJPEG, on the stand-ins: each backend against the CPU's decoder, the order of backends, failures.

mod backends;
mod faults;
mod files;
mod planes;

use crate::stand_in;
use foreload::Result;
use foreload::testing::decode::nvjpeg::{
    Abilities, CallOutcomes, Library, NvJpegBackend, NvJpegDecoder, PlaneTarget, Request,
};
use foreload::testing::decode::{JpegHeader, Planes, PlanesLayout, Region, parse_header};
use foreload::testing::gpu::{
    DeviceBuffer, GpuDevice, InFlight, MemoryPool, PinnedBuffer, PinnedSlice, Stream,
};

/// A lane like those of the pipeline, with its memory.
struct Lane {
    device: GpuDevice,
    stream: Stream,
    pool: MemoryPool,
    abilities: Abilities,
    decoder: NvJpegDecoder,
    /// Whether a decoder failed in the last call, so that the call was repeated in parts.
    retried_in_parts: bool,
}

/// An image to decode.
struct Job {
    file: Vec<u8>,
    region: Region,
}

/// The result of an image: its layout, and its planes or why it was refused.
type Decoded = (PlanesLayout, std::result::Result<Vec<u8>, String>);

impl Lane {
    /// Makes a lane that probes what the GPU can do.
    fn new() -> Result<Self> {
        Self::of(Abilities::probe(&Library::load()?, &GpuDevice::open(0)?)?)
    }

    /// Makes a lane that assumes these abilities of the GPU.
    fn of(abilities: Abilities) -> Result<Self> {
        let device = GpuDevice::open(0)?;
        Ok(Self {
            stream: Stream::new(&device)?,
            pool: MemoryPool::new(&device, 1 << 30)?,
            decoder: NvJpegDecoder::new(&Library::load()?, &device, 8)?,
            abilities,
            retried_in_parts: false,
            device,
        })
    }

    /// Decodes images that the backend serves, in one call.
    fn decode(&mut self, backend: NvJpegBackend, jobs: &[Job]) -> Result<Vec<Decoded>> {
        let headers: Vec<JpegHeader> =
            jobs.iter().map(|job| parse_header(&job.file)).collect::<std::result::Result<_, _>>()?;
        let layouts: Vec<PlanesLayout> = jobs
            .iter()
            .zip(&headers)
            .map(|(job, header)| {
                self.abilities.layout(header, job.region, backend).expect("the backend serves it")
            })
            .collect();
        let files: Vec<PinnedSlice> = jobs
            .iter()
            .map(|job| {
                let mut file = PinnedBuffer::new(&self.device, job.file.len())?;
                file.copy_from_slice(&job.file);
                file.into_slice()
            })
            .collect::<Result<_>>()?;
        let offsets: Vec<u64> = layouts
            .iter()
            .scan(0, |end, layout| Some(std::mem::replace(end, *end + layout.bytes.next_multiple_of(256))))
            .collect();
        let total = layouts.iter().map(|layout| layout.bytes.next_multiple_of(256)).sum::<u64>() as usize;
        let memory: DeviceBuffer = self.pool.allocate(&self.stream, total)?;
        let mut flight = InFlight::new(&self.stream)?;
        files.iter().for_each(|file| flight.keep(file.clone()));
        // The engine must not write before this fill is done.
        flight.fill(memory.whole(), 0xA5)?;
        let requests: Vec<Request<'_>> = (0..jobs.len())
            .map(|i| Request {
                bytes: &files[i],
                header: &headers[i],
                layout: &layouts[i],
                planes: layouts[i].planes.map(|plane| PlaneTarget {
                    ptr: memory.ptr() + offsets[i] + plane.offset,
                    stride: plane.stride,
                }),
            })
            .collect();
        let CallOutcomes { outcomes, retried_in_parts } =
            self.decoder.decode(&self.stream, backend, None, &requests)?;
        self.retried_in_parts = retried_in_parts;
        flight.submit()?;
        flight.wait()?;
        let bytes = PinnedBuffer::new(&self.device, total)?;
        let bytes = self.stream.copy_to_host(bytes, memory.whole())?;
        Ok(outcomes
            .into_iter()
            .zip(layouts)
            .zip(offsets)
            .map(|((outcome, layout), offset)| {
                let own = &bytes[offset as usize..][..layout.bytes as usize];
                (layout, outcome.map(|()| own.to_vec()).map_err(|error| error.to_string()))
            })
            .collect())
    }

    /// The backends that support the image, by its header.
    fn backends(&self, file: &[u8]) -> Vec<NvJpegBackend> {
        parse_header(file).map(|header| self.abilities.backends(&header).collect()).unwrap_or_default()
    }
}

/// Checks that planes differ from the CPU's by one level at most, and that no byte outside of them was written.
fn assert_same(job: &Job, (layout, planes): &Decoded, what: &str) {
    let samples = planes.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut expected = Planes::default();
    let choose = |_, _| layout.decoded;
    foreload::testing::decode::Decoder::new(1 << 30).decode(&job.file, choose, &mut expected).unwrap();
    let inside =
        |start: u32, length: u32, outer: u32, all: u32| start >= outer && start + length <= outer + all;
    let (region, decoded) = (job.region, layout.decoded);
    assert!(inside(region.x, region.width, decoded.x, decoded.width), "{what}");
    assert!(inside(region.y, region.height, decoded.y, decoded.height), "{what}");
    assert_eq!(expected.color, layout.color, "{what}");
    for (index, (plane, cpu)) in layout.used().iter().zip(&expected.planes).enumerate() {
        assert_eq!((plane.full_width, plane.full_height), (cpu.full_width, cpu.full_height), "{what}");
        for y in 0..plane.height {
            let row =
                &samples[plane.offset as usize + (y * plane.stride) as usize..][..plane.stride as usize];
            let (row, beside) = row.split_at(plane.width as usize);
            assert!(beside.iter().all(|&byte| byte == 0xA5), "{what}: written past plane {index}, row {y}");
            let start = (plane.y0 + y - cpu.y0) as usize * cpu.stride + (plane.x0 - cpu.x0) as usize;
            let same = row.iter().zip(&cpu.data[start..]).all(|(a, b)| a.abs_diff(*b) <= 1);
            assert!(same, "{what}: plane {index}, row {}", plane.y0 + y);
        }
    }
}
