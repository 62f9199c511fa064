//! `foreload simulate` and `foreload plan` as a user runs them.

use serde_json::Value;
use std::process::{Command, Output};

fn foreload(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreload"));
    command.args(args).stdin(std::process::Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Parses stdout, which must be one JSON object and nothing else.
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let text = std::str::from_utf8(&output.stdout).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value.is_object(), "{text}");
    value
}

#[test]
fn simulate_prints_a_table_json_and_a_plot() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    let report = json(&foreload(&["simulate", "--scenario", "nopfs-1", "--json", "--plot", plot]));
    assert_eq!((&report["scenario"], &report["samples"]), (&"nopfs-1".into(), &10_000.into()));
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    let all = [
        "lower-bound",
        "naive",
        "staging-pool",
        "lru",
        "never-evict",
        "belady",
        "next-use",
        "frequency",
        "next-use-peers",
        "first-user",
        "owner",
        "owner-locality",
        "foreload",
    ];
    assert_eq!(names, all);
    for policy in policies {
        for field in ["seconds", "stall_seconds", "hits", "local_hits"] {
            assert!(policy[field].as_f64().unwrap() >= 0.0, "{field}: {policy}");
        }
        assert!(policy["slow_bytes"].is_u64(), "{policy}");
        let epochs = policy["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 10);
        assert!(epochs.iter().all(|epoch| epoch["seconds"].as_f64().unwrap() > 0.0), "{policy}");
    }
    assert!(policies[12]["chosen"].as_str().unwrap().contains("peers"), "{report}");

    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.trim_start().starts_with("<svg") && all.iter().all(|name| svg.contains(name)));
    assert!(svg.matches("<rect").count() > 16, "a bar and a stall for each policy");

    let table = foreload(&["simulate", "--scenario", "nopfs-1", "--policies", "naive,foreload"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("naive") && table.contains("foreload chose") && !table.contains("belady"),
        "{table}"
    );
}

#[test]
fn simulate_counts_how_often_a_node_uses_a_sample() {
    let args = ["--epochs", "1000", "--above", "275", "--policies", "lower-bound", "--json"];
    let report = json(&foreload(&[&["simulate", "--scenario", "nopfs-1"], &args[..]].concat()));
    let accesses = &report["accesses"];
    let number = |field: &str| accesses[field].as_f64().unwrap();
    assert_eq!((number("mean"), number("above")), (250.0, 275.0));
    assert!((number("expected") - 323.0).abs() < 0.5, "{accesses}");
    assert!((number("counted") - 323.0).abs() < 4.0 * 18.0, "{accesses}");
}

#[test]
fn a_scenario_may_be_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let path = file.to_str().unwrap();
    let text = include_str!("../../src/simulate/scenarios/nopfs-1.toml").replace("nopfs-1", "mine");
    std::fs::write(&file, text.replace("network", "# network")).unwrap();
    let report =
        json(&foreload(&["simulate", "--scenario", path, "--policies", "frequency,foreload", "--json"]));
    assert_eq!(report["scenario"], "mine");
    let policies = report["policies"].as_array().unwrap();
    // Without a network, caches are private to their nodes.
    assert!(policies.iter().all(|policy| policy["hits"] == policy["local_hits"]), "{report}");
    let seconds = |number: usize| policies[number]["seconds"].as_f64().unwrap();
    assert!(seconds(1) <= seconds(0), "{report}");

    std::fs::write(&file, text.replace("nodes = 4", "nodes = \"four\"")).unwrap();
    let refused = foreload(&["simulate", "--scenario", path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("nodes") && stderr(&refused).contains("mine.toml"),
        "{}",
        stderr(&refused)
    );
}

const RATES: &str = r#"{
    "source": {"open_seconds": 0.002, "read_seconds": 0.001, "concurrency": 64, "read_bandwidth": 2e8},
    "nvme": {"open_seconds": 0, "read_seconds": 1e-4, "concurrency": 64, "read_bandwidth": 2e9, "write_bandwidth": 1e9},
    "decode_bandwidth": 4e8
}"#;

/// A dataset of 400 sparse files of 1 MB; indexing reads none of them.
fn dataset(directory: &std::path::Path) {
    for class in 0..4 {
        let class = directory.join(format!("data/class-{class}"));
        std::fs::create_dir_all(&class).unwrap();
        for number in 0..100 {
            let file = std::fs::File::create(class.join(format!("{number}.jpg"))).unwrap();
            file.set_len(1_000_000).unwrap();
        }
    }
}

