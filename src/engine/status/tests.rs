//! Tests of the status watch with processes of all sorts.

use super::watch::StatusWatch;
use super::*;
use base::node::{RuntimeDirectory, UserListener};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(300);

fn answer<'scope, 'env>(scope: &'scope Scope<'scope, 'env>, listener: &'env UserListener, bytes: &'env [u8]) {
    scope.spawn(move || {
        while let Ok(mut stream) = listener.accept() {
            let _ = stream.write_all(bytes);
        }
    });
}

fn text(loaders: Vec<LoaderSnapshot>) -> Vec<u8> {
    let snapshot = ProcessSnapshot { version: VERSION, program: "train.py".into(), loaders };
    serde_json::to_vec(&snapshot).unwrap()
}

#[test]
fn a_snapshot_stays_what_it_is_and_may_get_more_and_fewer_fields() {
    let mut loader = LoaderSnapshot { dataset: "data/train".into(), steps: Some(7), ..Default::default() };
    loader.tiers.push(TierNumbers { name: "ram".into(), samples: 3, ..Default::default() });
    loader.stream = Some(Default::default());
    let text = serde_json::to_string(&loader).unwrap();
    assert_eq!(serde_json::from_str::<LoaderSnapshot>(&text).unwrap(), loader);
    let later = r#"{"dataset":"x","mount":{"state":"idle"},"step":3}"#;
    let read: LoaderSnapshot = serde_json::from_str(later).unwrap();
    assert_eq!(read, LoaderSnapshot { dataset: "x".into(), step: 3, ..Default::default() });
}

#[test]
fn all_are_asked_at_once_and_nobody_is_believed_or_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let directory = RuntimeDirectory::within(place.path()).unwrap();
    let pid = std::process::id();
    let bind = |number: u32| UserListener::bind(&directory, &format!("{pid}-{number}")).unwrap();
    let loader = LoaderSnapshot { number: 4, seconds: 2.0, samples: 10, running: true, ..Default::default() };
    let long = "é".repeat(5000);
    let answers = [
        text(vec![loader.clone(), LoaderSnapshot { dataset: long, ..loader.clone() }]),
        b"HTTP/1.1 200 OK\r\n\r\n<html>".to_vec(),
        b"[".repeat(100_000),
        vec![b' '; 5 << 20],
        Vec::new(),
        text(Vec::new()).strip_suffix(b"}").unwrap().to_vec(),
        br#"{"version":99}"#.to_vec(),
        br#"{"version":1,"loaders":[{"samples":-1}]}"#.to_vec(),
    ];
    let listeners: Vec<_> = (0..answers.len() as u32).map(bind).collect();
    // These four sockets listen and never respond, as if their processes were stopped. Socket 30 is abandoned.
    let silent: Vec<_> = (20..24).map(bind).collect();
    drop(bind(30));
    std::fs::write(directory.place_of(&format!("{pid}-31")), "no socket").unwrap();
    let mut watch = StatusWatch::within(RuntimeDirectory::within(place.path()).unwrap());
    std::thread::scope(|scope| {
        for (listener, bytes) in listeners.iter().zip(&answers) {
            answer(scope, listener, bytes);
        }
        let looked = [watch.ask_all(PATIENCE), watch.ask_all(PATIENCE)];
        for seen in &looked {
            assert!(seen.iter().all(|process| process.pid == pid));
            let silent = seen.iter().filter(|process| matches!(process.state, ProcessState::Silent(_)));
            assert_eq!(silent.count(), 4, "{seen:?}");
            let mut why: Vec<&str> = Vec::new();
            for process in seen {
                match &process.state {
                    ProcessState::Unreadable(reason) => why.push(reason),
                    ProcessState::Answered(loaders) => {
                        assert_eq!(process.program, "train.py");
                        assert_eq!(loaders[0].0, loader);
                        assert_eq!(loaders[0].1.samples_per_second, 5.0);
                        assert_eq!(loaders[1].0.dataset.chars().count(), 1001);
                    }
                    ProcessState::Silent(_) => {}
                }
            }
            assert_eq!(why.len(), 7, "{why:?}");
            assert!(why.iter().any(|why| why.contains("uses version 99")), "{why:?}");
            assert!(why.iter().any(|why| why.contains("more than 4 MiB")), "{why:?}");
        }
        assert!(!directory.names().iter().any(|name| name.ends_with("-30") || name.ends_with("-31")));
        listeners.iter().for_each(UserListener::stop);
    });
    drop((listeners, silent));
    assert!(watch.ask_all(PATIENCE).is_empty());
    assert!(directory.names().is_empty());
}

#[test]
fn who_is_silent_is_asked_once_and_seen_when_it_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let directory = RuntimeDirectory::within(place.path()).unwrap();
    let pid = std::process::id();
    let listener = UserListener::bind(&directory, &format!("{pid}-1")).unwrap();
    let mut watch = StatusWatch::within(RuntimeDirectory::within(place.path()).unwrap());
    for _ in 0..5 {
        let seen = watch.ask_all(Duration::from_millis(5));
        assert!(matches!(seen[0].state, ProcessState::Silent(_)), "{seen:?}");
    }
    let (bytes, answered) = (text(vec![LoaderSnapshot::default()]), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            listener.accept().unwrap().write_all(&bytes).unwrap();
            answered.store(true, Ordering::SeqCst);
        });
        while !answered.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let seen = watch.ask_all(PATIENCE);
    assert!(matches!(&seen[0].state, ProcessState::Answered(loaders) if loaders.len() == 1), "{seen:?}");
}

#[test]
fn the_kernel_says_who_listens() {
    let place = tempfile::tempdir().unwrap();
    let directory = RuntimeDirectory::within(place.path()).unwrap();
    // The process id that the kernel reports takes precedence over the process id in the name.
    let listener = UserListener::bind(&directory, "4194311-1").unwrap();
    let mut watch = StatusWatch::within(RuntimeDirectory::within(place.path()).unwrap());
    let seen = watch.ask_all(Duration::from_millis(5));
    assert_eq!(seen[0].pid, std::process::id());
    drop(listener);
}

#[test]
fn names_of_sockets_say_whose_they_are() {
    assert_eq!(process_of("12-00ff"), Some(12));
    for other in ["12", "12-", "-00ff", "0-00ff", "12-00ff.new", "a-00ff", "lock"] {
        assert_eq!(process_of(other), None, "{other}");
    }
    assert!(exists(std::process::id()) && !exists(u32::MAX));
}
