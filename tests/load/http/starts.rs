//! The requests of a start, and its result if responses are wrong, late or missing.

use super::Served;
use crate::common::scene::summary;
use crate::common::{Dataset, wait_until};
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SAMPLES: usize = 60;

/// Builds a new index of the dataset at a URL.
fn anew(served: &Served, url: &str) -> foreload::Result<DatasetIndex> {
    let directory = Some(served.dataset.beside("http-index"));
    DatasetIndex::open(url.as_ref(), &IndexOptions { directory, rebuild: true, ..IndexOptions::default() })
}

/// The number of requests for a path.
fn asked(served: &Served, path: &str) -> u64 {
    served.server.stats().paths.get(path).map_or(0, |path| path.requests)
}

#[test]
fn wrong_answers_while_indexing_are_asked_for_again() {
    let of_files = ["status:0.1:503", "hang-up:0.1"];
    let of_bodies = [
        "status:0.2:503",
        "cut:0.2:300",
        "reset:0.2:300",
        "range-start:0.2:1",
        "range-start:0.2:-7",
        "range-total:first=2:5",
        "length:first=1:-3",
        "whole:0.2",
        "/data/shard etag:first=1",
        "hang-up:0.2",
    ];
    let datasets = [(Dataset::shards(SAMPLES, 25), &of_bodies[..]), (Dataset::folder(SAMPLES), &of_files)];
    for (dataset, faults) in datasets {
        let expected = dataset.index().fingerprint();
        let served = Served::new(dataset);
        for fault in faults {
            served.fail(&[fault]);
            let index = anew(&served, &served.url("data")).unwrap_or_else(|error| panic!("{fault}: {error}"));
            assert!(index.fingerprint() == expected, "{fault}");
        }
    }
}

#[test]
fn what_stays_wrong_while_indexing_is_said() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    for (fault, said) in [
        ("range-total:always:5", "the file has changed"),
        ("whole:always", "supports range requests (tried 8 times)"),
        ("status:always:403", "the credentials are missing"),
    ] {
        served.fail(&[&format!("/data/shard {fault}")]);
        let told = anew(&served, &served.url("data")).err().unwrap().to_string();
        assert!(told.contains("shard-00") && told.contains(said), "{fault}: {told}");
    }
}

/// A simple server without `HEAD` and ranges, as a few lines of code make one in many languages: it sends whole files,
/// with or without their length. Counts the requests for files.
fn plain_server(tells_length: bool) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/a.tar", listener.local_addr().unwrap());
    let gets = Arc::new(AtomicU64::new(0));
    let counted = gets.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let length = if tells_length { "Content-Length: 5000\r\n" } else { "" };
            let (head, body) = match request.starts_with("GET") {
                true => (format!("HTTP/1.1 200 OK\r\n{length}"), vec![b'x'; 5000]),
                false => ("HTTP/1.1 501 Unsupported method\r\nContent-Length: 0\r\n".to_owned(), Vec::new()),
            };
            counted.fetch_add(u64::from(!body.is_empty()), Ordering::SeqCst);
            let head = format!("{head}Connection: close\r\n\r\n");
            // The client may hang up after it has read enough.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    (url, gets)
}

#[test]
fn a_server_that_knows_neither_head_nor_ranges_is_asked_once() {
    let directory = tempfile::tempdir().unwrap();
    for tells_length in [true, false] {
        let (url, gets) = plain_server(tells_length);
        let options = IndexOptions { directory: Some(directory.path().into()), ..IndexOptions::default() };
        let error = DatasetIndex::open(url.as_ref(), &options).err().unwrap().to_string();
        assert!(error.ends_with("use a server that supports range requests"), "{error}");
        assert_eq!(gets.load(Ordering::SeqCst), 1, "{tells_length}");
    }
}

#[test]
fn a_list_and_its_stamp_are_of_one_answer() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    served.write("data/list.txt", "shard-000.tar\n");
    let url = served.url("data/list.txt");
    // One request, because the list might be replaced between two responses.
    assert_eq!(served.open(&url).unwrap().len(), 25);
    assert_eq!(asked(&served, "/data/list.txt"), 1);
    let origin = |index: &DatasetIndex| summary(index).origin;
    let loaded = served.open(&url).unwrap();
    assert_eq!(serde_json::to_value(origin(&loaded)).unwrap()["origin"], "loaded");
    served.write("data/list.txt", "shard-002.tar\n");
    assert_eq!(served.open(&url).unwrap().len(), 10);
}

