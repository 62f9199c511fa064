//! If a store refuses a request, the error is one sentence that says what to do.

use crate::common::{Dataset, succeeds};
use crate::proxy::Failing;
use crate::store::{SECRET, Store, refused};
use std::fs;

const URL: &str = "s3://box/sets/data";

/// Checks that an error is one sentence with these words and without any secret.
fn said(error: &str, wanted: &[&str]) {
    for word in wanted {
        assert!(error.contains(word), "{word} is missing: {error}");
    }
    assert!(!error.contains(SECRET) && !error.contains("Signature="), "{error}");
    assert!(error.trim().lines().count() <= 3, "{error}");
}

#[test]
fn wrong_and_missing_credentials_are_told_apart() {
    let Some(store) = Store::new(Dataset::folder(12)) else { return };
    let with = |name: &str, value: &str| refused(store.bench(URL, &[]).env(name, value));
    said(&with("AWS_SECRET_ACCESS_KEY", "another"), &["secret key", "AWS_ACCESS_KEY_ID"]);
    said(&with("AWS_ACCESS_KEY_ID", "UNBEKANNT"), &["does not know", "AWS_ACCESS_KEY_ID"]);
    said(&with("AWS_SKIP_SIGNATURE", "true"), &["without credentials"]);
    let none = |program: &mut std::process::Command| {
        refused(program.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY"))
    };
    said(&none(&mut store.bench(URL, &[])), &["no credentials were found", "AWS_ACCESS_KEY_ID", "~/.aws"]);
    let mut role = store.bench(URL, &[]);
    role.env("AWS_EC2_METADATA_DISABLED", "false").env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9");
    said(&none(&mut role), &["no credentials were found", "role of the instance"]);
    said(&with("AWS_PROFILE", "nobody"), &["AWS_PROFILE", "nobody"]);
}

#[test]
fn profiles_are_read_and_refused_where_they_are_more() {
    let Some(store) = Store::new(Dataset::folder(12)) else { return };
    let aws = store.dataset.beside("home/.aws");
    fs::create_dir_all(&aws).unwrap();
    let keys =
        format!("[other]\naws_access_key_id = {}\naws_secret_access_key = {SECRET}\n", crate::store::KEY);
    fs::write(aws.join("credentials"), keys).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", store.proxy.port());
    let config = format!(
        "[profile other]\nregion = eu-west-9\nendpoint_url = {endpoint}\n[profile sso]\nsso_session = work\n"
    );
    fs::write(aws.join("config"), config).unwrap();
    let by = |name: &str| {
        let mut program = store.bench(URL, &[]);
        for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"] {
            program.env_remove(variable);
        }
        program.env("AWS_PROFILE", name);
        program
    };
    succeeds(&mut by("other"));
    assert!(store.proxy.take().iter().any(|asked| asked.head.contains("/eu-west-9/s3/")));
    said(&refused(&mut by("sso")), &["profile sso", "SSO", "export-credentials"]);
}

#[test]
fn places_that_are_not_there_are_named() {
    let Some(store) = Store::new(Dataset::folder(12)) else { return };
    let at = |url: &str| refused(&mut store.bench(url, &[]));
    said(&at("s3://elsewhere/data"), &["no bucket elsewhere"]);
    said(&at("s3://box/sets/nothing"), &["s3://box/sets/nothing", "does not exist"]);
    said(&at("s3://box/sets/data/class0/none.jpg"), &["does not exist"]);
    said(&at("s3://key:secret@box/data"), &["contains credentials"]);
    let closed = refused(store.bench(URL, &[]).env("AWS_ENDPOINT_URL", "http://127.0.0.1:9"));
    said(&closed, &["127.0.0.1:9", "refuses connections"]);
}

#[test]
fn what_the_store_says_is_explained() {
    let Some(store) = Store::new(Dataset::folder(12)) else { return };
    for (how, wanted) in [
        (Failing::Expired, &["no longer valid", "AWS_ACCESS_KEY_ID"][..]),
        (Failing::Skewed, &["clock"]),
        (Failing::Elsewhere, &["eu-somewhere-7", "AWS_REGION"]),
    ] {
        store.proxy.fail(1, how, true);
        said(&refused(&mut store.bench(URL, &[])), wanted);
    }
}

#[test]
fn google_is_asked_in_its_own_way() {
    let Some(store) = Store::new(Dataset::folder(12)) else { return };
    let mut program = store.bench("gs://box/sets/data", &[]);
    let host = format!("127.0.0.1:{}", store.proxy.port());
    program.env("STORAGE_EMULATOR_HOST", host).env("GOOGLE_BEARER_TOKEN", "wertmarke");
    let error = refused(&mut program);
    assert!(error.contains("gs://box/sets/data") && !error.contains("wertmarke"), "{error}");
    let asked = store.proxy.take();
    assert!(!asked.is_empty());
    for asked in asked {
        assert!(asked.target.starts_with("/box?") && asked.is_listing(), "{asked:?}");
        assert!(asked.head.to_ascii_lowercase().contains("authorization: bearer wertmarke"), "{asked:?}");
    }
}
