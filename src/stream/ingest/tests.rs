//! The counters balance, whatever happens to the queue in any order.

use super::*;
use crate::share::RankShare;
use crate::spill::SpillOptions;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum QueueEvent {
    /// Samples arrive. Some may be unusable, and the first may have arrived before.
    Arrive {
        samples: u8,
        unusable: bool,
        again: bool,
    },
    Take(u8),
    PutBack,
    Settle {
        failed: bool,
    },
    /// A fifth of all possible samples is withdrawn.
    Withdraw(u8),
}

fn happenings() -> impl Strategy<Value = Vec<QueueEvent>> {
    let arrive = (1..12u8, any::<bool>(), any::<bool>());
    let one = prop_oneof![
        4 => arrive.prop_map(|(samples, unusable, again)| QueueEvent::Arrive { samples, unusable, again }),
        3 => (1..9u8).prop_map(QueueEvent::Take),
        1 => Just(QueueEvent::PutBack),
        2 => any::<bool>().prop_map(|failed| QueueEvent::Settle { failed }),
        1 => any::<u8>().prop_map(QueueEvent::Withdraw),
    ];
    proptest::collection::vec(one, 1..60)
}

fn arrival(number: u64, usable: bool) -> Arrival {
    let key = number.to_string();
    let record = Record::new("s", &key, &[("jpg", &[0; 100])]);
    let record = if usable { record } else { Err("it is broken".to_owned()) };
    Arrival { key, record, gap: u64::from(number.is_multiple_of(7)) }
}

fn ingest(policy: StreamPolicy, spill: Option<Spill>) -> Arc<IngestQueue> {
    let options = IngestOptions {
        policy,
        seed: 1,
        most_bytes: 1000,
        always_admitted: 2,
        labeled: false,
        raises: false,
        spill,
        notices: Notices::default(),
    };
    let source = ("s".to_owned(), Replay::Ordered, SourcePosition::default());
    IngestQueue::new(options, vec![source], StreamCounters::default())
}

proptest! {
    #[test]
    fn every_sample_is_somewhere_at_every_instant(
        policy in prop::sample::select(vec![
            StreamPolicy::Block, StreamPolicy::DropOldest, StreamPolicy::DropRandom, StreamPolicy::Spill,
        ]),
        happenings in happenings(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let spill = (policy == StreamPolicy::Spill).then(|| {
            let options = SpillOptions { directory: folder.path().join("spill"), bytes: 8 << 20 };
            Spill::open(&options, RankShare::default(), &Notices::default()).unwrap()
        });
        let ingest = ingest(policy, spill);
        let (mut next, mut taken) = (0, Vec::<WaitingSample>::new());
        for happening in happenings {
            match happening {
                QueueEvent::Arrive { samples, unusable, again } => {
                    let first = if again { next.max(1) - 1 } else { next };
                    let end = first + u64::from(samples);
                    let arrivals = (first..end).map(|number| arrival(number, !unusable || number % 3 > 0));
                    ingest.arrive(0, arrivals).unwrap();
                    next = end;
                }
                QueueEvent::Take(count) => taken.extend(ingest.take(count.into())),
                QueueEvent::PutBack => ingest.put_back(taken.drain(..)),
                QueueEvent::Settle { failed } => {
                    let outcome = if failed { SampleOutcome::Failed } else { SampleOutcome::Delivered };
                    ingest.settle(taken.drain(..).map(|sample| (sample.record.id, outcome)));
                }
                QueueEvent::Withdraw(part) => {
                    let keys = (0..next + 5).filter(|number| number % 5 == u64::from(part) % 5);
                    let ids = keys.map(|number| crate::sample_id("s", &number.to_string())).collect();
                    ingest.withdraw(&ids).unwrap();
                }
            }
            let counters = ingest.counters();
            prop_assert!(counters.balances(), "{counters:?}");
            prop_assert!(counters.queued >= taken.len() as u64);
        }
        ingest.settle(taken.drain(..).map(|sample| (sample.record.id, SampleOutcome::Delivered)));
        let rest = ingest.take(usize::MAX);
        ingest.settle(rest.into_iter().map(|sample| (sample.record.id, SampleOutcome::Delivered)));
        let counters = ingest.counters();
        prop_assert_eq!(counters.queued, 0);
        let unsettled: u64 = ingest.positions().sources.iter().map(|(_, unsettled)| unsettled).sum();
        prop_assert_eq!(unsettled, counters.spilled);
    }
}