#[test]
fn what_a_listing_has_not_is_not_asked_for() {
    let served = Served::new(Dataset::folder(SAMPLES));
    served.index();
    for name in ["index.json", "state.json", "foreload-packed.json", "README.md"] {
        assert_eq!(asked(&served, &format!("/data/{name}")), 0, "{name}");
    }
}

/// A Parquet file of two rows.
fn parquet() -> Vec<u8> {
    let fixture = "tests/fixtures/snapshot/single/files/data/train-00000-of-00001.parquet";
    std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(fixture)).unwrap()
}

#[test]
fn what_changes_beside_shards_has_them_parsed_again_only_where_it_describes_them() {
    let served = Served::new(Dataset::shards(1, 1));
    std::fs::create_dir(served.dataset.beside("tables")).unwrap();
    std::fs::write(served.dataset.beside("tables/x.parquet"), parquet()).unwrap();
    served.write("tables/README.md", "# A dataset\n");
    let open = || {
        let before = asked(&served, "/tables/x.parquet");
        assert_eq!(served.open(&served.url("tables")).unwrap().len(), 2);
        asked(&served, "/tables/x.parquet") - before
    };
    open();
    // Only its stamp is checked.
    assert_eq!(open(), 1);
    served.write("tables/notes.txt", "new");
    // The first call takes the lock of the index and checks the stamp twice: before and after.
    assert_eq!(open(), 2);
    assert_eq!(open(), 1);
    served.write("tables/README.md", "# Another text\n");
    assert!(open() > 2);
    assert_eq!(open(), 1);
}

#[test]
fn tables_are_parsed_a_few_at_a_time() {
    let fixture = parquet();
    let served = Served::new(Dataset::shards(1, 1));
    std::fs::create_dir(served.dataset.beside("tables")).unwrap();
    for number in 0..40 {
        std::fs::write(served.dataset.beside(&format!("tables/{number:02}.parquet")), &fixture).unwrap();
    }
    served.fail(&["/tables/ mute:always:0.05"]);
    let index = served.open(&served.url("tables")).unwrap();
    assert_eq!(index.len(), 80);
    let most = served.server.stats().most_requests;
    assert!((5..=16).contains(&most), "{most}");
}

#[test]
fn a_server_that_does_not_answer_is_told_of_and_can_be_left() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    let directory = Some(served.dataset.beside("http-index"));
    let options = IndexOptions { directory, ..IndexOptions::default() };
    served.fail(&["mute:first=1:7"]);
    let url = served.url("data");
    let index = DatasetIndex::open(url.as_ref(), &options).unwrap();
    let told = index.notices().take();
    let waits = told.iter().filter(|told| told.contains("has not answered a request for 5 s")).count();
    assert!(waits == 1 && told[0].contains(&url), "{told:?}");
    // An interrupted request is not repeated.
    served.fail(&["mute:always:600"]);
    let (cancel, before) = (Arc::new(AtomicBool::new(false)), served.requests());
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("it asks the server", || served.requests() > before);
            cancel.store(true, Ordering::SeqCst);
        });
        DatasetIndex::open_all(&[&url], &options, &cancel)
    });
    let told = result.err().unwrap().to_string();
    assert!(told.contains("indexing was interrupted"), "{told}");
    assert_eq!(served.requests() - before, 1);
}

#[test]
fn what_a_query_names_is_a_dataset_of_its_own_and_signatures_are_not() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    let index = |query: &str| {
        let index = served.open(&format!("{}?{query}", served.url("data/shard-000.tar"))).unwrap();
        summary(&index).index_path
    };
    let first = index("file=a&X-Amz-Signature=0123");
    assert_eq!(first, index("X-Amz-Signature=4567&file=a"));
    assert_ne!(first, index("file=b&X-Amz-Signature=0123"));
    assert_eq!(index("sv=1&sig=secret"), index(""));
    let options =
        IndexOptions { directory: Some(served.dataset.beside("http-index")), ..IndexOptions::default() };
    let open = |queries: [&str; 2]| {
        let roots = queries.map(|query| format!("{}?{query}", served.url("data/shard-000.tar")));
        DatasetIndex::open_all(&roots, &options, &Arc::default()).map(|index| index.len())
    };
    assert_eq!(open(["file=a", "file=b"]).unwrap(), 50);
    assert!(open(["token=a", "token=b"]).unwrap_err().to_string().contains("is given twice"));
}
