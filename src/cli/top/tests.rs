//! The drawing of a fixed snapshot, at several terminal sizes.

use super::Sorting;
use super::cells;
use super::rows::TopRows;
use super::view::{LineStyle, TopView, once};
use crate::output::escaped_for_terminal;
use engine::status::{
    LoaderRates, LoaderSnapshot, ProcessState, ProcessStatus, QueueNumbers, SharingNumbers, StageNumbers,
    StallNumbers, TierNumbers,
};
use std::path::Path;
use std::time::Duration;

fn loader(number: u64, samples: u64, waiting: f64) -> (LoaderSnapshot, LoaderRates) {
    let tier = |name: &str, samples, held_bytes, quota_bytes| TierNumbers {
        name: name.into(),
        samples,
        latency: 1.0,
        held_bytes,
        quota_bytes,
    };
    let loader = LoaderSnapshot {
        number,
        kind: "images".into(),
        dataset: "/data/imagenet/train".into(),
        rank: number as u32,
        world_size: 4,
        device: "cpu".into(),
        running: true,
        epoch: 3,
        step: 120,
        steps: Some(1563),
        seconds: 2.0,
        samples,
        bytes: 110_000 * samples,
        stages: StageNumbers { threads: 2, decoding: 2.4, augmenting: 1.0, waiting, ..Default::default() },
        stalls: StallNumbers { count: 120, p50: 0.0012, p99: 0.031, max: 1.5 },
        tiers: vec![tier("source", samples / 4, 0, 0), tier("ram", samples * 3 / 4, 1 << 30, 4 << 30)],
        queue: QueueNumbers { in_flight: 12, depth: 64, ready: 1, prefetch: 3 },
        ..Default::default()
    };
    let rates = LoaderRates::between(None, &loader);
    (loader, rates)
}

fn seen() -> Vec<ProcessStatus> {
    let process = |pid, state| ProcessStatus { pid, program: "train.py".into(), state };
    vec![
        process(7, ProcessState::Answered(vec![loader(0, 2000, 1.0), loader(1, 8000, 0.0)])),
        process(1234, ProcessState::Silent(Duration::from_secs(12))),
        process(99_999, ProcessState::Unreadable("answers what is no \u{1b}[31msnapshot".into())),
    ]
}

fn place() -> &'static Path {
    Path::new("/run/user/1000/foreload/top")
}

#[test]
fn a_table_says_all_of_it_where_there_is_room() {
    let seen = seen();
    let text = once(&TopRows::new(&seen, Sorting::Process), place(), None);
    let lines: Vec<&str> = text.lines().collect();
    let beginnings: Vec<&str> = lines.iter().map(|line| line.get(..77).unwrap_or(line)).collect();
    assert_eq!(
        beginnings,
        [
            "  PID  PROGRAM   DATASET               RANK  DEVICE  EPOCH      STEP  SAMPLES",
            "    7  train.py  /data/imagenet/train   0/4  cpu         3  120/1563       10",
            "    7  train.py  /data/imagenet/train   1/4  cpu         3  120/1563       40",
            " 1234  train.py  not answering for 12.0 s",
            "99999  train.py  answers what is no \\u{1b}[31msnapshot",
        ]
    );
    let ends: Vec<&str> = lines.iter().filter_map(|line| line.get(77..)).collect();
    assert_eq!(
        ends,
        [
            "/S  BYTES/S  LIMIT     WAIT    P50/P99 STALL  FROM                THREADS  READS  READY",
            "00   110 MB  decode     50%  1.20 ms/31.0 ms  source 25% ram 75%        2  12/64    1/3",
            "00   440 MB  consumer    0%  1.20 ms/31.0 ms  source 25% ram 75%        2  12/64    1/3",
        ]
    );
}

#[test]
fn narrow_terminals_get_what_matters_most_and_no_line_is_too_long() {
    let seen = seen();
    let rows = TopRows::new(&seen, Sorting::Process);
    let titles = |width| once(&rows, place(), Some(width)).lines().next().unwrap().to_owned();
    assert_eq!(titles(60), "  PID  PROGRAM   DATASET     RANK  SAMPLES/S  LIMIT     WAIT");
    assert_eq!(titles(36), "  PID  PROGRAM   SAMPLES/S  LIMIT");
    // A program name with characters of two cells is cut to the right width.
    let mut wide = self::seen();
    wide[0].program = "写真で訓練する.py".into();
    let wide = TopRows::new(&wide, Sorting::Process);
    for (width, rows) in (1..200).flat_map(|width| [(width, &rows), (width, &wide)]) {
        let text = once(rows, place(), Some(width));
        assert!(text.lines().all(|line| cells::width(line) <= width), "{width}: {text}");
    }
}

