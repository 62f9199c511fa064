//! The reservoirs of former ranks, divided among more or fewer ranks.

use super::*;

#[test]
fn reservoirs_of_other_ranks_are_divided_as_if_there_had_been_these() {
    let ranks = (1..5_usize, 1..5_u64, 1..20_u64, 1..150_usize, 0..150_usize);
    run(ranks, |(former, ranks, capacity, before, behind)| {
        let all: Vec<Offered> = (0..(before + behind) as u64).map(sample).collect();
        let options = (SEED, KeepBy::Uniform, Capacity::Samples(capacity));
        let each: Vec<Reservoir> = (0..former)
            .map(|rank| {
                let dealt: Vec<Offered> = all[..before].iter().skip(rank).step_by(former).copied().collect();
                filled(SEED, KeepBy::Uniform, Capacity::Samples(capacity), &dealt)
            })
            .collect();
        let threshold = each.iter().flat_map(Reservoir::parts).filter_map(|(_, threshold)| threshold).min();
        let everything = filled(SEED, KeepBy::Uniform, Capacity::Samples(1000), &all);
        for rank in 0..ranks {
            let is_own = |id: u64| id % ranks == rank;
            let mut divided = Reservoir::new(SEED, KeepBy::Uniform, Capacity::Samples(capacity)).unwrap();
            for reservoir in &each {
                let own = reservoir.entries().filter(|kept| is_own(kept.id)).copied();
                divided.merge(Reservoir::restore(options, reservoir.parts(), own).unwrap().0).unwrap();
            }
            for offered in all[before..].iter().filter(|offered| is_own(offered.id)) {
                divided.offer(offered, &mut StepChange::default()).unwrap();
            }
            let expected: Vec<KeptSample> = everything
                .entries()
                .filter(|kept| is_own(kept.id) && threshold.is_none_or(|at| (kept.order, kept.id) < at))
                .take(capacity as usize)
                .copied()
                .collect();
            prop_assert_eq!(divided.entries().copied().collect::<Vec<_>>(), expected);
        }
        Ok(())
    });
}
