//! The planes of each backend are those of the CPU.

use foreload::testing::decode::nvjpeg::NvJpegBackend;
use foreload::testing::decode::parse_header;
use std::path::PathBuf;

use super::files::{draw, region, stream};
use super::{Job, Lane, assert_same, stand_in};

fn job(number: u64, progressive: bool) -> Job {
    let random = &mut stream(number);
    let file = draw(random, progressive);
    let header = parse_header(&file).unwrap();
    Job { region: region(random, header.width, header.height), file }
}

#[test]
fn every_backend_gives_the_cpus_planes() {
    let (_cuda, nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    for batch in 0..6 {
        let jobs: Vec<Job> = (0..20).map(|image| job(100 * batch + image, false)).collect();
        for backend in NvJpegBackend::ALL {
            assert!(jobs.iter().all(|job| lane.backends(&job.file).contains(&backend)));
            let decoded = lane.decode(backend, &jobs).unwrap();
            for (number, (job, decoded)) in jobs.iter().zip(&decoded).enumerate() {
                assert_same(
                    job,
                    decoded,
                    &format!("image {} on {}", 100 * batch + number as u64, backend.name()),
                );
            }
        }
    }
    for (call, calls) in [("nvjpegDecodeBatchedEx", 5), ("nvjpegDecodeBatched", 5)] {
        assert!(
            nvjpeg.calls(call) <= calls + 2 * 6,
            "{call}: {} calls: batches, not images",
            nvjpeg.calls(call)
        );
        assert!(nvjpeg.calls(call) >= 6, "{call}");
    }
    drop(lane);
    assert_eq!(nvjpeg.objects(), 0);
}

#[test]
fn progressive_images_are_for_cuda() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let jobs: Vec<Job> = (900..912).map(|number| job(number, true)).collect();
    assert!(jobs.iter().all(|job| lane.backends(&job.file) == [NvJpegBackend::Cuda]));
    for (job, decoded) in jobs.iter().zip(&lane.decode(NvJpegBackend::Cuda, &jobs).unwrap()) {
        assert_same(job, decoded, "progressive");
    }
}

/// A corpus of hostile and odd files, where the checkout has one.
#[test]
fn the_corpus_decodes_as_on_the_cpu_or_is_refused() {
    let shared = std::env::var_os("FORELOAD_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let mut paths: Vec<PathBuf> = ["jpeg-decoder", "zune-image"]
        .iter()
        .filter_map(|name| std::fs::read_dir(shared.join("jpegs").join(name)).ok())
        .flat_map(|entries| entries.map(|entry| entry.unwrap().path()))
        .collect();
    paths.sort();
    if paths.is_empty() {
        assert!(std::env::var_os("FORELOAD_REQUIRE_SHARED").is_none(), "no corpus in {}", shared.display());
        println!("skipped: no corpus in {}", shared.display());
        return;
    }
    let (_cuda, _nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let mut decoded = 0;
    for (number, path) in paths.iter().enumerate() {
        let file = std::fs::read(path).unwrap();
        let header = match parse_header(&file) {
            Ok(header) if header.width * header.height < 10_000_000 => header,
            _ => continue,
        };
        let job = Job { region: region(&mut stream(number as u64), header.width, header.height), file };
        for backend in lane.backends(&job.file) {
            let what = format!("{} on {}", path.display(), backend.name());
            let results = lane.decode(backend, std::slice::from_ref(&job)).unwrap();
            match &results[0].1 {
                Ok(_) => {
                    assert_same(&job, &results[0], &what);
                    decoded += 1;
                }
                Err(error) => println!("{what}: {error}"),
            }
        }
    }
    assert!(decoded >= 30, "{decoded} decoded");
}

#[test]
fn nothing_is_allocated_once_all_sizes_were_seen() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let mut lane = Lane::new().unwrap();
    let jobs: Vec<Job> = (2000..2020).map(|number| job(number, false)).collect();
    let all = |lane: &mut Lane| {
        for backend in NvJpegBackend::ALL {
            lane.decode(backend, &jobs).unwrap();
        }
        lane.decoder.allocations()
    };
    all(&mut lane);
    let warm = all(&mut lane);
    for _ in 0..5 {
        assert_eq!(all(&mut lane), warm);
    }
}

#[test]
fn lanes_decode_side_by_side() {
    let (_cuda, nvjpeg) = stand_in::both();
    std::thread::scope(|scope| {
        for number in 0..3 {
            scope.spawn(move || {
                let mut lane = Lane::new().unwrap();
                let jobs: Vec<Job> = (0..12).map(|image| job(4000 + 100 * number + image, false)).collect();
                for backend in NvJpegBackend::ALL.into_iter().cycle().take(6) {
                    for (job, decoded) in jobs.iter().zip(&lane.decode(backend, &jobs).unwrap()) {
                        assert_same(job, decoded, &format!("lane {number} on {}", backend.name()));
                    }
                }
            });
        }
    });
    assert_eq!(nvjpeg.objects(), 0);
}
