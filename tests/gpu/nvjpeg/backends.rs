//! Which backend decodes which image, by the GPU, by the abilities of the engine, and after failures.

use foreload::testing::decode::nvjpeg::{
    Abilities, Ability, Library, NvJpegBackend, NvJpegDecoder, Subsampling, host_decodes_huffman,
};
use foreload::testing::decode::{Region, parse_header};
use foreload::testing::gpu::GpuDevice;
use libjpeg_reference::Encoding;

use super::files::{encode, stream};
use super::{Job, Lane, assert_same, stand_in};

fn encoding(factors: (u32, u32), channels: usize) -> Encoding {
    Encoding {
        width: 120,
        height: 90,
        channels,
        factors,
        quality: 85,
        restart_interval: 0,
        optimised: false,
        progressive: false,
    }
}

fn file(factors: (u32, u32), channels: usize) -> Vec<u8> {
    encode(&mut stream(5), &encoding(factors, channels))
}

/// The abilities of each backend for each sampling, for any size and for even sizes.
fn table(abilities: &Abilities) -> Vec<(NvJpegBackend, Subsampling, [Ability; 2])> {
    let of = |backend, sampling| [abilities.get(backend, sampling), abilities.get_even(backend, sampling)];
    let all = NvJpegBackend::ALL
        .into_iter()
        .flat_map(|backend| Subsampling::ALL.map(|sampling| (backend, sampling)));
    all.map(|(backend, sampling)| (backend, sampling, of(backend, sampling))).collect()
}

#[test]
fn what_a_gpu_can_do_is_found_out_by_trying() {
    let (_cuda, nvjpeg) = stand_in::both();
    let (library, device) = (Library::load().unwrap(), GpuDevice::open(0).unwrap());
    let abilities = |knobs: &str| {
        nvjpeg.knobs(knobs);
        Abilities::probe(&library, &device).unwrap()
    };
    let all = abilities("");
    assert_eq!(NvJpegDecoder::new(&library, &device, 1).unwrap().engines().unwrap(), Ok((1, 7)));
    assert_eq!(all.engines(), Some((1, 7)));
    for (backend, sampling, found) in table(&all) {
        let expected = if backend == NvJpegBackend::CudaBatched { Ability::Whole } else { Ability::Region };
        assert_eq!(found, [expected; 2], "{backend:?}, {sampling:?}: {}", all.describe(backend));
    }
    // Checks the abilities that are found if the engine is less able. Those of the other backends must stay the same.
    let engine_is = |knobs: &str, engine: &dyn Fn(Subsampling) -> [Ability; 2], reason: &str| {
        let found = abilities(knobs);
        let mut expected = table(&all);
        let of_engine = expected.iter_mut().filter(|(backend, ..)| *backend == NvJpegBackend::Hardware);
        of_engine.for_each(|(_, sampling, abilities)| *abilities = engine(*sampling));
        assert_eq!(table(&found), expected, "{knobs}");
        let described = found.describe(NvJpegBackend::Hardware);
        assert!(described.contains(reason), "{knobs}: {described}");
        found
    };
    let none = engine_is("no-hardware", &|_| [Ability::None; 2], "this GPU cannot do it (status 7)");
    assert_eq!(none.engines(), None);
    let reason = NvJpegDecoder::new(&library, &device, 1).unwrap().engines().unwrap().unwrap_err();
    assert!(reason.starts_with("nvjpegCreateExV2: this GPU cannot do it (status 7)"), "{reason}");
    engine_is(
        "no-region",
        &|_| [Ability::Whole; 2],
        "gray: whole images (unsupported image: JPEG that nvJPEG's",
    );
    // A region in the wrong place makes the engine untrusted, even if it reports success.
    engine_is("askew", &|_| [Ability::Whole; 2], "wrong samples in a region of ");
    engine_is("ignore-region", &|_| [Ability::Whole; 2], "wrong samples in a region of ");
    engine_is(
        "skip",
        &|_| [Ability::None; 2],
        "wrong samples in a region of 203×157 at (0, 0) of 203×157, image 0 of 15",
    );
    let chroma = |sampling: Subsampling| sampling.steps() != (1, 1);
    let floors = |sampling| {
        if chroma(sampling) { [Ability::None, Ability::Region] } else { [Ability::Region; 2] }
    };
    let floors = engine_is(
        "floor-chroma",
        &floors,
        "4:2:0: no, regions with even width and height (wrong samples in a region of ",
    );
    for (width, first) in [(120, NvJpegBackend::Hardware), (121, NvJpegBackend::CudaBatched)] {
        let encoding = Encoding { width, ..encoding((2, 2), 3) };
        let header = parse_header(&encode(&mut stream(6), &encoding)).unwrap();
        assert_eq!(floors.backends(&header).next(), Some(first), "{width} columns");
    }
    // If each chroma sample covers one pixel of an axis, every size is even. Sizes need not be whole blocks to be even.
    let columns = |sampling: Subsampling| {
        [Ability::None, if sampling.steps().0 == 2 { Ability::Region } else { Ability::None }]
    };
    engine_is("wrong-beside-2", &columns, "4:4:4: no (wrong samples in a region of ");
    engine_is("wrong-beside-8", &|_| [Ability::None; 2], "4:2:0: no (wrong samples in a region of ");
    let refused = [Subsampling::S440, Subsampling::Gray];
    let choosy = |sampling| [if refused.contains(&sampling) { Ability::None } else { Ability::Region }; 2];
    let choosy = engine_is("refuse-440,refuse-gray", &choosy, "4:2:0: regions; 4:4:0: no (");
    let header = parse_header(&file((1, 1), 1)).unwrap();
    assert_eq!(
        choosy.backends(&header).collect::<Vec<_>>(),
        [NvJpegBackend::CudaBatched, NvJpegBackend::Cuda]
    );
    let region = Region { x: 20, y: 20, width: 40, height: 30 };
    let decoded = |backend| choosy.layout(&header, region, backend).unwrap().decoded;
    assert_eq!(decoded(NvJpegBackend::Cuda), Region { x: 16, y: 16, width: 48, height: 40 });
    assert_eq!(decoded(NvJpegBackend::CudaBatched), header.whole());
}

