//! The interval log of real runs, of killed runs and of one written by hand: its totals, its bounds, its report.

#[allow(dead_code, reason = "only what makes small datasets is used")]
use crate::common::{Dataset, Killable};
use foreload::TierName;
use foreload::testing::config::LoaderOptions;
use foreload::testing::trace::{Stage, Trace, read};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn options() -> LoaderOptions {
    LoaderOptions { batch_size: 8, image_size: (32, 32), threads: Some(2), ..LoaderOptions::default() }
}

/// All events of a complete log, which is plain JSON.
fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    match serde_json::from_str(&text) {
        Ok(Value::Array(events)) => events,
        other => panic!("no array: {other:?}: {text}"),
    }
}

fn intervals(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["ph"] == "X")
}

/// Microseconds of the log as nanoseconds.
fn time(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1e3).round() as u64
}

fn busy(event: &Value) -> u64 {
    time(event["args"].get("busy").unwrap_or(&event["dur"]))
}

/// The sum of a number over all intervals of a stage in an epoch.
fn total(events: &[Value], stage: Stage, epoch: u64, number: impl Fn(&Value) -> u64) -> u64 {
    let wanted = |event: &&Value| event["name"] == stage.name() && event["args"]["epoch"] == epoch;
    intervals(events).filter(wanted).map(number).sum()
}

fn argument(name: &str) -> impl Fn(&Value) -> u64 {
    move |event| event["args"][name].as_u64().unwrap_or(0)
}

/// Checks that intervals of a track follow each other, and that no track has names of two stages.
fn check_tracks(events: &[Value]) {
    let mut tracks: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for event in intervals(events) {
        let (start, name) = (time(&event["ts"]), event["name"].as_str().unwrap());
        let (end, stage) = tracks.entry(event["tid"].as_u64().unwrap()).or_insert((0, name));
        assert!(*end <= start && *stage == name, "{event} begins before {end}, or is no {stage}");
        assert!(busy(event) <= time(&event["dur"]), "{event}");
        *end = start + time(&event["dur"]);
    }
    for (track, (_, stage)) in tracks {
        let named = |event: &&Value| event["name"] == "thread_name" && event["tid"] == track;
        let name = events.iter().find(named).expect("a name")["args"]["name"].as_str().unwrap();
        assert!(name.starts_with(stage), "{name}");
    }
}

#[test]
fn a_run_is_logged_as_it_is_counted() {
    let dataset = Dataset::folder(61);
    let file = tempfile::NamedTempFile::new().unwrap();
    let trace = Trace::create(file.path(), "a \"test\"").unwrap();
    assert!(trace.is_on() && !Trace::off().is_on());
    let pipeline = dataset.pipeline(&options()).traced(trace.clone());
    let mut all = Vec::new();
    for number in [3, 4] {
        let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
        let mut images = 0;
        while let Some(batch) = epoch.next_batch().unwrap() {
            images += batch.len() as u64;
        }
        let stats = epoch.stats();
        assert_eq!(
            (
                stats.stalls.count(),
                stats.latency(TierName::SOURCE).count(),
                stats.latency(TierName::NVME).count()
            ),
            (7, 56, 0)
        );
        assert!(stats.stalls.max() <= stats.stages.consumer_waiting);
        all.push((number, images, stats));
    }
    drop(pipeline);
    let written = trace.finish().unwrap();
    let events = events(file.path());
    check_tracks(&events);
    assert_eq!((written.intervals, written.dropped), (intervals(&events).count() as u64, 0));
    let seconds = |stage, epoch| total(&events, stage, epoch, busy) as f64 * 1e-9;
    for (epoch, images, stats) in &all {
        assert_eq!(*images, 56);
        for stage in [SOURCE, Stage::Decode, Stage::Augment, Stage::Train] {
            assert_eq!(total(&events, stage, *epoch, argument("samples")), *images, "{}", stage.name());
        }
        for stage in [SOURCE, Stage::Decode, Stage::Augment] {
            assert_eq!(
                total(&events, stage, *epoch, argument("bytes")),
                stats.reads.bytes,
                "{}",
                stage.name()
            );
        }
        for (stage, counted) in [
            (Stage::Decode, stats.stages.decode_busy),
            (Stage::Augment, stats.stages.augment_busy),
            (Stage::Wait, stats.stages.consumer_waiting),
        ] {
            let logged = seconds(stage, *epoch);
            assert!((logged - counted).abs() < 1e-8, "{}: {logged}, {counted} counted", stage.name());
        }
    }
    let summary = read(file.path()).unwrap().summary(10);
    assert!(summary.complete);
    let told: Vec<_> = summary.epochs.iter().map(|e| (&*e.process, e.epoch, e.samples)).collect();
    assert_eq!(told, [("a \"test\"", 3, 56), ("a \"test\"", 4, 56)]);
}