#[test]
fn plan_counts_a_request_for_each_compressed_block() {
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("data")).unwrap();
    for shard in 0..2 {
        let file = std::fs::File::create(path(&format!("data/{shard}.tar.gz"))).unwrap();
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
        for number in 0..10 {
            let mut header = tar::Header::new_gnu();
            header.set_size(700);
            archive.append_data(&mut header, format!("{shard}-{number}.jpg"), &[number; 700][..]).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
    }
    std::fs::write(path("rates.json"), RATES).unwrap();
    let report = |more: &[&str]| {
        let (data, rates, kept) = (path("data"), path("rates.json"), path("index"));
        let fixed = ["plan", &data, "--rates", &rates, "--index-dir", &kept, "--batch-size", "1", "--json"];
        let report = json(&foreload(&[&fixed[..], more].concat()));
        assert_eq!((&report["samples"], &report["compressed"]["blocks"]), (&20.into(), &2.into()));
        report
    };
    let requests = |plan: &Value| plan["first"]["slow_requests"].as_u64().unwrap();
    let first = |more: &[&str]| requests(&report(more)["plan"]);
    assert_eq!(first(&["--cache-size", "1GB", "--cache-fill", "use"]), 2);
    // Memory has room for all decompressed blocks, in each process.
    assert_eq!(first(&["--cache-size", "0", "--nodes", "3"]), 6);
    let on_many = ["--cache-size", "0", "--nodes", "50"];
    assert_eq!(first(&on_many), 20);
    // In an order that keeps neighbours near, each rank reads its own blocks, except where two ranks' parts meet.
    let on_three = ["--cache-size", "0", "--nodes", "3"];
    let asked = report(&[&on_three[..], &["--shuffle=blocks"]].concat());
    assert_eq!(requests(&asked["plan"]), 2 + 2 * 2);
    assert!(asked["ways"].as_array().unwrap().iter().all(|way| way["way"] != "blocks"), "{asked}");
    assert_eq!(first(&[&on_many[..], &["--shuffle=blocks"]].concat()), 20);
    // Without a size there is no cache.
    let (unsaid, none) = (report(&[]), report(&["--cache-size", "0"]));
    assert_eq!((&unsaid["plan"], &unsaid["others"]), (&none["plan"], &none["others"]));
    assert_eq!(unsaid["others"].as_array().unwrap().len(), 1, "a terabyte is said: {unsaid}");
}

