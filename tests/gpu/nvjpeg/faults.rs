//! Each call of nvJPEG fails in turn: an error or a refusal, never wrong planes, a crash or a leak.

use foreload::testing::decode::nvjpeg::{Abilities, Ability, NvJpegBackend, Subsampling};
use foreload::testing::decode::parse_header;

use super::files::{draw, stream};
use super::{Job, Lane, assert_same, stand_in};

const CALLS: &[&str] = &[
    "nvjpegCreateExV2",
    "nvjpegDestroy",
    "nvjpegJpegStateCreate",
    "nvjpegJpegStateDestroy",
    "nvjpegDecodeBatchedInitialize",
    "nvjpegDecodeBatchedPreAllocate",
    "nvjpegDecodeBatched",
    "nvjpegDecodeBatchedEx",
    "nvjpegDecodeBatchedSupported",
    "nvjpegDecodeBatchedSupportedEx",
    "nvjpegBufferPinnedCreateV2",
    "nvjpegBufferDeviceCreateV2",
    "nvjpegStateAttachPinnedBuffer",
    "nvjpegStateAttachDeviceBuffer",
    "nvjpegJpegStreamCreate",
    "nvjpegJpegStreamParse",
    "nvjpegDecodeParamsCreate",
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegDecoderCreate",
    "nvjpegDecoderJpegSupported",
    "nvjpegDecoderStateCreate",
    "nvjpegDecodeJpegHost",
    "nvjpegDecodeJpegTransferToDevice",
    "nvjpegDecodeJpegDevice",
];

/// All abilities of the stand-in.
fn everything() -> Abilities {
    let mut abilities = Abilities::default();
    for backend in NvJpegBackend::ALL {
        for sampling in Subsampling::ALL {
            abilities.set(backend, sampling, Ability::Region);
        }
    }
    abilities
}

fn jobs() -> Vec<Job> {
    let job = |number| {
        let file = draw(&mut stream(number), false);
        let header = parse_header(&file).unwrap();
        Job { region: header.whole(), file }
    };
    (3000..3004).map(job).collect()
}

#[test]
fn each_call_failing_spoils_at_most_its_image() {
    let (_cuda, nvjpeg) = stand_in::both();
    let jobs = jobs();
    let mut lane = Lane::new().unwrap();
    for name in CALLS.iter().filter(|name| !name.contains("Create") && !name.contains("Destroy")) {
        for backend in NvJpegBackend::ALL {
            for nth in [1, 2, 4] {
                nvjpeg.reset();
                nvjpeg.fail(name, nth, 0);
                let decoded = lane.decode(backend, &jobs).unwrap();
                let refused = decoded.iter().filter(|decoded| decoded.1.is_err()).count();
                let what = format!("{name} failing at call {nth} on {}", backend.name());
                assert!(refused <= 1, "{what}: {refused} refused");
                for (job, decoded) in jobs.iter().zip(&decoded).filter(|(_, decoded)| decoded.1.is_ok()) {
                    assert_same(job, decoded, &what);
                }
                for (_, outcome) in decoded.iter().filter(|decoded| decoded.1.is_err()) {
                    assert!(outcome.as_ref().unwrap_err().contains(name), "{what}: {outcome:?}");
                }
            }
        }
    }
    drop(lane);
    assert_eq!(nvjpeg.objects(), 0);
}

#[test]
fn a_decoder_that_cannot_be_made_leaves_nothing_behind() {
    let (_cuda, nvjpeg) = stand_in::both();
    let jobs = jobs();
    for name in CALLS.iter().filter(|name| name.contains("Create") || name.contains("PreAllocate")) {
        for nth in 1..=5 {
            nvjpeg.reset();
            nvjpeg.fail(name, nth, 0);
            match Lane::of(everything()) {
                Ok(mut lane) => {
                    for backend in NvJpegBackend::ALL {
                        // Without one of the batched backends, its images are refused.
                        match lane.decode(backend, &jobs) {
                            Ok(decoded) => {
                                let done = jobs.iter().zip(&decoded).filter(|(_, decoded)| decoded.1.is_ok());
                                for (job, decoded) in done {
                                    assert_same(job, decoded, &format!("{name} failed at call {nth}"));
                                }
                            }
                            Err(error) => assert!(error.to_string().contains(name), "{name}, {nth}: {error}"),
                        }
                    }
                }
                Err(error) => assert!(error.to_string().contains(name), "{name}, call {nth}: {error}"),
            }
            assert_eq!(nvjpeg.objects(), 0, "{name}, call {nth}");
        }
    }
}

