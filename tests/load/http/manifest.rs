//! A manifest gives the same batches as a directory with the same files in its order, wherever the manifest and the
//! files are stored. It cannot make the user's machine read places that the manifest's author must not reach.

use super::{Served, failure, pipeline, two_epochs};
use crate::common::{Dataset, jpeg, small_images};
use foreload::Shuffling;
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use range_server::{Access, Options, RangeServer};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

const SAMPLES: usize = 60;

/// The lines of a manifest with a class for each file. `name` makes the name of a file from its path below the
/// directory.
fn manifest(dataset: &Dataset, name: impl Fn(usize, &str) -> String) -> String {
    let mut text = "class,file_name,number\n".to_owned();
    for sample in 0..SAMPLES {
        let path = dataset.path(sample);
        let path = path.strip_prefix(dataset.beside("data")).unwrap().to_str().unwrap().to_owned();
        let class = path.split('/').next().unwrap();
        writeln!(text, "{class},{},{sample}", name(sample, &path)).unwrap();
    }
    text
}

fn local(dataset: &Dataset, path: &Path) -> Arc<DatasetIndex> {
    let options = IndexOptions { directory: Some(dataset.beside("index")), ..IndexOptions::default() };
    Arc::new(DatasetIndex::open(path, &options).unwrap())
}

#[test]
fn batches_are_those_of_the_directory() {
    let options = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let dataset = Dataset::folder(SAMPLES);
    let (expected, classes) = (two_epochs(&dataset.pipeline(&options)), dataset.index().classes().to_vec());
    let served = Served::new(dataset);
    let dataset = &served.dataset;
    let (data, url) = (dataset.beside("data"), served.url("data"));
    let relative = |_: usize, path: &str| path.to_owned();
    served.write("data/relative.csv", &manifest(dataset, relative));
    let absolute = |_: usize, path: &str| format!("{}/{path}", data.display());
    let of_server = |_: usize, path: &str| format!("{url}/{path}");
    let mixed = |sample: usize, path: &str| match sample % 3 {
        0 => path.to_owned(),
        1 => absolute(sample, path),
        _ => of_server(sample, path),
    };
    let on_server = |sample: usize, path: &str| match sample % 2 {
        0 => format!("./{path}"),
        _ => of_server(sample, path),
    };
    let check = |index: Arc<DatasetIndex>, what: &str| {
        assert_eq!((index.len(), index.classes()), (SAMPLES as u64, &classes[..]), "{what}");
        assert!(two_epochs(&pipeline(index, &options)) == expected, "{what}");
    };
    let mut prints = Vec::new();
    for (what, text) in [
        ("relative", manifest(dataset, relative)),
        ("absolute", manifest(dataset, absolute)),
        ("urls", manifest(dataset, of_server)),
        ("mixed", manifest(dataset, mixed)),
    ] {
        let path = served.write(&format!("data/{what}.csv"), &text);
        let index = local(dataset, &path);
        prints.push(index.fingerprint());
        check(index, what);
        // The loaded index equals the built one.
        let again = local(dataset, &path);
        assert_eq!(prints.last(), Some(&again.fingerprint()));
        check(again, what);
    }
    served.write("data/on-server.csv", &manifest(dataset, on_server));
    for name in ["data/relative.csv", "data/on-server.csv"] {
        let index = served.open(&served.url(name)).unwrap();
        prints.push(index.fingerprint());
        check(index, name);
    }
    // The names are those in the manifest, so it is the same dataset wherever the manifest is stored.
    assert_eq!(prints[0], prints[4]);
    assert_eq!(prints.iter().collect::<std::collections::HashSet<_>>().len(), 5);
}

#[test]
fn coco_annotations_list_files_of_a_server() {
    let options = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let served = Served::new(Dataset::folder(SAMPLES));
    let dataset = &served.dataset;
    let names: Vec<String> = manifest(dataset, |_, path| path.to_owned())
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().to_owned())
        .collect();
    let path = served.write("data/plain.csv", &format!("file_name\n{}\n", names.join("\n")));
    let expected = two_epochs(&pipeline(local(dataset, &path), &options));
    let image = |(id, name): (usize, &String)| format!("{{\"id\": {id}, \"file_name\": \"{name}\"}}");
    let images: Vec<String> = names.iter().enumerate().map(image).collect();
    let text = format!("{{\"images\": [{}]}}", images.join(","));
    let path = served.write("data/annotations.json", &text);
    let of_server = served.open(&served.url("data/annotations.json")).unwrap();
    for index in [local(dataset, &path), of_server] {
        assert!(two_epochs(&pipeline(index, &options)) == expected);
    }
    let apart = dataset.beside("apart");
    std::fs::create_dir(&apart).unwrap();
    let path = apart.join("annotations.json");
    std::fs::write(&path, text).unwrap();
    let open = |images: Option<String>| {
        let directory = Some(dataset.beside("index"));
        DatasetIndex::open(&path, &IndexOptions { directory, images, ..IndexOptions::default() })
    };
    for images in [dataset.beside("data").to_str().unwrap().to_owned(), served.url("data")] {
        let index = Arc::new(open(Some(images)).unwrap());
        assert!(two_epochs(&pipeline(index, &options)) == expected);
    }
    let error = open(None).err().unwrap().to_string();
    assert!(error.contains("in none of the usual places") && error.contains("set images="), "{error}");
}

