//! `foreload simulate` and `foreload plan` as a user meets them.

use serde_json::Value;
use std::process::{Command, Output};

fn foreload(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreload"));
    command.args(args).stdin(std::process::Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Stdout as one JSON object and nothing else.
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
    let all =
        ["lower-bound", "naive", "staging-pool", "lru", "never-evict", "belady", "frequency", "foreload"];
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
    assert!(policies[7]["chosen"].as_str().unwrap().contains("peers"), "{report}");

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
    let text = include_str!("../src/simulate/scenarios/nopfs-1.toml").replace("nopfs-1", "mine");
    std::fs::write(&file, text.replace("network", "# network")).unwrap();
    let report =
        json(&foreload(&["simulate", "--scenario", path, "--policies", "frequency,foreload", "--json"]));
    assert_eq!(report["scenario"], "mine");
    let policies = report["policies"].as_array().unwrap();
    // Without a network caches are private.
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

#[test]
fn bad_usage_has_exit_code_2() {
    let bad: &[&[&str]] = &[
        &["simulate"],
        &["simulate", "--scenario", "nopfs-9"],
        &["simulate", "--scenario", "nopfs-1", "--policies", "lfu"],
        &["simulate", "--scenario", "nopfs-1", "--epochs", "0"],
        &["simulate", "--scenario", "nopfs-1", "--batch-size", "3000"],
        &["simulate", "--scenario", "nopfs-1", "--plot", "plot.bmp"],
    ];
    for args in bad {
        let output = foreload(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}
