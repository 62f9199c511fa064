//! Which roots are accepted, and the errors for others.

use super::{Served, pipeline, two_epochs};
use crate::common::Dataset;
use foreload::testing::config::LoaderOptions;
use range_server::{Access, IndexStyle, Options};

#[test]
fn what_is_no_dataset_is_said_with_the_forms() {
    let served = Served::new(Dataset::shards(10, 10));
    served.write("data/other.txt", "shard-000.tar\nhttp://example.com/a.tar\n");
    served.write("data/empty.txt", "# nothing\n");
    served.write("data/hello.html", "<p>hello");
    for (name, said) in [
        ("data/other.txt", "line 2 names a file on another server"),
        ("data/empty.txt", "lists no shards"),
        ("data/none.txt", "404 Not Found"),
        ("data/none.tar", "does not exist"),
        ("none", "404 Not Found"),
        ("none/", "give a shard, a list of shards"),
    ] {
        let error = served.open(&served.url(name)).err().unwrap().to_string();
        assert!(error.contains(said) && error.contains(&served.url("")), "{name}: {error}");
    }
    let hidden =
        Served::with(Dataset::shards(10, 10), Options { index: IndexStyle::Off, ..Options::default() });
    let error = hidden.open(&hidden.url("data/")).err().unwrap().to_string();
    assert!(error.contains("cannot be listed") && error.contains("a list of shards"), "{error}");
}

#[test]
fn braces_list_shards_of_a_server_that_shows_no_index_page() {
    let access = Access::Query("sig=geheim".to_owned());
    let options = Options { index: IndexStyle::Off, access: Some(access), ..Options::default() };
    let served = Served::with(Dataset::shards(30, 10), options);
    let url = |pattern: &str| format!("{}?sig=geheim", served.url(pattern));
    let index = served.open(&url("data/shard-{000..002}.tar")).unwrap();
    assert_eq!((index.len(), index.fingerprint()), (30, served.dataset.index().fingerprint()));
    assert_eq!(index.root().display().to_string(), served.url("data/shard-{000..002}.tar"));
    let options = LoaderOptions { batch_size: 10, ..LoaderOptions::default() };
    let local = pipeline(served.dataset.index(), &options);
    assert_eq!(two_epochs(&pipeline(index, &options)), two_epochs(&local));
    for (pattern, said) in [
        ("data/shard-{000..003}.tar", "shard-003.tar: does not exist"),
        ("data::{a,b}.tar", "joins several paths or URLs with `::`"),
    ] {
        let error = served.open(&url(pattern)).err().unwrap().to_string();
        assert!(error.contains(said) && !error.contains("geheim"), "{error}");
    }
}

#[test]
fn other_urls_and_lost_slashes_are_refused() {
    let served = Served::new(Dataset::shards(10, 10));
    for (root, said) in [
        ("http:/127.0.0.1/data", "pass the URL as a string"),
        ("https:/127.0.0.1/data", "pass the URL as a string"),
        ("ftp://host/data", "has the unsupported URL scheme ftp://: give an http://, https://, s3://"),
        ("http://user:geheim@/data?sig=geheim", "no valid host"),
        ("http://127.0.0.1:geheim/data", "a port that is not a number"),
    ] {
        let error = served.open(root).err().unwrap().to_string();
        assert!(error.contains(said), "{root}: {error}");
        assert!(!error.contains("user:geheim") && !error.contains("sig="), "{error}");
    }
}

/// The program's output for a dataset, with these environment variables.
fn bench(served: &Served, url: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_foreload"));
    program.args(["bench", url, "--json", "--epochs", "1", "--batch-size", "4"]);
    program.env("FORELOAD_INDEX_DIR", served.dataset.beside("proxy-index"));
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
    ] {
        program.env_remove(name);
    }
    let output = program.envs(variables.iter().copied()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn proxies_are_asked_for_hosts_that_are_not_excepted() {
    let served = Served::new(Dataset::shards(20, 20));
    let proxy = served.server.url().replace("http://", "http://wanda:geheim@");
    let elsewhere = "http://elsewhere.invalid/data";
    let (fine, said) = bench(&served, elsewhere, &[("http_proxy", &proxy)]);
    assert!(fine, "{said}");
    let stats = served.server.stats();
    assert!(stats.proxied == stats.requests && stats.with_credentials == stats.requests, "{stats:?}");
    let (fine, said) =
        bench(&served, elsewhere, &[("http_proxy", &proxy), ("no_proxy", "elsewhere.invalid")]);
    assert!(!fine && said.contains("the host elsewhere.invalid cannot be resolved"), "{said}");
    // This server is no proxy for encrypted connections, and says so.
    let (fine, said) = bench(&served, "https://elsewhere.invalid/data", &[("https_proxy", &proxy)]);
    assert!(!fine && said.contains("the proxy did not connect to elsewhere.invalid:443"), "{said}");
    assert!(!said.contains("geheim"), "{said}");
}
