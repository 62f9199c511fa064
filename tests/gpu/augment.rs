//! The augmentation kernel, called through the driver: planes and the table are copied from slots, one launch makes a
//! batch, and its bytes are those of the CPU.

use crate::stand_in;
use foreload::testing::augment::cuda::{ImageParams, Kernels, Launcher};
use foreload::testing::augment::{
    Augmenter, DType, Fidelity, MemoryFormat, Output, Recipe, Transforms, View,
};
use foreload::testing::decode::{Decoder, Planes, PlanesLayout};
use foreload::testing::gpu::{GpuDevice, InFlight, MemoryPool, PinnedBuffer, Registration, Stream};
use foreload::testing::simd::Level;
use foreload::testing::slot::SlotPool;
use jpeg_encoder::{ColorType, Encoder};

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let pixel = |i: usize| [i as u8, (i / 3) as u8, (i * i) as u8];
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height)).flat_map(pixel).collect();
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 90).encode(&pixels, width, height, ColorType::Rgb).unwrap();
    bytes
}

/// Images with the planes that their views need.
fn images(output: &Output) -> Vec<(Planes, View)> {
    let size = [output.height, output.width];
    let asked = format!(
        r#"[{{"RandomResizedCrop": {{"size": {size:?}, "scale": [0.1, 1.0], "ratio": [0.75, 1.33]}}}},
            {{"RandomHorizontalFlip": {{}}}}]"#
    );
    let asked = Transforms::from_json(&asked).unwrap();
    let recipe = Recipe::new(&asked, output.format, output.fidelity).unwrap();
    let keys = recipe.keys(1, 0);
    let sizes = [(40, 30), (97, 64), (64, 101), (200, 150)];
    let decode = |&(width, height): &(u16, u16)| {
        let drawn = recipe.draw(&keys, u64::from(width), 0, (width.into(), height.into())).unwrap();
        let (view, region) = (drawn.views()[0].view, drawn.region());
        let mut planes = Planes::default();
        Decoder::new(1 << 20).decode(&jpeg(width, height), |_, _| region, &mut planes).unwrap();
        (planes, view)
    };
    sizes.iter().map(decode).collect()
}

/// Makes a batch as the lanes of a pipeline do; `skip` omits the copy of that image's planes.
fn batch(images: &[(Planes, View)], output: &Output, skip: Option<usize>) -> foreload::Result<Vec<u8>> {
    let device = GpuDevice::open(0)?;
    let slots = SlotPool::new(8 << 20)?;
    let registration = Registration::new(&device, &slots)?;
    let pool = MemoryPool::new(&device, 32 << 20)?;
    let stream = Stream::new(&device)?;
    let launcher = Launcher::new(&Kernels::load(&device)?, output.clone())?;
    let layouts: Vec<_> = images.iter().map(|(planes, _)| PlanesLayout::staged(planes)).collect();
    let arena = pool
        .allocate(&stream, layouts.iter().map(|layout| layout.bytes.next_multiple_of(64) as usize).sum())?;
    let table = pool.allocate(&stream, (images.len() + 1) * ImageParams::BYTES)?;
    let results = pool.allocate(&stream, (images.len() + 1) * output.bytes())?;
    let mut flight = InFlight::new(&stream)?;
    let (mut entries, mut base) = (Vec::new(), 0);
    for (number, ((planes, view), layout)) in images.iter().zip(&layouts).enumerate() {
        let mut slot = slots.try_take(layout.bytes as usize).expect("room for all");
        for (plane, to) in planes.planes.iter().zip(layout.used()) {
            let bytes = plane.data.len().min(plane.stride * plane.height as usize);
            slot.bytes_mut()[to.offset as usize..][..bytes].copy_from_slice(&plane.data[..bytes]);
        }
        let staged = registration.pin(slot)?.part(0..layout.bytes as usize)?;
        if skip != Some(number) {
            flight.copy_to_device(arena.range(base, staged.len())?, &staged)?;
        }
        let entry = ImageParams::new(layout, arena.ptr() + base as u64, view, output);
        entries.push(entry.at(number as u32));
        base += layout.bytes.next_multiple_of(64) as usize;
    }
    entries.push(ImageParams::blank().at(images.len() as u32));
    let mut staging = PinnedBuffer::new(&device, table.bytes())?;
    staging.copy_from_slice(&entries.iter().flat_map(|entry| entry.as_bytes()).copied().collect::<Vec<_>>());
    flight.copy_to_device(table.whole(), &staging.into_slice()?)?;
    // SAFETY: all buffers live until the stream has completed, and no other code uses them.
    unsafe { launcher.launch(&stream, table.ptr(), entries.len(), results.ptr()) }?;
    flight.submit()?;
    let host = stream.copy_to_host(PinnedBuffer::new(&device, results.bytes())?, results.whole())?;
    flight.wait()?;
    Ok(host.to_vec())
}

fn output(fidelity: Fidelity, dtype: DType, format: MemoryFormat) -> Output {
    Output { height: 50, width: 61, dtype, format, mean: [0.4; 3], std: [0.2; 3], fill: [0; 3], fidelity }
}

#[test]
fn a_batch_has_the_bytes_of_the_cpu() {
    let cuda = stand_in::cuda();
    for (fidelity, dtype, format) in [
        (Fidelity::Fast, DType::F32, MemoryFormat::Nchw),
        (Fidelity::Exact, DType::F16, MemoryFormat::Nhwc),
        (Fidelity::Fast, DType::U8, MemoryFormat::Nhwc),
    ] {
        let output = output(fidelity, dtype, format);
        let images = images(&output);
        let result = batch(&images, &output, None).unwrap();
        let mut expected = vec![0; result.len()];
        let mut augmenter = Augmenter::new(output.clone(), Level::detect());
        for ((planes, view), to) in images.iter().zip(expected.chunks_exact_mut(output.bytes())) {
            augmenter.render(planes, view, to);
        }
        assert!(result == expected, "{output:?}");
    }
    assert_eq!(cuda.count("launches"), 3, "one launch a batch");
}

#[test]
fn planes_that_never_came_are_noticed() {
    let mut cuda = stand_in::cuda();
    let output = output(Fidelity::Fast, DType::F32, MemoryFormat::Nchw);
    let images = images(&output);
    // This read is ordered and in bounds, but the memory was never written.
    batch(&images, &output, Some(2)).unwrap();
    let violations = cuda.violations();
    assert!(violations[0].contains("foreload_augment_fast"), "{violations:#?}");
    assert!(violations[0].contains("were never written"), "{violations:#?}");
}
