//! A process is killed at random instants while it appends, publishes, withdraws, compacts and writes snapshots.
//!
//! Published samples are right, withdrawn samples are gone, and an interrupted withdrawal succeeds when it is repeated.

use super::world::{assert_is, bytes_in_pages, id, leftovers, numbers_in, open, random, record, small};
use crate::common::{Killable, child};
use crate::store::world::{on_tmpfs, taken, told};
use foreload::testing::rng::RandomStream;
use foreload::testing::stream::segments::{MovedRecord, RecordPlace, SegmentOptions, SegmentStore};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const QUOTA: u64 = 1 << 20;
const ROUNDS: u64 = 80;
/// The numbers of a round's samples begin at this multiple of the round.
const NUMBERS: u64 = 100_000;

fn options(directory: &Path, nameless: bool) -> SegmentOptions {
    SegmentOptions { nameless, snapshot_bytes: 50_000, ..small(directory, QUOTA) }
}

/// The bytes of the snapshot with this seed.
fn snapshot(seed: u64) -> Vec<u8> {
    let length = random(seed).below(20_000) as usize;
    seed.to_le_bytes().repeat(1 + length / 8)
}

/// Writes to the pipe what is about to be done, or was done. A killed process has reported everything that it did.
fn say(word: &str, number: u64) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n!{word} {number}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// A child's store, and its samples with their places.
struct Child {
    store: SegmentStore,
    held: BTreeMap<u64, RecordPlace>,
    random: RandomStream,
}

#[test]
#[ignore = "run and killed by the test below, in processes of its own"]
fn work_until_killed() {
    let numbers: Vec<u64> =
        told("SEGMENTS_NUMBERS").split(' ').map(|number| number.parse().unwrap()).collect();
    let [round, nameless, before @ ..] = &numbers[..] else { panic!("{numbers:?}") };
    say("begin", 0);
    let store = open(&options(Path::new(&told("SEGMENTS")), *nameless == 1));
    let known: HashMap<u64, u64> = before.iter().map(|&number| (id(number), number)).collect();
    let held = store.places().filter_map(|of| Some((*known.get(&of.id)?, of.place))).collect();
    let mut child = Child { store, held, random: random(*round) };
    for number in NUMBERS * (round + 1).. {
        child.append(number);
        match child.random.below(40) {
            0 | 1 => child.withdraw(),
            2 => child.compact(),
            3 | 4 => {
                child.store.publish().unwrap();
                say("published", number);
            }
            5 => {
                // There are two snapshot numbers, so a snapshot replaces an earlier one.
                say("snapshot", number);
                if child.store.write_snapshot(number % 2, &snapshot(number)).is_ok() {
                    say("written", number);
                }
            }
            _ => {}
        }
    }
}

impl Child {
    fn append(&mut self, number: u64) {
        loop {
            if let Ok(place) = self.store.append(&record(number)) {
                self.held.insert(number, place);
                return say("appended", number);
            }
            for number in self.some() {
                say("free", number);
                let place = self.held.remove(&number).unwrap();
                self.store.free(&place).unwrap();
            }
            self.compact();
        }
    }

    fn some(&mut self) -> Vec<u64> {
        let random = &mut self.random;
        self.held.keys().copied().filter(|_| random.below(10) == 0).collect()
    }

    fn follow(&mut self, moved: &[MovedRecord]) {
        let moved: HashMap<_, _> = moved.iter().map(|moved| (moved.from, moved.to.unwrap())).collect();
        self.held.values_mut().for_each(|place| *place = moved.get(place).copied().unwrap_or(*place));
    }

    fn withdraw(&mut self) {
        let numbers = self.some();
        numbers.iter().for_each(|&number| say("withdraw", number));
        let mut moved = Vec::new();
        self.store.withdraw(&numbers.iter().map(|&number| id(number)).collect(), &mut moved).unwrap();
        numbers.iter().for_each(|&number| say("withdrawn", number));
        self.held.retain(|number, _| !numbers.contains(number));
        self.follow(&moved);
    }

    fn compact(&mut self) {
        let mut moved = Vec::new();
        self.store.compact(0.8, &mut moved).unwrap();
        self.follow(&moved);
    }
}

/// The state of the samples as the parent knows it.
#[derive(Default)]
struct Known {
    /// Published, and neither withdrawn nor freed.
    safe: BTreeSet<u64>,
    /// Appended and perhaps published, or about to be freed and perhaps still stored.
    perhaps: BTreeSet<u64>,
    /// About to be withdrawn, and perhaps withdrawn.
    withdrawing: BTreeSet<u64>,
    /// Withdrawn in any round.
    withdrawn: BTreeSet<u64>,
    /// The next sample to be appended; it may have been appended without a report.
    next: u64,
    /// The possible contents of each snapshot, and whether the snapshot must exist.
    snapshots: [(Vec<u64>, bool); 2],
}