#[test]
fn a_screen_is_filled_and_shows_more_of_the_chosen_loader() {
    let seen = seen();
    let mut view = TopView::new(Sorting::Rate, Duration::from_secs(1));
    let rows = TopRows::new(&seen, view.sort);
    let lines = view.lines(&rows, place(), (100, 24));
    assert_eq!(lines.len(), 24);
    assert_eq!(lines[0].1, "foreload top: 2 loaders in 3 processes, 5000 samples/s, 550 MB/s; every 1.00 s");
    assert!(lines[1].0 == LineStyle::Title && lines[2].0 == LineStyle::Chosen);
    assert!(lines[2].1.contains("4000"), "the fastest comes first: {:?}", lines[2]);
    assert!(
        lines.iter().any(|(_, line)| line.contains("ram 75% of samples, 1.07 GB of 4.29 GB used")),
        "{lines:?}"
    );
    assert!(lines.iter().any(|(_, line)| line.contains("120 batches: median 1.20 ms")), "{lines:?}");
    assert!(lines[23].1.starts_with("q quits   s sorts (by rate)"));
    // The same loader stays chosen after a change of the sort order. At either end of the list, the choice stays.
    view.step(&rows, 1);
    view.sort = Sorting::Process;
    let rows = TopRows::new(&seen, view.sort);
    assert_eq!(view.lines(&rows, place(), (100, 24))[2].0, LineStyle::Chosen);
    view.step(&rows, 10);
    assert_eq!(view.lines(&rows, place(), (100, 24))[5].0, LineStyle::Chosen);
    for (width, height) in [(1, 1), (20, 3), (80, 5), (300, 100)] {
        let lines = view.lines(&rows, place(), (width, height));
        assert_eq!(lines.len(), height.max(1));
        assert!(lines.iter().all(|(_, line)| cells::width(line) <= width), "{width}×{height}: {lines:?}");
    }
}

#[test]
fn a_share_of_the_processors_and_shared_batches_are_told_where_they_are() {
    let (mut shown, rates) = loader(0, 2000, 1.0);
    let lines = |shown: &LoaderSnapshot| {
        let processes = vec![(shown.clone(), rates.clone())];
        let seen = [ProcessStatus { pid: 7, program: "x".into(), state: ProcessState::Answered(processes) }];
        let view = TopView::new(Sorting::Rate, Duration::from_secs(1));
        let lines = view.lines(&TopRows::new(&seen, view.sort), place(), (300, 24));
        lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    };
    assert!(!lines(&shown).contains("processors") && !lines(&shown).contains("shared"));
    shown.cores = Some(0.5);
    let (batches, consumers) = (90, 3);
    shown.sharing = Some(SharingNumbers { producer: 41, consumers, batches, lost: 1, ..Default::default() });
    let text = lines(&shown);
    assert!(text.contains("at most 0.50 processors"), "{text}");
    let shared = "90 batches, now from process 41, which serves 3 loaders, 1 producers lost";
    assert!(text.contains(shared), "{text}");
}

#[test]
fn a_hundred_loaders_scroll() {
    let many: Vec<_> = (0..100).map(|number| loader(number, 100, 0.5)).collect();
    let seen = [ProcessStatus { pid: 7, program: "x".into(), state: ProcessState::Answered(many) }];
    let rows = TopRows::new(&seen, Sorting::Process);
    let mut view = TopView::new(Sorting::Process, Duration::from_secs(1));
    for by in [0, 50, 30, 100, -100] {
        view.step(&rows, by);
        let lines = view.lines(&rows, place(), (120, 20));
        assert_eq!(lines.len(), 20);
        assert_eq!(lines.iter().filter(|(style, _)| *style == LineStyle::Chosen).count(), 1, "{by}");
    }
}

#[test]
fn nobody_is_said_to_be_there_with_what_to_do() {
    let text = once(&TopRows::new(&[], Sorting::Process), place(), None);
    assert!(text.contains("/run/user/1000/foreload/top") && text.contains("FORELOAD_RUNTIME_DIR"), "{text}");
    let lines = TopView::new(Sorting::Process, Duration::from_secs(1)).lines(
        &TopRows::new(&[], Sorting::Process),
        place(),
        (40, 24),
    );
    assert!(lines.iter().any(|(_, line)| line.contains("no running loader")));
}

#[test]
fn names_cannot_draw() {
    assert_eq!(escaped_for_terminal("a\u{1b}[2J\nb\u{202e}c\u{9b}"), "a\\u{1b}[2J\\u{a}b\\u{202e}c\\u{9b}");
    assert_eq!(escaped_for_terminal("größe 数据"), "größe 数据");
}
