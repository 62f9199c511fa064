//! The batches are the same, whatever faults requests meet.

use crate::common::Dataset;
use crate::proxy::Failing;
use crate::store::{Store, hashes};
use std::time::Duration;

#[test]
fn faults_change_no_byte() {
    for dataset in [Dataset::folder(60), Dataset::shards(60, 25)] {
        let Some(store) = Store::new(dataset) else { return };
        let expected = store.expected();
        for (every, how) in
            [(3, Failing::SlowDown), (4, Failing::Cut), (20, Failing::Stall(Duration::from_millis(400)))]
        {
            store.proxy.fail(every, how, how == Failing::SlowDown);
            let report = store.report("s3://box/sets/data", &[]);
            assert_eq!(hashes(&report), expected, "{how:?}");
        }
        // If credentials have expired, the client looks for new ones, and may find others.
        store.proxy.fail_next(3, Failing::Expired);
        assert_eq!(store.epochs("s3://box/sets/data", &[]), expected);
    }
}