impl Known {
    fn hear(&mut self, word: &str, number: u64) {
        let snapshots = &mut self.snapshots[number as usize % 2];
        match word {
            "begin" => {}
            "appended" => {
                self.perhaps.insert(number);
                self.next = number + 1;
            }
            "published" => {
                // Samples that are about to be freed were removed from `safe` before.
                self.safe.append(&mut self.perhaps);
            }
            // The parent withdraws freed samples.
            "free" | "withdraw" => {
                self.safe.remove(&number);
                self.perhaps.remove(&number);
                self.withdrawing.insert(number);
            }
            "withdrawn" => {
                self.withdrawing.remove(&number);
                self.withdrawn.insert(number);
            }
            "snapshot" => snapshots.0.push(number),
            "written" => *snapshots = (vec![number], true),
            other => panic!("{other}"),
        }
    }
}

fn kill_many(directory: &Path, nameless: bool, file_system: Option<&Path>) {
    let seed = 5 + u64::from(nameless);
    println!("seed {seed}, nameless {nameless}");
    let (mut random, mut known, mut counts) = (random(seed), Known::default(), BTreeMap::<_, u64>::new());
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, nameless {nameless}, round {round}");
        let before: Vec<String> =
            known.safe.iter().chain(&known.perhaps).map(|number| format!(" {number}")).collect();
        known.next = NUMBERS * (round + 1);
        let numbers = format!("{} {}{}", round, u64::from(nameless), before.concat());
        let mut command = child(work_until_killed);
        command.envs([("SEGMENTS", directory.to_str().unwrap()), ("SEGMENTS_NUMBERS", &numbers)]);
        let mut killed = Killable::start(command.stdout(Stdio::piped()));
        let mut lines = BufReader::new(killed.0.stdout.take().unwrap()).lines();
        let longest = [3, 40, 400][random.below(3) as usize];
        let most = 1 + random.below(longest);
        let mut heard = 0;
        let mut hear = |line: std::io::Result<String>| {
            let line = line.unwrap();
            let Some((word, number)) = line.strip_prefix('!').and_then(|line| line.split_once(' ')) else {
                return 0;
            };
            *counts.entry(word.to_owned()).or_default() += 1;
            known.hear(word, number.parse().unwrap());
            1
        };
        while heard < most {
            heard += hear(lines.next().unwrap_or_else(|| panic!("{what}: the child is gone")));
            if let Some(path) = file_system {
                let bytes = taken(path);
                assert!(bytes <= QUOTA, "{what}: {bytes} bytes taken of {QUOTA}");
            }
        }
        killed.kill_within(Duration::from_micros(1500), &mut random);
        for line in lines {
            hear(line);
        }
        check(directory, nameless, &mut known, &what);
    }
    println!("{counts:?}");
    for word in ["published", "withdrawn", "free", "written"] {
        assert!(counts.get(word).is_some_and(|&count| count > 20), "{word}: {counts:?}");
    }
    let cut_short = counts["withdraw"] - counts["withdrawn"];
    assert!(cut_short > 50, "samples that were being withdrawn when the process was killed: {cut_short}");
}

/// Opens the store that the killed process left, and finishes its withdrawals.
fn check(directory: &Path, nameless: bool, known: &mut Known, what: &str) {
    let mut store = open(&options(directory, nameless));
    assert!(leftovers(directory).is_empty(), "{what}: {:?}", leftovers(directory));
    assert_eq!(store.used(), bytes_in_pages(directory), "{what}");
    assert!(store.used() <= QUOTA, "{what}");
    let again: HashSet<u64> = known.withdrawing.iter().map(|&number| id(number)).collect();
    store.withdraw(&again, &mut Vec::new()).unwrap();
    known.withdrawn.append(&mut known.withdrawing);
    let there = numbers_in(directory);
    assert!(there.is_disjoint(&known.withdrawn), "{what}: withdrawn samples are in {}", directory.display());
    // Of two copies of a sample that was being moved, one stays.
    store.retain(|_| true).unwrap();
    let may = known.safe.iter().chain(&known.perhaps).copied().chain([known.next]);
    let may: HashMap<u64, u64> = may.map(|number| (id(number), number)).collect();
    let mut found = BTreeSet::new();
    for stored in store.places() {
        let number = *may.get(&stored.id).unwrap_or_else(|| panic!("{what}: a sample never appended"));
        assert!(found.insert(number), "{what}: {number} is there twice");
        assert_is(&store, &stored.place, number, what);
    }
    let missing: Vec<_> = known.safe.difference(&found).collect();
    assert!(missing.is_empty(), "{what}: {missing:?} were published and are gone");
    known.safe = found;
    known.perhaps.clear();
    for (number, (may, must)) in known.snapshots.iter_mut().enumerate() {
        match store.read_snapshot(number as u64) {
            Ok(bytes) => {
                let is = may.iter().copied().find(|&seed| snapshot(seed) == bytes);
                may.retain(|&seed| Some(seed) == is);
                *must = true;
                assert!(is.is_some(), "{what}: snapshot {number} is of nobody");
            }
            Err(error) => assert!(!*must, "{what}: {error}"),
        }
    }
}

#[test]
fn killed_processes_leave_what_they_published_and_nothing_of_what_they_withdrew() {
    let directory = tempfile::tempdir().unwrap();
    kill_many(directory.path(), true, None);
    // On a separate file system the used space is known exactly, including files without a name.
    on_tmpfs(16 << 20, |path| kill_many(&path.join("own"), false, Some(path)));
}