#[test]
fn a_cache_over_files_of_several_places_holds_them_all() {
    let dataset = Dataset::folder(SAMPLES);
    let plain = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let expected = two_epochs(&dataset.pipeline(&plain));
    let options = dataset.cached(4.0, plain);
    let served = Served::new(dataset);
    let url = served.url("data");
    let mixed = |sample: usize, path: &str| match sample % 2 {
        0 => path.to_owned(),
        _ => format!("{url}/{path}"),
    };
    let path = served.write("data/mixed.csv", &manifest(&served.dataset, mixed));
    for run in 0..2 {
        let pipeline = pipeline(local(&served.dataset, &path), &options);
        assert!(two_epochs(&pipeline) == expected, "run {run}");
        pipeline.cache().expect("a cache").flush();
        let before = served.requests();
        assert!(two_epochs(&pipeline) == expected);
        assert_eq!(served.requests(), before, "run {run}");
    }
}

#[test]
fn what_a_manifest_says_wrong_is_said_with_its_line() {
    let served = Served::new(Dataset::folder(SAMPLES));
    let url = served.url("data");
    std::fs::create_dir(served.dataset.beside("data/class.jpg")).unwrap();
    let first = served.dataset.path(0);
    let file = first.strip_prefix(served.dataset.beside("data")).unwrap().to_str().unwrap();
    for (text, said) in [
        (format!("path\n{file}\nno.jpg\n{file}\nneither.jpg\n"), "line 3: its column \"path\" names"),
        (format!("path\n{file}\nno.jpg\n{file}\nneither.jpg\n"), "and 1 others name missing files"),
        (format!("path,n\n{file},1\n,2\n"), "line 3: has no \"path\""),
        (
            format!("path\n{file}\nfile:///etc/hostname\n"),
            "line 3: names file:///etc/hostname, which has an unsupported URL scheme",
        ),
        (
            format!("path\n{file}\n/etc/hostname\n"),
            "line 3: its column \"path\" names /etc/hostname, which does not",
        ),
        (format!("path\n{file}\nclass.jpg\n"), "line 3: its column \"path\" names"),
        ("a,b\n1,2\n".to_owned(), "has no column that names its files"),
        ("path\n".to_owned(), "lists no file"),
        ("path,path\na,b\n".to_owned(), "has two columns"),
        ("path\nhttp://u:geheim@h:x/a\n".to_owned(), "line 2: names http://h:x/a, which has a port"),
        ("path\nhttp://169.254.169.254/latest/meta-data\n".to_owned(), "a link-local address"),
        ("path\nhttp://[::ffff:169.254.169.254]/latest\n".to_owned(), "a link-local address"),
        (format!("path\n{url}/no.jpg?sig=geheim\n"), "data/no.jpg?, which is not an existing file"),
    ] {
        let path = served.write("data/wrong.csv", &text);
        let options =
            IndexOptions { directory: Some(served.dataset.beside("index")), ..IndexOptions::default() };
        let error = DatasetIndex::open(&path, &options).err().unwrap().to_string();
        assert!(error.contains(said) && !error.contains("geheim"), "{text}: {error}");
    }
    // A manifest on a server must not name files of this machine, because the machine's user did not write it.
    for name in ["/etc/hostname", "../data/a.jpg", "a/../../b.jpg", "file:///etc/hostname", "./", "a//b", ""]
    {
        served.write("data/wrong.csv", &format!("n,path\n1,{name}\n"));
        let error = served.open(&served.url("data/wrong.csv")).err().unwrap().to_string();
        assert!(error.contains("line 2: ") && error.contains("data/wrong.csv"), "{name}: {error}");
    }
}

#[test]
fn credentials_of_a_manifest_go_to_its_own_server_alone() {
    let dataset = Dataset::folder(SAMPLES);
    let other =
        RangeServer::start(&dataset.beside(""), Options { record: true, ..Options::default() }).unwrap();
    let access = Some(Access::Header("Basic d2FuZGE6Z2VoZWlt".to_owned()));
    let served = Served::with(dataset, Options { access, ..Options::default() });
    let (own, elsewhere) = (served.url("data"), format!("{}/data", other.url()));
    let names = |sample: usize, path: &str| match sample % 3 {
        0 => path.to_owned(),
        1 => format!("{own}/{path}"),
        _ => format!("{elsewhere}/{path}"),
    };
    served.write("data/list.csv", &manifest(&served.dataset, names));
    let options = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let expected = two_epochs(&served.dataset.pipeline(&options));
    let url = served.url("data/list.csv").replace("http://", "http://wanda:geheim@");
    assert!(two_epochs(&pipeline(served.open(&url).unwrap(), &options)) == expected);
    let requests = other.requests();
    assert!(requests.len() >= SAMPLES / 3, "{}", requests.len());
    assert!(requests.iter().all(|request| request.field("authorization").is_none()));
    assert!(served.server.requests().iter().all(|request| request.field("authorization").is_some()));
}

