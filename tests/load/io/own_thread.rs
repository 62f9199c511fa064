//! Two readers that are driven as one, the second one on its own thread.

use super::world::{World, pool, random, read_all, shared};
use crate::common::fault::{FaultOptions, FaultReader};
use foreload::Error;
use foreload::Result;
use foreload::testing::io::pread::{PreadOptions, PreadReader};
use foreload::testing::io::{
    Completion, Files, GroupWaker, GroupedReader, ListeningReader, OwnThread, ReadRequest, ReadStats, Reader,
    ReaderGroup, Waker,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One reader made of two: the first one reads single files, the second one reads shards.
pub struct Beside {
    world: Arc<World>,
    readers: ReaderGroup,
    loose_here: bool,
}

impl Beside {
    pub fn new(world: Arc<World>, here: Box<dyn Reader>, there: Box<dyn Reader>, loose_here: bool) -> Self {
        Self { world, readers: group(here, move || Ok(there)).unwrap(), loose_here }
    }
}

/// A group of two readers: one runs on this thread, one on its own thread.
fn group(
    here: Box<dyn Reader>,
    there: impl FnOnce() -> Result<Box<dyn Reader>> + Send + 'static,
) -> Result<ReaderGroup> {
    let bell = Arc::new(GroupWaker::default());
    let there = OwnThread::new("there", there, bell.waker())?;
    let readers = vec![GroupedReader::Waiting(here), GroupedReader::Listening(Box::new(there))];
    Ok(ReaderGroup::new(readers, bell))
}

impl Reader for Beside {
    fn room(&self) -> usize {
        self.readers.get(0).room().min(self.readers.get(1).room())
    }
    fn in_flight(&self) -> usize {
        self.readers.in_flight()
    }
    fn submit(&mut self, request: ReadRequest) {
        let is_loose = self.world.stamp(request.extent.file).is_none();
        self.readers.submit(usize::from(is_loose != self.loose_here), request);
    }
    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let mut arrived = Vec::new();
        self.readers.wait(false, &mut arrived)?;
        out.extend(arrived.into_iter().map(|(_, completion)| completion));
        Ok(())
    }
    fn waker(&self) -> Waker {
        self.readers.waker()
    }
    fn stats(&self) -> ReadStats {
        let (here, there) = (self.readers.get(0).stats(), self.readers.get(1).stats());
        ReadStats {
            bytes: here.bytes + there.bytes,
            skipped: here.skipped + there.skipped,
            reads: here.reads + there.reads,
            opens: here.opens + there.opens,
            ..ReadStats::default()
        }
    }
    fn describe(&self) -> String {
        format!("{} beside {}", self.readers.get(0).describe(), self.readers.get(1).describe())
    }
}

fn pread(world: &Arc<World>, depth: usize) -> Box<dyn Reader> {
    Box::new(PreadReader::new(world.clone(), depth, PreadOptions::default()).unwrap())
}

fn idle() -> Waker {
    Waker(Arc::new(|| {}))
}

#[test]
fn one_that_cannot_be_opened_says_why() {
    let refused = || Err(Error::Unavailable("no such reader here".into()));
    let error = OwnThread::new("refused", refused, idle()).err().expect("refused");
    assert_eq!(error.to_string(), "no such reader here");
    let error = OwnThread::new("broken", || panic!("on purpose"), idle()).err().expect("broken");
    assert!(error.to_string().contains("on purpose"), "{error}");
}

/// A reader that accepts requests, and fails in `wait`.
struct Broken {
    taken: Vec<ReadRequest>,
    panics: bool,
}

impl Reader for Broken {
    fn room(&self) -> usize {
        8 - self.taken.len()
    }
    fn in_flight(&self) -> usize {
        self.taken.len()
    }
    fn submit(&mut self, request: ReadRequest) {
        self.taken.push(request);
    }
    fn wait(&mut self, _: &mut Vec<Completion>) -> Result<()> {
        assert!(!self.panics, "on purpose");
        Err(Error::Unavailable("the ring is gone".into()))
    }
    fn waker(&self) -> Waker {
        idle()
    }
    fn stats(&self) -> ReadStats {
        ReadStats::default()
    }
    fn describe(&self) -> String {
        "broken".into()
    }
}

