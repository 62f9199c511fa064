//! Credentials and signatures go into requests to their store, and nowhere else.

use crate::common::Dataset;
use crate::common::secrets::{kept_without, run_without};
use crate::proxy::Failing;
use crate::store::{KEY, SECRET, Store};

#[test]
fn credentials_are_in_no_file_and_no_output() {
    let Some(store) = Store::new(Dataset::folder(30)) else { return };
    let token = "sitzungsmarke";
    let words = [KEY, SECRET, token, "Signature=", "AWS4-HMAC-SHA256", "X-Amz-"];
    let kept = store.dataset.beside("kept");
    std::fs::create_dir(&kept).unwrap();
    let run = |args: &[&str]| {
        let mut program = store.program(args);
        program.env("FORELOAD_INDEX_DIR", kept.join("index")).env("AWS_SESSION_TOKEN", token);
        run_without(&mut program, &words)
    };
    let path = |name: &str| kept.join(name).to_str().unwrap().to_owned();
    let (cache, trace, packed, show) = (path("cache"), path("trace.json"), path("packed"), path("show.png"));
    let url = "s3://box/sets/data";
    let kept_by = ["--cache", &cache, "--cache-size", "50MB", "--trace", &trace];
    let bench = ["bench", url, "--json", "--epochs", "2", "--batch-size", "4"];
    for args in [
        &["index", url][..],
        &["index", url, "--json", "--verify", "--decode"],
        &[&bench[..], &kept_by].concat(),
        &["plan", url, "--json", "--cache-size", "50MB", "--cache", &path("plan")],
        &["pack", url, &packed],
        &["show", url, "--out", &show],
        &["cache", "show", &cache],
    ] {
        let output = run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // If a store's error repeats the signed text, Foreload's error does not show it.
    for how in [Failing::Skewed, Failing::Expired, Failing::Elsewhere] {
        store.proxy.fail(1, how, true);
        assert!(!run(&bench).status.success());
    }
    kept_without(&kept, &words);
}
