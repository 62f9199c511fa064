//! A rung that decodes nothing any more is left alone for pauses that grow, and serves again once it can.

use foreload::config::{LoaderOptions, Rungs};
use foreload::decode::nvjpeg::Rung;

use super::faults::{everything, jobs};
use super::{Lane, assert_same, stand_in};
use crate::common::Dataset;
use crate::pipeline::{epoch, options, pipeline};

/// Calls of a decoder that fails all the time.
const CALLS: u64 = 100;

/// Of these it is asked in the 1st, 2nd, 3rd, 5th, 8th, 13th, 22nd, 39th and 72nd, between which pauses double.
const ASKED: u64 = 9;

#[test]
fn a_rung_that_decodes_nothing_is_asked_less_and_less() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let jobs = jobs();
    for (rung, call) in [
        (Rung::Hardware, "nvjpegDecodeBatchedEx"),
        (Rung::CudaBatched, "nvjpegDecodeBatched"),
        (Rung::Cuda, "nvjpegDecodeJpegHost"),
    ] {
        nvjpeg.reset();
        let mut lane = Lane::of(everything()).unwrap();
        lane.decode(rung, &jobs).unwrap();
        nvjpeg.knobs(&format!("broken-{call}"));
        let before = nvjpeg.calls(call);
        let mut each = None;
        for number in 0..CALLS {
            for (_, outcome) in lane.decode(rung, &jobs).unwrap() {
                assert!(
                    outcome.unwrap_err().contains(call),
                    "{call}, {number}: the reason is said of each image"
                );
            }
            // A call for all, its halves, and theirs.
            each.get_or_insert(nvjpeg.calls(call) - before);
        }
        assert_eq!(Some(nvjpeg.calls(call) - before), each.map(|each| ASKED * each), "{call}");
        // What took the GPU's engine, say, has ended: after the pause of 64 all is as it was.
        nvjpeg.knobs("");
        let mut again = (0..CALLS).map(|_| lane.decode(rung, &jobs).unwrap());
        let paused = again.by_ref().take_while(|decoded| decoded.iter().all(|one| one.1.is_err())).count();
        assert_eq!(paused as u64, 72 + 64 - CALLS, "{call}");
        for decoded in again {
            for (job, decoded) in jobs.iter().zip(&decoded) {
                assert_same(job, decoded, call);
            }
        }
    }
}

/// What a call took that failed for some of its images, and was halved, is no measure of its rung.
#[test]
fn a_call_that_was_halved_says_so() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let jobs = jobs();
    let mut lane = Lane::of(everything()).unwrap();
    for (rung, call) in
        [(Rung::Hardware, "nvjpegDecodeBatchedEx"), (Rung::CudaBatched, "nvjpegDecodeBatched")]
    {
        lane.decode(rung, &jobs).unwrap();
        assert!(!lane.in_parts, "{call}");
        nvjpeg.fail(call, 1, 0);
        assert!(lane.decode(rung, &jobs).unwrap().iter().all(|(_, outcome)| outcome.is_ok()), "{call}");
        assert!(lane.in_parts, "{call}");
        lane.decode(rung, &jobs).unwrap();
        assert!(!lane.in_parts, "{call}");
    }
}

#[test]
fn a_rung_that_lacks_memory_is_made_less_and_less_often() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let jobs = jobs();
    for rung in Rung::ALL {
        nvjpeg.reset();
        let mut lane = Lane::of(everything()).unwrap();
        nvjpeg.knobs("no-memory-nvjpegCreateExV2");
        for _ in 0..CALLS {
            for (_, outcome) in lane.decode(rung, &jobs).unwrap() {
                assert!(outcome.unwrap_err().contains("nvjpegCreateExV2: no memory"), "{}", rung.name());
            }
        }
        assert_eq!(nvjpeg.calls("nvjpegCreateExV2"), ASKED, "{}", rung.name());
    }
}

/// Images that are damaged are no fault of the rung's, however many come in a row.
#[test]
fn a_rung_that_gets_damaged_images_alone_has_no_pause() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let mut damaged = jobs();
    for job in &mut damaged {
        // The quantisation table's marker: the file has none any more.
        let table = job.file.windows(2).position(|two| two == [0xFF, 0xDB]).unwrap();
        job.file[table + 1] = 0xEC;
    }
    for rung in Rung::ALL {
        let mut lane = Lane::of(everything()).unwrap();
        for number in 0..10 {
            for (_, outcome) in lane.decode(rung, &damaged).unwrap() {
                let said = outcome.unwrap_err();
                assert!(said.contains("the JPEG is damaged"), "{}, {number}: {said}", rung.name());
            }
        }
        for (job, decoded) in jobs().iter().zip(&lane.decode(rung, &jobs()).unwrap()) {
            assert_same(job, decoded, rung.name());
        }
    }
    assert!(nvjpeg.calls("nvjpegDecodeBatchedEx") > 0);
}

/// A whole training goes on without the engine, says so once, and has it back when it works again.
#[test]
fn a_training_goes_on_while_its_engine_does_not() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { batch_size: 16, ..options() };
    let pipeline = pipeline(&dataset, &asked, Rungs::All);
    let by_rung = |number| {
        let stats = epoch(&pipeline, number).1;
        (stats.gpu.decoded_hardware, stats.decoded_cpu())
    };
    assert_eq!(by_rung(0), (16, 0));
    nvjpeg.knobs("broken-nvjpegDecodeBatchedEx");
    let before = nvjpeg.calls("nvjpegDecodeBatchedEx");
    assert!((1..20).all(|number| by_rung(number) == (0, 16)));
    assert_eq!(
        nvjpeg.calls("nvjpegDecodeBatchedEx") - before,
        6 * 31,
        "the 1st, 2nd, 3rd, 5th, 8th and 13th"
    );
    let said = pipeline.index().notices().take();
    let paused: Vec<_> = said.iter().filter(|said| said.contains("left alone")).collect();
    assert_eq!(paused.len(), 1, "{said:?}");
    assert!(
        paused[0].contains("nvjpegDecodeBatchedEx") && paused[0].contains("FORELOAD_GPU_RUNG"),
        "{said:?}"
    );
    nvjpeg.knobs("");
    assert!((20..24).any(|number| by_rung(number) == (16, 0)), "the pause of 8 ends with the 21st");
}