#[test]
fn nobody_waits_for_a_reader_that_has_ended() {
    let (world, slots) = shared(40);
    let extent = world.loose()[10];
    for (panics, said) in [(false, "the ring is gone"), (true, "on purpose")] {
        for beside in [false, true] {
            let open = move || Ok(Box::new(Broken { taken: Vec::new(), panics }) as Box<dyn Reader>);
            let request = |token| {
                let slot = slots.try_take(extent.length as usize).unwrap();
                ReadRequest::new(token, extent, slot)
            };
            let error = if beside {
                let mut readers = group(pread(&world, 4), open).unwrap();
                readers.submit(1, request(0));
                loop {
                    // The first reader continues until it notices that the other one has ended.
                    readers.submit(0, request(1));
                    if let Err(error) = readers.wait(false, &mut Vec::new()) {
                        break error;
                    }
                }
            } else {
                let mut reader = OwnThread::new("broken", open, idle()).unwrap();
                reader.submit(request(0));
                let mut out = Vec::new();
                let error = reader.wait(&mut out).unwrap_err();
                assert!(reader.wait(&mut out).is_err() && out.is_empty());
                error
            };
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(slots.usage().in_use, 0);
        }
    }
}

#[test]
fn only_a_listener_is_notified_and_only_once() {
    let (world, slots) = shared(41);
    let calls = Arc::new(AtomicU64::new(0));
    let (told, tell) = std::sync::mpsc::channel();
    let on_ready = {
        let calls = calls.clone();
        Waker(Arc::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
            told.send(()).unwrap();
        }))
    };
    let make = world.clone();
    let mut reader = OwnThread::new("second", move || Ok(pread(&make, 8)), on_ready).unwrap();
    let loose = world.loose();
    read_all(&mut reader, &slots, &loose);
    assert_eq!(calls.load(Ordering::SeqCst), 0, "it waited here");
    assert!(!reader.listen(), "there is nothing to come");
    let mut listened = 0;
    for (token, &extent) in loose.iter().cycle().take(200).enumerate() {
        let slot = slots.try_take(extent.length as usize).unwrap();
        reader.submit(ReadRequest::new(token as u64, extent, slot));
        if reader.listen() {
            listened += 1;
            tell.recv_timeout(Duration::from_secs(20)).expect("told of the answer");
        }
        let mut out = Vec::new();
        reader.take(&mut out).unwrap();
        assert_eq!((out.len(), out[0].token), (1, token as u64));
        assert!(out[0].result.as_ref().unwrap()[..] == *world.expected(extent));
    }
    assert!(listened > 0, "answers take longer than a look");
    assert_eq!(calls.load(Ordering::SeqCst), listened);
    assert!(tell.try_recv().is_err());
}

#[test]
fn dropped_in_the_middle_nothing_is_lost() {
    let (world, slots) = (Arc::new(World::new(42)), pool());
    for seed in 0..30 {
        let mut random = random(seed);
        let faulty = |seed| Box::new(FaultReader::new(pread(&world, 16), FaultOptions::everything(seed)));
        let mut reader = Beside::new(world.clone(), faulty(seed), faulty(seed + 1000), seed % 2 == 0);
        let mut out = Vec::new();
        let mut answered = 0;
        let steps = random.below(80);
        for step in 0..steps {
            if reader.room() > 0 {
                let extent = match random.below(2) {
                    0 => world.random_extent(&mut random),
                    _ => world.loose()[random.below(40) as usize],
                };
                if let Some(slot) = slots.try_take(extent.length as usize) {
                    reader.submit(ReadRequest::new(step, extent, slot));
                }
            } else {
                reader.wait(&mut out).unwrap();
                answered += out.drain(..).count();
            }
        }
        assert!(answered as u64 <= steps, "seed {seed}");
        drop(reader);
        assert_eq!(slots.usage().in_use, 0, "seed {seed}");
    }
}