#[test]
fn what_the_engine_refuses_goes_to_the_next_backend() {
    let (_cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    // Since its trial, the engine has begun to refuse some images, such as sizes or kinds that the trial did not have.
    nvjpeg.knobs("refuse-420");
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    let jobs: Vec<Job> = [((2, 2), 3), ((1, 1), 3), ((1, 1), 1), ((2, 2), 3)]
        .map(|(factors, channels)| Job { file: file(factors, channels), region: whole })
        .into();
    let decoded = lane.decode(NvJpegBackend::Hardware, &jobs).unwrap();
    for (job, (decoded, refused)) in jobs.iter().zip(decoded.iter().zip([true, false, false, true])) {
        assert_eq!(decoded.1.is_err(), refused);
        if !refused {
            assert_same(job, decoded, "in a batch with refused ones");
        }
    }
    assert!(decoded[0].1.as_ref().unwrap_err().contains("hardware"), "{:?}", decoded[0].1);
}

#[test]
fn damage_spoils_no_neighbour() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    for backend in NvJpegBackend::ALL {
        let mut jobs: Vec<Job> = (0..7).map(|_| Job { file: file((2, 2), 3), region: whole }).collect();
        // Of these files, one has damaged codes (all bits are ones, which is no code), one is truncated, and one lacks
        // its end.
        let middle = jobs[2].file.len() / 2;
        jobs[2].file[middle..middle + 40].as_chunks_mut().0.fill([0xFF, 0x00]);
        jobs[4].file.truncate(middle);
        let end = jobs[5].file.len() - 2;
        jobs[5].file.truncate(end);
        let decoded = lane.decode(backend, &jobs).unwrap();
        for (index, (job, decoded)) in jobs.iter().zip(&decoded).enumerate() {
            if [2, 4, 5].contains(&index) {
                assert!(decoded.1.is_err(), "image {index} on {}", backend.name());
            } else {
                assert_same(job, decoded, &format!("image {index} on {}", backend.name()));
            }
        }
    }
}