const SOURCE: Stage = Stage::Read(TierName::SOURCE);

/// A log with round numbers that was written by hand.
const LOG: &str = include_str!("trace-by-hand.json");

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, must be {expected}");
}

#[test]
fn the_report_says_what_a_hand_computes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), LOG).unwrap();
    let summary = read(file.path()).unwrap().summary(5);
    assert!(!summary.complete && summary.epochs.len() == 2);
    let epoch = &summary.epochs[0];
    assert_eq!((&*epoch.process, epoch.epoch, epoch.samples), ("by hand", 0, 8));
    near(epoch.seconds, 1.0);
    near(epoch.waiting, 0.6);
    let stage = |stage: Stage| epoch.stages.iter().find(|s| s.stage == stage.name()).unwrap();
    let source = stage(SOURCE);
    assert_eq!((source.threads, source.intervals, source.samples, source.bytes), (2, 2, 8, 9000));
    near(source.merged_seconds, 0.6);
    near(source.thread_seconds, 0.8);
    near(source.share, 0.6);
    near(source.load, 0.4);
    near(source.bandwidth, 15_000.0);
    for (part, expected) in source.course.iter().zip([0.5, 1.0, 0.5, 0.0, 0.0]) {
        near(*part, expected);
    }
    // Each of two threads was busy half of the time, so for a quarter of the time neither was.
    near(stage(Stage::Decode).merged_seconds, 0.15);
    near(stage(Stage::Decode).load, 0.1);
    // The stage continued after the epoch. This counts for its bandwidth but not for its share of the epoch.
    near(stage(Stage::Ahead).merged_seconds, 1.0);
    near(stage(Stage::Ahead).share, 0.5);
    near(stage(Stage::Ahead).bandwidth, 50_000.0);
    assert_eq!(epoch.limit, Some("read source".to_owned()));
    // Intervals without an epoch belong to the epoch that began last, or to the first one.
    assert_eq!(stage(Stage::parse("write cache").unwrap()).bytes, 1);
    assert_eq!(
        summary.epochs[1].stages.iter().map(|s| (&*s.stage, s.bytes)).next_back(),
        Some(("write cache", 2))
    );
    assert_eq!(summary.epochs[1].limit, None, "a thousandth is no waiting");
}

#[test]
fn a_log_that_ends_anywhere_is_read_to_there() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut epochs = 0;
    for cut in 2..=LOG.len() {
        std::fs::write(file.path(), &LOG[..cut]).unwrap();
        let summary = read(file.path()).unwrap_or_else(|error| panic!("cut at {cut}: {error}")).summary(3);
        assert!(!summary.complete && summary.epochs.len() >= epochs);
        epochs = summary.epochs.len();
    }
    assert_eq!(epochs, 2);
    for (text, why) in
        [("{}", "line 1"), ("GIF89a", "line 1"), ("[\n{\"name\":3}\n", "line 2"), ("[\n\u{1}\n[\n", "line 2")]
    {
        std::fs::write(file.path(), text).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("not a log of Foreload"), "{text:?}: {error}");
    }
    std::fs::write(file.path(), "").unwrap();
    assert!(read(file.path()).unwrap().summary(3).epochs.is_empty());
}