#[test]
fn files_are_told_apart_by_what_their_names_do_not_show() {
    let access = Some(Access::Query("sig=geheim".to_owned()));
    let served = Served::with(Dataset::folder(SAMPLES), Options { access, ..Options::default() });
    let url = served.url("data");
    let names = |sample: usize, path: &str| format!("{url}/{path}?n={sample}&sig=geheim");
    let path = served.write("data/signed.csv", &manifest(&served.dataset, names));
    let options = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let expected = two_epochs(&served.dataset.pipeline(&options));
    let index = local(&served.dataset, &path);
    let print = index.fingerprint();
    assert!(two_epochs(&pipeline(index, &options)) == expected);
    // Another start reads the URLs from the manifest; with other signatures it is the same dataset.
    assert!(two_epochs(&pipeline(local(&served.dataset, &path), &options)) == expected);
    let again = |sample: usize, path: &str| format!("{url}/{path}?n={sample}&Expires=2&sig=geheim");
    served.write("data/signed.csv", &manifest(&served.dataset, again));
    let index = local(&served.dataset, &path);
    assert_eq!(index.fingerprint(), print);
    assert!(two_epochs(&pipeline(index, &options)) == expected);
    // Query parameters that identify a file are part of its name.
    let others = |sample: usize, path: &str| format!("{url}/{path}?other={sample}&sig=geheim");
    served.write("data/signed.csv", &manifest(&served.dataset, others));
    assert_ne!(local(&served.dataset, &path).fingerprint(), print);
    // If only the query identifies a file, each query is a separate file.
    let first = served.dataset.path(0);
    let first = first.strip_prefix(served.dataset.beside("data")).unwrap().to_str().unwrap();
    let text = format!("path\n{url}/{first}?id=1&sig=geheim\n{url}/{first}?id=2&sig=geheim\n");
    let index = local(&served.dataset, &served.write("data/queries.csv", &text));
    pipeline(index, &options).epoch(0, 0, 1, 0).unwrap().next_batch().unwrap().unwrap();
    let asked = served.server.requests();
    assert!(["id=1", "id=2"].iter().all(|id| {
        asked
            .iter()
            .any(|request| request.method == "GET" && request.query().unwrap_or_default().contains(id))
    }));
}

#[test]
fn changes_are_noticed() {
    let served = Served::new(Dataset::folder(SAMPLES));
    let url = served.url("data");
    let options = LoaderOptions { shuffle: Some(Shuffling::Off), ..small_images() };
    let expected = two_epochs(&served.dataset.pipeline(&options));
    let mixed = |sample: usize, path: &str| match sample % 2 {
        0 => path.to_owned(),
        _ => format!("{url}/{path}"),
    };
    let text = manifest(&served.dataset, mixed);
    let path = served.write("data/list.csv", &text);
    let print = local(&served.dataset, &path).fingerprint();
    // A manifest that is written again with the same text gives the same.
    std::fs::remove_file(&path).unwrap();
    served.write("data/list.csv", &text);
    let index = local(&served.dataset, &path);
    assert_eq!(index.fingerprint(), print);
    assert_eq!(format!("{:?}", index.summaries().next().unwrap().origin), "Loaded");
    assert!(two_epochs(&pipeline(index, &options)) == expected);
    let others = [
        (text.replacen("class0,", "class2,", 1), "for its sample 0"),
        (text.replacen(",0\n", ",7\n", 1), "other values in its column \"number\""),
        (text.lines().take(SAMPLES).map(|line| format!("{line}\n")).collect(), "lists 59 files"),
    ];
    for (other, said) in others {
        served.write("data/list.csv", &other);
        let index = local(&served.dataset, &path);
        let told = index.notices().take().join("\n");
        assert!(told.contains(said) && told.contains("list.csv"), "{told}");
        served.write("data/list.csv", &text);
        local(&served.dataset, &path);
    }
    let pipeline = pipeline(local(&served.dataset, &path), &options);
    for sample in [2, 3] {
        let before = std::fs::read(served.dataset.path(sample)).unwrap();
        std::fs::write(served.dataset.path(sample), jpeg(1000)).unwrap();
        let error = failure(&pipeline);
        assert!(error.contains("dataset changed") && error.contains("when indexed"), "{error}");
        std::fs::write(served.dataset.path(sample), before).unwrap();
    }
}