/// nvJPEG's parser refuses the segment after these images' coded data. The engine does not read that far, so it must
/// never get these images.
#[test]
fn the_engine_never_gets_what_the_parser_refuses() {
    let (_cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    let mut jobs: Vec<Job> = (0..9).map(|_| Job { file: file((2, 2), 3), region: whole }).collect();
    let end = jobs[4].file.len() - 2;
    // The segment is longer than the file.
    jobs[4].file.splice(end..end, [0xFF, 0xE1, 0x40, 0x00, 1, 2, 3]);
    nvjpeg.reset();
    let decoded = lane.decode(NvJpegBackend::Hardware, &jobs).unwrap();
    assert_eq!(nvjpeg.calls("nvjpegDecodeBatchedEx"), 1, "the others go in one call");
    for (index, (job, decoded)) in jobs.iter().zip(&decoded).enumerate() {
        match index {
            4 => {
                assert!(decoded.1.as_ref().unwrap_err().contains("nvjpegJpegStreamParse"), "{:?}", decoded.1)
            }
            _ => assert_same(job, decoded, &format!("image {index}")),
        }
    }
}

#[test]
fn an_image_that_fails_costs_its_batch_few_calls() {
    let (cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    let mut jobs: Vec<Job> = (0..128).map(|_| Job { file: file((2, 2), 3), region: whole }).collect();
    let middle = jobs[77].file.len() / 2;
    jobs[77].file[middle..middle + 40].as_chunks_mut().0.fill([0xFF, 0x00]);
    for (backend, call, most) in [
        (NvJpegBackend::Hardware, "nvjpegDecodeBatchedEx", 1 + 2 * 7),
        (NvJpegBackend::CudaBatched, "nvjpegDecodeBatched", 1 + 2),
    ] {
        nvjpeg.reset();
        nvjpeg.costs("virtual,huffman:2500");
        cuda.reset();
        let decoded = lane.decode(backend, &jobs).unwrap();
        assert!(nvjpeg.calls(call) <= most, "{}: {} calls", backend.name(), nvjpeg.calls(call));
        assert_eq!(nvjpeg.spent("huffman"), 0, "{}: the host decodes nothing", backend.name());
        // The kernels get at least as many images as they decode at once, so some images are in a call with the bad
        // one.
        let refused = decoded.iter().filter(|decoded| decoded.1.is_err()).count();
        assert!(
            decoded[77].1.is_err() && refused <= if backend == NvJpegBackend::Hardware { 1 } else { 64 },
            "{refused}"
        );
        for (index, (job, decoded)) in jobs.iter().zip(&decoded).enumerate().filter(|(_, (_, d))| d.1.is_ok())
        {
            assert_same(job, decoded, &format!("image {index} on {}", backend.name()));
        }
    }
}

/// Gray and colour images are separate calls: neither waits for the other, and the host sleeps while it waits.
#[test]
fn gray_and_colour_images_do_not_wait_for_each_other() {
    let (cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    let jobs = |gray: usize| -> Vec<Job> {
        let file = |number: usize| if number < gray { file((1, 1), 1) } else { file((2, 2), 3) };
        (0..14).map(|number| Job { file: file(number), region: whole }).collect()
    };
    // Buffers grow the first time.
    lane.decode(NvJpegBackend::Hardware, &jobs(7)).unwrap();
    let mut waits = |gray: usize| {
        nvjpeg.costs("engine:2000");
        cuda.reset();
        let before = ["cuStreamSynchronize", "cuEventSynchronize"].map(|call| cuda.calls(call));
        let jobs = jobs(gray);
        let decoded = lane.decode(NvJpegBackend::Hardware, &jobs).unwrap();
        for (job, decoded) in jobs.iter().zip(&decoded) {
            assert_same(job, decoded, "gray or not");
        }
        let after = ["cuStreamSynchronize", "cuEventSynchronize"].map(|call| cuda.calls(call));
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(waits(7), waits(0));
}

/// All codes of a large file are decoded, however small the region: that is too much for the host.
#[test]
fn a_crop_of_a_huge_image_costs_the_host_no_codes() {
    let (_cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let region = Region { x: 500, y: 300, width: 90, height: 80 };
    for (width, is_huge) in [(1100, true), (900, false)] {
        let file = encode(&mut stream(8), &Encoding { width, height: 1000, ..encoding((2, 2), 3) });
        let job = Job { file, region };
        assert_eq!(host_decodes_huffman(&parse_header(&job.file).unwrap()), !is_huge);
        nvjpeg.costs("virtual,huffman:2500");
        let decoded = lane.decode(NvJpegBackend::Cuda, std::slice::from_ref(&job)).unwrap();
        assert_same(&job, &decoded[0], "a crop");
        assert_eq!(nvjpeg.spent("huffman"), if is_huge { 0 } else { 2500 }, "{width} columns");
    }
}