fn foreload(dataset: &Dataset, command: &str, args: &[&str]) -> Command {
    let mut foreload = Command::new(env!("CARGO_BIN_EXE_foreload"));
    let root = dataset.index().root().to_owned();
    foreload.arg(command);
    if command == "bench" {
        foreload.arg(&root).args([
            "--batch-size",
            "8",
            "--image-size",
            "32",
            "--threads",
            "1",
            "--device",
            "cpu",
        ]);
        foreload.arg("--index-dir").arg(root.parent().unwrap().join("index"));
    }
    foreload.args(args).stdin(Stdio::null());
    foreload
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_bench_is_reported() {
    let dataset = Dataset::folder(40);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (log, page) = (path("run.json"), path("page.html"));
    let bench =
        foreload(&dataset, "bench", &["--trace", &log, "--consume", "1ms", "--json"]).output().unwrap();
    let bench = json(&bench);
    let report = json(&foreload(&dataset, "report", &[&log, "--json", "--out", &page]).output().unwrap());
    assert_eq!(report["complete"], true);
    for epoch in 0..2 {
        let (told, counted) = (&report["epochs"][epoch], &bench["epochs"][epoch]);
        assert_eq!((&told["epoch"], &told["samples"]), (&counted["epoch"], &counted["images"]));
        let source = told["stages"].as_array().unwrap().iter().find(|s| s["stage"] == "read source").unwrap();
        assert_eq!(source["bytes"], counted["source_bytes"]);
        assert_eq!((&counted["steps"], &counted["stall_per_step"]["count"]), (&5.into(), &5.into()));
        assert_eq!(counted["latency"]["source"]["count"], 40);
        assert!(counted["latency"].get("nvme").is_none(), "there is no such tier");
    }
    let html = std::fs::read_to_string(page).unwrap();
    for word in ["<!doctype html>", "Epoch 1", "read source", "decode", "<path d=\"M0", "</html>"] {
        assert!(html.contains(word), "{word} is missing: {html}");
    }
    for word in ["<script", "http:", "https:", "NaN", "src="] {
        assert!(!html.contains(word), "{word}: {html}");
    }
    let table = foreload(&dataset, "report", &[&log]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("epoch 1 of") && table.contains("read source"), "{table}");
    let nowhere = foreload(&dataset, "report", &[&path("nowhere")]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("nowhere"));
}

#[test]
fn the_log_of_a_killed_run_can_be_read() {
    let dataset = Dataset::folder(40);
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("run.json");
    let name = log.to_str().unwrap();
    let mut bench = foreload(&dataset, "bench", &["--trace", name, "--epochs", "1000000"]);
    let mut bench = Killable::start(bench.stdout(Stdio::piped()));
    let mut lines = BufReader::new(bench.0.stdout.take().unwrap()).lines();
    // The writer flushes periodically; a line is printed after each epoch.
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("\"train\"") {
        lines.next().expect("it runs for ever").unwrap();
    }
    bench.kill();
    let report = json(&foreload(&dataset, "report", &[name, "--json"]).output().unwrap());
    assert_eq!(report["complete"], false);
    assert_eq!(report["epochs"][0]["samples"], 40);
    let table = foreload(&dataset, "report", &[name]).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("the run ended early"));
}

#[test]
fn the_same_epochs_from_memory_have_the_same_bytes() {
    let dataset = Dataset::folder(40);
    let args =
        ["--stall", "--checksum", "--json", "--emulate-pfs", "open=200us,read=100us", "--consume", "0"];
    let bench = json(&foreload(&dataset, "bench", &args).output().unwrap());
    let stall = &bench["stall"];
    assert_eq!(stall["resident_bytes"], bench["epochs"][0]["source_bytes"]);
    let number = |value: &Value| value.as_f64().unwrap();
    let mut held_up = 0.0;
    let epochs = bench["epochs"].as_array().unwrap().len();
    assert!((4..=8).contains(&epochs), "{bench}");
    for epoch in 0..epochs {
        let (given, memory) = (&bench["epochs"][epoch], &stall["from_memory"][epoch]);
        assert_eq!(given["sha256"], memory["sha256"]);
        assert!(given["sha256"].is_string());
        assert_eq!((&given["source_opens"], &memory["source_opens"]), (&40.into(), &0.into()));
        assert_eq!(given["source_bytes"], memory["source_bytes"]);
        let compared = &stall["epochs"][epoch];
        let waits = number(&given["wait_seconds"]) - number(&memory["wait_seconds"]);
        near(number(&compared["held_up_seconds"]), waits);
        near(number(&compared["held_up_seconds_per_step"]), waits / 5.0);
        held_up += waits;
    }
    near(number(&stall["held_up_seconds"]), held_up);
    let plain = json(&foreload(&dataset, "bench", &["--json"]).output().unwrap());
    assert!(plain.get("stall").is_none());
}
