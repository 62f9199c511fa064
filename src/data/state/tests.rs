//! Tests for which schedules a state fits, and which error messages appear if it does not fit.

use super::*;
use crate::dataset::Fingerprint;
use crate::schedule::Order;

fn identity(samples: u64, last_batch: LastBatch) -> OrderIdentity {
    OrderIdentity {
        fingerprint: "ab".into(),
        seed: 7,
        epoch_size: samples,
        shuffle: true,
        blocks: None,
        last_batch,
        selection: None,
        repeats: 1,
        mix: None,
        buckets: None,
        bins: None,
    }
}

fn schedule(samples: u64, batch: u32, world: u32, last: LastBatch) -> Schedule {
    let order = Order::shuffled(&Fingerprint([1; 32]), 7, 3, samples);
    Schedule::new(order, batch, 0, world, last).unwrap()
}

fn message<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn every_step_comes_back_for_every_number_of_ranks() {
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial] {
        for samples in [96, 100, 107] {
            let (here, saved) = (identity(samples, last), schedule(samples, 12, 2, last));
            for step in 0..=saved.steps() {
                let state = State::new(&here, 3, &saved, step, 1);
                let state = State::from_json(&state.to_json()).unwrap();
                state.check(&here).unwrap();
                assert_eq!(state.is_through(), step == saved.steps(), "{step} of {}", saved.steps());
                for world in [1, 2, 3, 4, 6, 8, 12, 24] {
                    let now = schedule(samples, 24 / world, world, last);
                    assert_eq!(state.first_step(&now).unwrap(), step);
                }
            }
        }
    }
}

#[test]
fn another_global_batch_is_refused_in_the_middle_only_with_what_would_fit() {
    let (here, saved) = (identity(1000, LastBatch::Drop), schedule(1000, 16, 4, LastBatch::Drop));
    let middle = State::new(&here, 0, &saved, 3, 0);
    let other = |batch, world| schedule(1000, batch, world, LastBatch::Drop);
    let said = message(middle.first_step(&other(16, 2)));
    assert_eq!(
        said,
        "config: batch_size: 16 on each of 2 ranks is a global batch of 32, but the epoch was started with 64: set \
         batch_size=32"
    );
    let said = message(middle.first_step(&other(16, 3)));
    assert!(
        said.starts_with("config: world_size: ") && said.ends_with("world sizes: 1, 2, 4, 8, 16, 32"),
        "{said}"
    );
    assert_eq!(State::new(&here, 0, &saved, 0, 0).first_step(&other(16, 3)).unwrap(), 0);
    let through = State::new(&here, 0, &saved, saved.steps(), 0);
    assert_eq!(through.first_step(&other(16, 3)).unwrap(), other(16, 3).steps());
}

#[test]
fn another_order_is_refused_by_what_differs() {
    let here = identity(1000, LastBatch::Drop);
    let state = State::new(&here, 0, &schedule(1000, 16, 4, LastBatch::Drop), 3, 0);
    for (there, words) in [
        (
            OrderIdentity { fingerprint: "cd".into(), ..here.clone() },
            "the dataset's fingerprint was ab and is cd",
        ),
        (OrderIdentity { seed: 8, ..here.clone() }, "seed was 7 and is 8"),
        (OrderIdentity { shuffle: false, ..here.clone() }, "shuffle was true and is false"),
        (OrderIdentity { last_batch: LastBatch::Pad, ..here.clone() }, "last_batch was drop and is pad"),
        (OrderIdentity { epoch_size: 999, ..here.clone() }, "epoch_size was 1000 and is 999"),
        (OrderIdentity { selection: Some("e".into()), ..here.clone() }, "was every sample once and is e"),
        (OrderIdentity { repeats: 3, ..here.clone() }, "repeats was 1 and is 3"),
        (OrderIdentity { mix: Some("[]".into()), ..here.clone() }, "mix was None and is []"),
    ] {
        let said = message(state.check(&there));
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_is_no_state_is_refused_in_words() {
    let here = identity(1000, LastBatch::Drop);
    let good = State::new(&here, 0, &schedule(1000, 16, 4, LastBatch::Drop), 3, 0).to_json();
    for (text, words) in [
        ("[]".to_owned(), "is not a loader state"),
        ("{}".to_owned(), "it has no version"),
        (good.replace("\"version\":1", "\"version\":2"), "has version 2"),
        (good.replace("\"seed\"", "\"sead\""), "unknown field `sead`"),
        (good.replace("\"epoch\":0,", ""), "missing field `epoch`"),
        (good.replace("\"position\":192", "\"position\":-1"), "invalid value"),
        (good.replace("\"position\":192", "\"position\":1001"), "is damaged"),
        (good.replace("\"position\":192", "\"position\":193"), "is damaged"),
        (good.replace("\"global_batch\":64", "\"global_batch\":0"), "is damaged"),
        (good.replace("\"global_batch\":64", &format!("\"global_batch\":{}", u64::MAX)), "is damaged"),
    ] {
        let said = message(State::from_json(&text));
        assert!(said.starts_with("config: state: ") && said.contains(words), "{text}: {said}");
    }
}