#[test]
fn plan_says_what_a_cache_buys() {
    let here = tempfile::tempdir().unwrap();
    dataset(here.path());
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let (data, rates, kept) = (path("data"), path("rates.json"), path("index"));
    std::fs::write(&rates, RATES).unwrap();
    let plan = |more: &[&str]| {
        let fixed = ["plan", &data, "--rates", &rates, "--index-dir", &kept, "--cache-size", "200MB"];
        foreload(&[&fixed[..], more].concat())
    };
    let report = json(&plan(&["--batch-size", "4", "--epochs", "10", "--json"]));
    assert_eq!((&report["samples"], &report["dataset_bytes"]), (&400.into(), &400_000_000.into()));
    let plan_of = |report: &Value| report["plan"].clone();
    let (asked, epoch) = (plan_of(&report), |name: &str| report["plan"][name].clone());
    assert_eq!(asked["held"], 0.5);
    // The first epoch reads 400 MB at 200 MB/s, later ones half of it.
    for (name, seconds, hits, bytes) in
        [("first", 2.0, 0.0, 400_000_000u64), ("later", 1.0, 0.5, 200_000_000)]
    {
        let epoch = epoch(name);
        let took = epoch["seconds"].as_f64().unwrap();
        assert!((took / seconds - 1.0).abs() < 0.03, "{epoch}");
        assert_eq!((&epoch["hits"], &epoch["slow_bytes"]), (&hits.into(), &bytes.into()));
    }
    assert_eq!(epoch("first")["limit"], "source-bandwidth");
    assert_eq!(asked["slow_bytes"], 400_000_000u64 + 9 * 200_000_000);
    // Each sample that the cache does not hold is a request.
    assert_eq!(
        (&epoch("first")["slow_requests"], &asked["slow_requests"]),
        (&400.into(), &(400 + 9 * 200).into())
    );
    let others = report["others"].as_array().unwrap();
    let sizes: Vec<_> = others.iter().map(|other| other["size"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["none", "half", "+1 TB", "double"]);
    let seconds: Vec<_> = others.iter().map(|other| other["seconds"].as_f64().unwrap()).collect();
    let all = asked["seconds"].as_f64().unwrap();
    assert!(seconds[0] > seconds[1] && seconds[1] > all && all > seconds[3], "{seconds:?}, {all}");

    let consumed = json(&plan(&["--batch-size", "4", "--consume", "100ms", "--json"]));
    assert_eq!(consumed["plan"]["first"]["limit"], "consumer");
    let table = String::from_utf8(plan(&[]).stdout).unwrap();
    for words in ["loose files", "the slow tier's bandwidth", "another terabyte", "as asked", "on use"] {
        assert!(table.contains(words), "{words} is missing: {table}");
    }

    // If decoding is the limit, packing halves the time; otherwise the report does not suggest it.
    assert_eq!(report["ways"], serde_json::json!([]));
    let mut slow: Value = serde_json::from_str(RATES).unwrap();
    slow["decode_bandwidth"] = 10e6.into();
    let slow_rates = path("slow.json");
    std::fs::write(&slow_rates, slow.to_string()).unwrap();
    let words = ["plan", &data, "--rates", &slow_rates, "--index-dir", &kept, "--cache-size", "200MB"];
    let decoded = json(&foreload(&[&words[..], &["--json"]].concat()));
    let ways = decoded["ways"].as_array().unwrap();
    let packed = ways.iter().find(|way| way["way"] == "packed").expect("a line about packing");
    let ratio = packed["seconds"].as_f64().unwrap() / decoded["plan"]["seconds"].as_f64().unwrap();
    assert!((ratio - 0.5).abs() < 0.05, "{decoded}");
    let table = String::from_utf8(foreload(&words).stdout).unwrap();
    assert!(table.contains("with this cache, but\npacked "), "{table}");

    // 2200 requests, and 4000 without a cache.
    let priced = plan(&["--batch-size", "4", "--epochs", "10", "--price-per-1000", "5"]);
    let table = String::from_utf8(priced.stdout).unwrap();
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("as asked").ends_with("2200      11.00"), "{table}");
    assert!(row("none").ends_with("4000      20.00"), "{table}");
    let refused = plan(&["--price-per-1000=-1"]);
    assert!(stderr(&refused).contains("such as 0.0004"), "{}", stderr(&refused));

    let peers = ["--nodes", "4", "--network", "40Mb/s", "--more-nodes", "2", "--batch-size", "5"];
    let report = json(&plan(&[&peers[..], &["--json"]].concat()));
    assert_eq!(report["network"], 5e6);
    // A node gets three quarters of its 100 MB from other nodes, at 5 MB/s.
    let later = &report["plan"]["later"];
    assert_eq!((&later["limit"], &later["slow_bytes"]), (&"network".into(), &0.into()));
    assert!((later["stages"]["network"].as_f64().unwrap() - 15.0).abs() < 0.1, "{later}");
    assert_eq!(report["more_nodes"]["nodes"], 2);
    assert!(report["more_nodes"]["later"]["seconds"].as_f64() < later["seconds"].as_f64(), "{report}");
    assert!(report["without_peers"]["later"]["slow_bytes"].as_u64().unwrap() > 0, "{report}");
    let local = json(&plan(&[&peers[..], &["--assignment", "locality", "--json"]].concat()));
    assert!(local["plan"]["later"]["seconds"].as_f64() < later["seconds"].as_f64(), "{local}");
    let table = String::from_utf8(plan(&peers).stdout).unwrap();
    for words in
        ["5.00 MB/s per node", "the network between nodes", "with 2 more nodes", "without peers' caches"]
    {
        assert!(table.contains(words), "{words} is missing: {table}");
    }
    for bad in ["fast", "0Gb/s"] {
        let refused = plan(&["--network", bad]);
        assert!(stderr(&refused).contains("25Gb/s"), "{}", stderr(&refused));
    }

    std::fs::write(&rates, RATES.replace("4e8", "0")).unwrap();
    let refused = plan(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("decode_bandwidth"), "{}", stderr(&refused));
}

#[test]
fn bad_usage_has_exit_code_2() {
    let bad: &[&[&str]] = &[
        &["simulate"],
        &["simulate", "--scenario", "nopfs-9"],
        &["simulate", "--scenario", "nopfs-1", "--policies", "lfu"],
        &["simulate", "--scenario", "nopfs-1", "--epochs", "0"],
        &["simulate", "--scenario", "nopfs-1", "--batch-size", "3000"],
        &["simulate", "--scenario", "nopfs-1", "--plot", "plot.bmp"],
        &["plan"],
        &["plan", "somewhere", "--cache-size", "1GB"],
        &["plan", "somewhere", "--cache", "there"],
        &["plan", "somewhere", "--cache-size", "much", "--rates", "rates.json"],
    ];
    for args in bad {
        let output = foreload(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}
