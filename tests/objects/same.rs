//! A store gives the same dataset and batches as the directory that it serves.

use crate::common::{Dataset, succeeds};
use crate::store::{Store, requests};
use std::fs;

const SAMPLES: usize = 90;

#[test]
fn datasets_in_stores_are_the_same_datasets() {
    for dataset in [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25), Dataset::folder(SAMPLES).packed()]
    {
        let is_packed = dataset.beside("loose").exists();
        let Some(store) = Store::new(dataset) else { return };
        let expected = store.expected();
        for url in ["s3://box/sets/data", "s3://box/sets/data/"] {
            let report = store.report(url, &[]);
            assert_eq!(crate::store::hashes(&report), expected, "{url}");
            let asked = store.proxy.take();
            let gets = asked.iter().filter(|asked| asked.method == "GET" && !asked.is_listing());
            assert!(gets.count() >= 3 * SAMPLES, "{url}");
            // The listings of this server have no ETags, so a start sends `HEAD` requests for shards, but not for
            // files.
            let heads = asked.iter().filter(|asked| asked.method == "HEAD").count();
            assert!(heads <= 10, "{url}: {heads} heads");
        }
        // The second start finds nothing changed, and counts its requests.
        store.proxy.take();
        let found = requests(&mut store.program(&["index", "s3://box/sets/data", "--json"]));
        let asked = store.proxy.take();
        let gets = asked.iter().filter(|asked| asked.method == "GET" && !asked.is_listing()).count();
        let lists = asked.iter().filter(|asked| asked.is_listing()).count();
        assert!(found["gets"] == 0 || is_packed, "{found}");
        assert_eq!(found["gets"], gets, "{found}");
        assert!(found["lists"].as_u64().unwrap() <= lists as u64, "{found}");
    }
}

#[test]
fn plans_say_what_reads_cost() {
    let Some(store) = Store::new(Dataset::folder(SAMPLES)) else { return };
    let cache = store.dataset.beside("plan");
    let plan = ["plan", "s3://box/sets/data", "--cache-size", "1GB", "--cache", cache.to_str().unwrap()];
    let output = succeeds(store.program(&plan).args(["--json", "--batch-size", "10"]));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan_of = &report["plan"];
    let requests = [&plan_of["first"], &plan_of["later"], plan_of].map(|part| part["slow_requests"].as_u64());
    let all = SAMPLES as u64;
    assert_eq!(requests, [Some(all), Some(0), Some(all)], "{report}");
    let priced = ["--price-per-1000", "1000", "--batch-size", "10"];
    let output = succeeds(store.program(&plan).args(priced));
    // The last columns of the table of caches are the requests of all epochs, and their price.
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().find(|line| line.starts_with("as asked ")).unwrap_or_default();
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert!(columns.ends_with(&["90", "90.00"]), "{text}");
}

#[test]
fn a_shard_a_list_and_a_whole_bucket_are_datasets() {
    let Some(store) = Store::new(Dataset::shards(SAMPLES, 25)) else { return };
    let expected = store.expected();
    let list =
        "# shards\ns3://box/sets/data/shard-001.tar\nshard-000.tar\n\n./shard-002.tar\nshard-003.tar\n";
    fs::write(store.file("data/list.txt"), list).unwrap();
    assert_eq!(store.epochs("s3://box/sets/data/list.txt", &[]), expected);
    let one = store.dataset.beside("data/shard-000.tar");
    let expected = store.epochs(one.to_str().unwrap(), &[]);
    assert_eq!(store.epochs("s3://box/sets/data/shard-000.tar", &[]), expected);
    let whole = store.dataset.beside("store/whole");
    fs::create_dir(&whole).unwrap();
    fs::copy(&one, whole.join("shard-000.tar")).unwrap();
    assert_eq!(store.epochs("s3://whole", &[]), store.epochs(whole.to_str().unwrap(), &[]));
}

#[test]
fn names_are_bytes_to_their_last_character() {
    let Some(store) = Store::new(Dataset::folder(30)) else { return };
    for root in [store.dataset.beside("data"), store.file("data")] {
        fs::rename(root.join("class0"), root.join("a class, 50% #1+ä & b=c")).unwrap();
        let class = root.join("class1");
        let file = fs::read_dir(&class).unwrap().next().unwrap().unwrap().path();
        fs::rename(&file, class.join("0 ~odd'(name)!*@:;$?.jpg")).unwrap();
    }
    assert_eq!(store.epochs("s3://box/sets/data", &[]), store.expected());
}
