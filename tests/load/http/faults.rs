//! For each fault of a server, the batches are still those of the directory, or an error says what is wrong.

use super::{Served, failure};
use crate::common::{Dataset, epoch_bytes, finished, small_images};
use foreload::testing::config::LoaderOptions;
use range_server::{Access, CertificateKind, Identity, Options};
use std::process::Command;

const SAMPLES: usize = 60;

/// The hash of an epoch with these faults, which begin after the dataset is open.
fn under(served: &Served, faults: &[&str]) -> [u8; 32] {
    served.fail(&[]);
    let pipeline = served.pipeline(&small_images());
    served.fail(faults);
    epoch_bytes(&pipeline, 0)
}

#[test]
fn faults_that_pass_are_overcome() {
    for dataset in [Dataset::shards(SAMPLES, 25), Dataset::folder(SAMPLES)] {
        let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
        let served = Served::new(dataset);
        for fault in [
            "status:0.2:503",
            "status:0.2:500",
            "status:0.1:429",
            "cut:0.2:300",
            "reset:0.2:300",
            "slow:first=4:20000",
            "dribble:0.05:1",
            "range-start:0.2:1",
            "range-start:0.2:-7",
            "length:first=4:-3",
            "whole:0.2",
            "chunked:0.5:100",
            "close:0.3",
            "leave:0.3",
            "hang-up:0.2",
            "garbage:0.1",
        ] {
            assert!(under(&served, &[fault]) == expected, "{fault}");
        }
        let pipeline = served.pipeline(&small_images());
        served.fail(&["status:0.2:503", "cut:0.2:100", "hang-up:0.1"]);
        let epoch = finished(&pipeline, 0);
        let reads = epoch.stats().reads;
        assert!(reads.retries > 0 && reads.requests > SAMPLES as u64, "{reads:?}");
    }
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let dataset = Dataset::shards(20, 20);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
    let served = Served::new(dataset);
    let begun = std::time::Instant::now();
    assert!(under(&served, &["status:first=3:503,retry=1"]) == expected);
    let took = begun.elapsed();
    assert!(took >= std::time::Duration::from_secs(1), "{took:?}: it did not wait");
    assert!(under(&served, &["status:first=3:429,date=2"]) == expected);
}

#[test]
fn stalled_answers_do_not_hold_up_an_epoch() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
    let served = Served::new(dataset);
    for fault in ["stall:first=2:600,after=100", "mute:first=2:600"] {
        assert!(under(&served, &[fault]) == expected, "{fault}");
    }
}

#[test]
fn a_slow_answer_is_asked_for_a_second_time() {
    let served = Served::new(Dataset::shards(400, 100));
    let pipeline = served.pipeline(&small_images());
    epoch_bytes(&pipeline, 0);
    epoch_bytes(&pipeline, 1);
    // One response takes longer than any test; its sample comes through the second request.
    served.fail(&["stall:first=1:3,after=10"]);
    let epoch = finished(&pipeline, 2);
    let reads = epoch.stats().reads;
    assert!(reads.hedges >= 1 && reads.retries == 0, "{reads:?}");
    assert!(20 * reads.hedges <= 3 * reads.requests, "{reads:?}");
}

#[test]
fn what_does_not_pass_is_said_once_and_clearly() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    for (fault, said) in [
        ("status:always:404", "is no longer on the server"),
        ("status:always:403", "403 Forbidden: the credentials"),
        ("status:always:401", "401 Unauthorized: it requires a user"),
        ("whole:always", "supports range requests (tried 8 times)"),
        ("range-total:always:5", "bytes, was"),
        ("etag:always", "has another ETag"),
        ("redirect:always:{path}", "redirects more than 5 times"),
        ("redirect:always:ftp://127.0.0.1/x", "is not an http:// or https:// URL"),
        ("redirect:always:http://169.254.169.254/latest", "a link-local address"),
        ("redirect:always:http://[fe80::1]/", "a link-local address"),
        ("redirect:always:http://[::ffff:169.254.0.1]/", "a link-local address"),
    ] {
        served.fail(&[]);
        let pipeline = served.pipeline(&small_images());
        served.fail(&[fault]);
        let error = failure(&pipeline);
        assert!(error.contains(said), "{fault}: {error}");
        assert!(error.contains("/data/shard-00"), "{fault}: {error}");
    }
}

#[test]
fn redirects_are_followed_without_credentials() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
    let other =
        range_server::RangeServer::start(&dataset.beside(""), Options { record: true, ..Options::default() });
    let other = other.unwrap();
    let access = Some(Access::Header("Basic YW5uYTpnZWhlaW0=".to_owned()));
    let served = Served::with(dataset, Options { access, ..Options::default() });
    let url = served.url("data").replace("http://", "http://anna:geheim@");
    let pipeline = super::pipeline(served.open(&url).unwrap(), &small_images());
    served.fail(&[&format!("redirect:always:307,{}{{path}}", other.url())]);
    assert!(epoch_bytes(&pipeline, 0) == expected);
    assert!(other.stats().requests >= SAMPLES as u64);
    assert_eq!(other.stats().with_credentials, 0);
    assert!(served.server.stats().with_credentials >= SAMPLES as u64);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let served = Served::new(Dataset::shards(10, 10));
    let error = served.open("http://127.0.0.1:9/data/").err().unwrap().to_string();
    assert!(error.contains("127.0.0.1:9 refuses connections"), "{error}");
    let error = served.open("http://no-such-host.invalid/data/a.tar").err().unwrap().to_string();
    assert!(error.contains("no-such-host.invalid"), "{error}");
}

/// The program's output for a dataset on a server with this certificate, with or without a setting that trusts it.
fn over_tls(kind: CertificateKind, trust: bool) -> (bool, String) {
    let dataset = Dataset::shards(20, 20);
    let identity = Identity::new(kind).unwrap();
    let ca = dataset.beside("ca.pem");
    std::fs::write(&ca, &identity.ca_pem).unwrap();
    let served = Served::with(dataset, Options { tls: Some(identity), ..Options::default() });
    let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
    program.args(["bench", &served.url("data"), "--json", "--epochs", "1", "--batch-size", "4"]);
    program.env("FORELOAD_INDEX_DIR", served.dataset.beside("tls-index")).env_remove("SSL_CERT_DIR");
    if trust {
        program.env("SSL_CERT_FILE", &ca);
    }
    let output = program.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn certificates_are_trusted_by_their_authority_alone() {
    let (fine, said) = over_tls(CertificateKind::Sound, true);
    assert!(fine, "{said}");
    for (kind, trust) in [
        (CertificateKind::Sound, false),
        (CertificateKind::SelfSigned, false),
        (CertificateKind::Expired, true),
        (CertificateKind::OtherHost, true),
    ] {
        let (fine, said) = over_tls(kind, trust);
        assert!(
            !fine && said.contains("is not trusted") && said.contains("SSL_CERT_FILE"),
            "{kind:?}: {said}"
        );
    }
}

#[test]
fn samples_that_fail_are_skipped_like_others() {
    let served = Served::new(Dataset::folder(SAMPLES));
    let pipeline = served
        .pipeline(&LoaderOptions { on_error: foreload::testing::config::OnError::Skip, ..small_images() });
    served.fail(&["/data/class1/00025.jpg status:always:404"]);
    let epoch = finished(&pipeline, 0);
    assert_eq!(epoch.failed(), 1);
}
