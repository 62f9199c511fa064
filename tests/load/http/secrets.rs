//! Credentials go into requests to their host, and nowhere else.

use super::Served;
use crate::common::Dataset;
use crate::common::secrets::{contains, kept_without, run_without};
use range_server::{Access, Options};
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program, and checks that its output contains none of these words.
fn run(args: &[&str], kept: &Path, words: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
    run_without(program.args(args).env("FORELOAD_INDEX_DIR", kept.join("index")), words)
}

#[test]
fn credentials_are_in_no_file_and_no_output() {
    // `Z2VoZWlt` is the password in base64, as in a header.
    let words = ["geheim", "wanda", "Z2VoZWlt", "unterschrift"];
    for (access, user, query) in [
        (Access::Header("Basic d2FuZGE6Z2VoZWlt".to_owned()), "wanda:geheim@", ""),
        (Access::Query("sig=unterschrift".to_owned()), "", "?sig=unterschrift"),
    ] {
        let served =
            Served::with(Dataset::folder(30), Options { access: Some(access), ..Options::default() });
        let url = format!("{}{query}", served.url("data").replace("http://", &format!("http://{user}")));
        let kept = served.dataset.beside("kept");
        std::fs::create_dir(&kept).unwrap();
        let run = |args: &[&str]| run(args, &kept, &words);
        let path = |name: &str| kept.join(name).to_str().unwrap().to_owned();
        let (cache, trace, packed) = (path("cache"), path("trace.json"), path("packed"));
        for args in [
            &["index", &url][..],
            &["index", &url, "--json", "--verify", "--decode"],
            &[
                "bench",
                &url,
                "--json",
                "--epochs",
                "2",
                "--batch-size",
                "4",
                "--cache",
                &cache,
                "--cache-size",
                "50MB",
                "--trace",
                &trace,
            ],
            &["bench", &url, "--epochs", "1", "--batch-size", "4"],
            &["plan", &url, "--json", "--cache-size", "50MB", "--cache", &path("plan-cache")],
            &["pack", &url, &packed],
            &["show", &url, "--out", &path("show.png")],
            &["cache", "show", &cache],
        ] {
            let output = run(args);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // An error says where it happened, and shows no secret.
        served.fail(&["status:always:403"]);
        let output = run(&["bench", &url, "--epochs", "1", "--batch-size", "4"]);
        assert!(!output.status.success());
        assert!(contains(&output.stderr, "/data"), "{}", String::from_utf8_lossy(&output.stderr));
        let wrong = url.replace("/data", "/other");
        assert!(!run(&["index", &wrong]).status.success());
        kept_without(&kept, &words);
    }
}

#[test]
fn secrets_in_a_manifest_are_in_no_file_and_no_output() {
    let words = ["geheim", "unterschrift"];
    let access = Access::Query("sig=unterschrift".to_owned());
    let served = Served::with(Dataset::folder(30), Options { access: Some(access), ..Options::default() });
    let data = served.url("data");
    let names = |sample: usize| {
        let path = served.dataset.path(sample);
        let path = path.strip_prefix(served.dataset.beside("data")).unwrap().to_str().unwrap();
        format!("{}/{path}?sig=unterschrift", data.replace("http://", "http://wanda:geheim@"))
    };
    let lines: String = (0..30).map(|sample| format!("{},{}\n", names(sample), sample % 3)).collect();
    let manifest = served.write("data/signed.csv", &format!("url,label\n{lines}"));
    let kept = served.dataset.beside("kept");
    std::fs::create_dir(&kept).unwrap();
    let path = |name: &str| kept.join(name).to_str().unwrap().to_owned();
    let (cache, trace) = (path("cache"), path("trace.json"));
    let on_server = served.url("data/signed.csv") + "?sig=unterschrift";
    for (root, packed) in [(manifest.to_str().unwrap(), path("packed")), (&on_server, path("packed too"))] {
        let tars = format!("{packed} as tars");
        for args in [
            &["index", root, "--json", "--verify", "--decode"][..],
            &["bench", root, "--epochs", "2", "--batch-size", "4", "--cache", &cache, "--cache-size", "9MB"],
            &["bench", root, "--json", "--epochs", "1", "--batch-size", "4", "--trace", &trace],
            &["pack", root, &packed],
            &["pack", root, &packed],
            &["pack", root, &tars, "--to", "tar"],
            &["index", &packed, "--json", "--verify", "--decode"],
            &["bench", &packed, "--epochs", "1", "--batch-size", "4"],
        ] {
            let output = run(args, &kept, &words);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // `plan` measures for seconds, and does not depend on where the manifest is, so it runs once.
        if root == on_server {
            let measured = ["plan", root, "--json", "--cache-size", "50MB", "--cache", &path("plan-cache")];
            assert!(run(&measured, &kept, &words).status.success());
        }
        served.fail(&["status:always:403"]);
        let output = run(&["bench", root, "--epochs", "1", "--batch-size", "4"], &kept, &words);
        assert!(!output.status.success());
        served.fail(&[]);
    }
    kept_without(&kept, &words);
}

#[test]
fn settings_and_roots_that_are_wrong_show_no_secrets() {
    let dataset = Dataset::folder(10);
    let kept = dataset.beside("kept");
    std::fs::create_dir(&kept).unwrap();
    let data = dataset.beside("data");
    let data = data.to_str().unwrap();
    let secret = "http://wanda:geheim@127.0.0.1:1/none";
    let joined = format!("{secret}.tar::{secret}.tar?sig=unterschrift");
    let of = |name: &str| format!("{secret}{name}?sig=unterschrift");
    for args in [
        &["index", &joined][..],
        &["index", "pipe:curl -u wanda:geheim http://h/?unterschrift"],
        &["index", "http://wanda:ge/heim@geheim@h:x/?unterschrift"],
        &["bench", data, "--labels", &of("")],
        &["bench", data, "--labels", &of(".csv")],
        &["bench", data, "--files", &of(".txt")],
        &["bench", data, "--index-dir", &of("")],
        &["bench", data, "--cache", &of(""), "--cache-size", "1MB"],
        &["bench", data, "--batch-size", &of("")],
        &["cache", "show", "here", &of("")],
        &["unpack", data, "there", &of("")],
        &[&of("")],
    ] {
        let output = run(args, &kept, &["geheim", "unterschrift", "wanda"]);
        assert!(!output.status.success(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    assert!(!dataset.beside("kept/index").join("http:").exists() && !Path::new("http:").exists());
}
