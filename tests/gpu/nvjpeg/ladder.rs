//! Who decodes what: by the GPU, by what the engine takes, and by what turns out to be wrong.

use foreload::decode::nvjpeg::{Abilities, Ability, Decoder, Library, Rung, Subsampling};
use foreload::decode::{Region, parse_header};
use foreload::gpu::Device;
use libjpeg_reference::Encoding;

use super::files::{encode, stream};
use super::{Job, Lane, assert_same, stand_in};

fn file(factors: (u32, u32), channels: usize) -> Vec<u8> {
    let encoding = Encoding {
        width: 120,
        height: 90,
        channels,
        factors,
        quality: 85,
        restart_interval: 0,
        optimised: false,
        progressive: false,
    };
    encode(&mut stream(5), &encoding)
}

#[test]
fn what_a_gpu_can_do_is_found_out_by_trying() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let (library, device) = (Library::load().unwrap(), Device::open(0).unwrap());
    let abilities = |knobs: &str| {
        nvjpeg.knobs(knobs);
        Abilities::probe(&library, &device).unwrap()
    };
    let all = abilities("");
    assert_eq!(Decoder::new(&library, &device, 1).unwrap().engines(), Ok((1, 7)));
    for rung in Rung::ALL {
        for sampling in Subsampling::ALL {
            assert_eq!(all.get(rung, sampling), Ability::Region, "{rung:?}, {sampling:?}");
        }
    }
    let mut expected = all;
    Subsampling::ALL.iter().for_each(|&sampling| expected.set(Rung::Hardware, sampling, Ability::None));
    assert_eq!(abilities("no-hardware"), expected);
    let reason = Decoder::new(&library, &device, 1).unwrap().engines().unwrap_err();
    assert!(reason.starts_with("nvjpegCreateExV2: this GPU cannot do it (status 7)"), "{reason}");
    Subsampling::ALL.iter().for_each(|&sampling| expected.set(Rung::Hardware, sampling, Ability::Whole));
    assert_eq!(abilities("no-region"), expected);
    assert_eq!(abilities("askew"), expected, "regions that land beside where they should are not trusted");
    let mut expected = all;
    Subsampling::ALL.iter().for_each(|&sampling| expected.set(Rung::Hardware, sampling, Ability::None));
    assert_eq!(abilities("skip"), expected, "success is not believed");
    let mut expected = all;
    expected.set(Rung::Hardware, Subsampling::S440, Ability::None);
    expected.set(Rung::Hardware, Subsampling::Gray, Ability::None);
    assert_eq!(abilities("refuse-440,refuse-gray"), expected);
    let header = parse_header(&file((1, 1), 1)).unwrap();
    assert_eq!(expected.rungs(&header).collect::<Vec<_>>(), [Rung::CudaBatched, Rung::Cuda]);
    let region = Region { x: 20, y: 20, width: 40, height: 30 };
    let layout = |abilities: &Abilities| abilities.layout(&header, region, Rung::Cuda).unwrap();
    assert_eq!(layout(&expected).decoded, Region { x: 16, y: 16, width: 48, height: 40 });
}

#[test]
fn the_engines_refusal_is_the_next_rungs_turn() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let mut lane = Lane::new().unwrap();
    // It has become choosy since it was tried: an image of a size or kind that the trials did not have.
    nvjpeg.knobs("refuse-420");
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    let jobs: Vec<Job> = [((2, 2), 3), ((1, 1), 3), ((1, 1), 1), ((2, 2), 3)]
        .map(|(factors, channels)| Job { file: file(factors, channels), region: whole })
        .into();
    let decoded = lane.decode(Rung::Hardware, &jobs).unwrap();
    for (job, (decoded, refused)) in jobs.iter().zip(decoded.iter().zip([true, false, false, true])) {
        assert_eq!(decoded.1.is_err(), refused);
        if !refused {
            assert_same(job, decoded, "beside refused ones");
        }
    }
    assert!(decoded[0].1.as_ref().unwrap_err().contains("hardware"), "{:?}", decoded[0].1);
}

#[test]
fn damage_spoils_no_neighbour() {
    let cuda = stand_in::cuda();
    let _nvjpeg = stand_in::nvjpeg(&cuda);
    let mut lane = Lane::new().unwrap();
    let whole = Region { x: 0, y: 0, width: 120, height: 90 };
    for rung in Rung::ALL {
        let mut jobs: Vec<Job> = (0..7).map(|_| Job { file: file((2, 2), 3), region: whole }).collect();
        // The codes of one are damaged (only ones: no code is), one is cut, one's end is missing.
        let middle = jobs[2].file.len() / 2;
        jobs[2].file[middle..middle + 40].as_chunks_mut().0.fill([0xFF, 0x00]);
        jobs[4].file.truncate(middle);
        let end = jobs[5].file.len() - 2;
        jobs[5].file.truncate(end);
        let decoded = lane.decode(rung, &jobs).unwrap();
        for (index, (job, decoded)) in jobs.iter().zip(&decoded).enumerate() {
            if [2, 4, 5].contains(&index) {
                assert!(decoded.1.is_err(), "image {index} on {}", rung.name());
            } else {
                assert_same(job, decoded, &format!("image {index} on {}", rung.name()));
            }
        }
    }
}
