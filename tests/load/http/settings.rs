//! Files that settings name lie on servers, too.

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