/// The driver's failures are reported: the call loses the GPU.
#[test]
fn failures_of_the_driver_are_reported() {
    let (mut cuda, nvjpeg) = stand_in::both();
    let jobs = jobs();
    for name in [
        "cuMemAllocFromPoolAsync",
        "cuMemcpyAsync",
        "cuMemcpy2DAsync_v2",
        "cuEventRecord",
        "cuMemHostRegister_v2",
    ] {
        for backend in NvJpegBackend::ALL {
            for nth in [1, 3, 6] {
                let mut lane = Lane::of(everything()).unwrap();
                cuda.reset();
                cuda.fail(name, nth, 0);
                match lane.decode(backend, &jobs) {
                    Ok(decoded) => {
                        for (job, decoded) in
                            jobs.iter().zip(&decoded).filter(|(_, decoded)| decoded.1.is_ok())
                        {
                            assert_same(job, decoded, &format!("{name} failing at call {nth}"));
                        }
                    }
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
                drop(lane);
                assert_eq!(cuda.violations(), [""; 0], "{name}, call {nth}, {}", backend.name());
                assert_eq!(cuda.leaks(), [""; 0]);
                assert_eq!(nvjpeg.objects(), 0, "{name}, call {nth}");
            }
        }
    }
}

/// The time of a call that failed for some of its images and was split in halves must not be used as a rate of its
/// backend.
#[test]
fn a_call_that_was_halved_says_so() {
    let (_cuda, nvjpeg) = stand_in::both();
    let jobs = jobs();
    let mut lane = Lane::of(everything()).unwrap();
    for (backend, call) in [
        (NvJpegBackend::Hardware, "nvjpegDecodeBatchedEx"),
        (NvJpegBackend::CudaBatched, "nvjpegDecodeBatched"),
    ] {
        lane.decode(backend, &jobs).unwrap();
        assert!(!lane.retried_in_parts, "{call}");
        nvjpeg.fail(call, 1, 0);
        assert!(lane.decode(backend, &jobs).unwrap().iter().all(|(_, outcome)| outcome.is_ok()), "{call}");
        assert!(lane.retried_in_parts, "{call}");
        lane.decode(backend, &jobs).unwrap();
        assert!(!lane.retried_in_parts, "{call}");
    }
}

/// A backend may lack memory, or not exist. Only a backend that does not exist is given up for good.
#[test]
fn a_backend_that_could_not_be_made_is_made_once_it_can_be() {
    const NO_MEMORY: u32 = 5;
    const NOT_HERE: u32 = 7;
    let (cuda, nvjpeg) = stand_in::both();
    let jobs = jobs();
    for backend in NvJpegBackend::ALL {
        let creations: &[&str] = match backend {
            NvJpegBackend::Cuda => {
                &["nvjpegCreateExV2", "nvjpegDecoderStateCreate", "nvjpegBufferDeviceCreateV2"]
            }
            _ => &["nvjpegCreateExV2", "nvjpegJpegStateCreate"],
        };
        for &call in creations {
            for (status, is_final) in [(NO_MEMORY, false), (NOT_HERE, true)] {
                nvjpeg.reset();
                let mut lane = Lane::of(everything()).unwrap();
                nvjpeg.fail(call, 1, status);
                let what = format!("{call} with status {status} on {}", backend.name());
                for (_, outcome) in lane.decode(backend, &jobs).unwrap() {
                    assert!(outcome.unwrap_err().contains(call), "{what}");
                }
                let before = nvjpeg.calls("nvjpegCreateExV2");
                let again = lane.decode(backend, &jobs).unwrap();
                assert_eq!(nvjpeg.calls("nvjpegCreateExV2") - before, u64::from(!is_final), "{what}");
                for (job, decoded) in jobs.iter().zip(&again) {
                    match is_final {
                        true => assert!(decoded.1.is_err(), "{what}"),
                        false => assert_same(job, decoded, &what),
                    }
                }
            }
        }
    }
    // The memory of the driver can run short, too.
    let mut lane = Lane::of(everything()).unwrap();
    for backend in NvJpegBackend::ALL {
        cuda.fail("cuEventCreate", 2, 2);
        let refused = lane.decode(backend, &jobs).unwrap();
        assert!(refused.iter().all(|(_, outcome)| outcome.is_err()), "{}", backend.name());
        for (job, decoded) in jobs.iter().zip(&lane.decode(backend, &jobs).unwrap()) {
            assert_same(job, decoded, backend.name());
        }
    }
}
