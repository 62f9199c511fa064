//! Files that settings name can be on servers, too.

use super::{Served, pipeline, two_epochs};
use crate::common::{Dataset, small_images};
use foreload::Labels;
use foreload::testing::config::LoaderOptions;
use range_server::{Access, Options};
use std::fmt::Write;
use std::path::PathBuf;

const SAMPLES: usize = 40;

#[test]
fn labels_and_lists_of_files_at_urls_are_those_of_the_files() {
    let access = Some(Access::Query("sig=geheim".to_owned()));
    let served = Served::with(Dataset::folder(SAMPLES), Options { access, ..Options::default() });
    let (mut labels, mut list) = ("sample_id,label\n".to_owned(), String::new());
    for sample in 0..SAMPLES {
        writeln!(labels, "{sample},{}", 100 + sample).unwrap();
        let path = served.dataset.path(sample);
        let path = path.strip_prefix(served.dataset.beside("data")).unwrap().to_str().unwrap().to_owned();
        if sample % 3 != 0 {
            writeln!(list, "{path}").unwrap();
        }
    }
    let (labels, list) = (served.write("labels.csv", &labels), served.write("list.txt", &list));
    let of = |labels: PathBuf, list: PathBuf| LoaderOptions {
        labels: Some(Labels::File(labels)),
        files: Some(list),
        ..small_images()
    };
    let url = |name: &str| PathBuf::from(format!("{}?sig=geheim", served.url(name)));
    let read = |options: &LoaderOptions| two_epochs(&pipeline(served.dataset.index(), options));
    assert_eq!(read(&of(url("labels.csv"), url("list.txt"))), read(&of(labels, list)));
    for (labels, list, said) in [
        ("none.csv", "list.txt", "labels: "),
        ("labels.csv", "none.txt", "files: "),
        ("list.txt", "list.txt", "must be a file that ends in"),
        ("labels.csv", "data/", "files: "),
    ] {
        let error = of(url(labels), url(list)).check(&served.dataset.index()).err().unwrap().to_string();
        assert!(error.contains(said) && error.contains("http://127.0.0.1"), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }
}

#[test]
fn reads_from_servers_are_as_many_as_slots_have_room_for() {
    const MIB: usize = 1 << 20;
    let dataset = Dataset::folder(SAMPLES);
    let file = std::fs::OpenOptions::new().write(true).open(dataset.path(0)).unwrap();
    file.set_len(8 << 20).unwrap();
    let served = Served::with(dataset.indexed_anew(), Options::default());
    let sizes = |index, options| {
        let pipeline = pipeline(index, &options);
        (pipeline.config().queue_depth, pipeline.config().pools.slot_bytes)
    };
    let (fewest, small) = sizes(served.index(), LoaderOptions { queue_depth: Some(64), ..small_images() });
    assert!(fewest == 64 && small < 60 * MIB, "{small}");
    // With a mean of 0.2 MB there is room for 160 reads; 16 more slots are for the workers.
    let (depth, slots) = sizes(served.index(), small_images());
    assert!((150..170).contains(&depth) && (96..103).contains(&(slots / MIB)), "{depth}, {slots}");
    let (less, slots) = sizes(served.index(), LoaderOptions { memory: Some(80 << 20), ..small_images() });
    assert!((64..depth).contains(&less) && slots < 80 * MIB, "{less}, {slots}");
    let (fewest, _) = sizes(served.index(), LoaderOptions { memory: Some(30 << 20), ..small_images() });
    assert_eq!(fewest, 64);
    let (local, slots) = sizes(served.dataset.index(), small_images());
    assert!(local == 32 && slots <= small, "drives need no more");
    let (most, _) = sizes(Served::with(Dataset::folder(SAMPLES), Options::default()).index(), small_images());
    assert_eq!(most, 256, "small files");
}
