//! A random test of the window.

use super::*;

/// Consumers join, ask, lag and leave at random, while batches take time. Each consumer that asks gets its batch or is
/// sent to another producer. Leased batches are of samples that were not read too early.
#[test]
fn nobody_waits_for_ever() {
    for seed in 0..200 {
        let mut random = base::rng::RandomKey::new(&[], seed, 0, base::rng::Use::Substitute).stream(0);
        let mut scene = Scene::new(SharingPolicy::Leave, 1);
        let mut there: BTreeMap<ConsumerId, (BatchPosition, bool, Instant)> = BTreeMap::new();
        let mut making: Option<(u64, Instant)> = None;
        let (mut run, mut latest) = (scene.start, None);
        let mut holds: BTreeMap<BatchPosition, Instant> = BTreeMap::new();
        for number in 0..100u64 {
            match random.below(4) {
                0 if there.len() < 4 => {
                    let near = there.values().next().map_or(at(0, 0), |(next, ..)| *next);
                    if scene.window.join(number, near) {
                        let age = Duration::from_millis(random.below(100));
                        let not_before = scene.instant().checked_sub(age).unwrap().max(scene.start);
                        there.insert(number, (near, false, not_before));
                    }
                }
                1 if there.len() > 1 && random.below(4) == 0 => {
                    let id = *there.keys().nth(random.below(there.len() as u64) as usize).unwrap();
                    there.remove(&id);
                    scene.window.leave(id);
                }
                _ => {
                    let idle: Vec<_> = there.iter().filter(|(_, of)| !of.1).map(|(id, _)| *id).collect();
                    if !idle.is_empty() {
                        let id = idle[random.below(idle.len() as u64) as usize];
                        let consumer = there.get_mut(&id).unwrap();
                        consumer.1 = true;
                        scene.window.ask(id, consumer.0, consumer.2, scene.instant());
                    }
                }
            }
            // With `patient`, all pending requests are answered before new requests come.
            let patient = random.below(3) == 0;
            for _ in 0..if patient { 400 } else { 1 } {
                scene.now += random.below(20);
                if let Some((_, since)) = making.take_if(|(until, _)| *until <= scene.now) {
                    let made = scene.window.end;
                    latest = Some(made);
                    holds.insert(made, since);
                    scene.window.made(made, since);
                }
                for action in scene.window.act(scene.instant()) {
                    match action {
                        Action::Lend(_, of) if scene.window.batch(of).is_none() => {
                            panic!("seed {seed}: {of:?} is gone")
                        }
                        Action::Make(of) => {
                            if latest.is_none_or(|latest| scene.window.after(latest) != of) {
                                run = scene.instant();
                            }
                            let ahead = Duration::from_millis(random.below(200));
                            let since = scene.instant().checked_sub(ahead).unwrap().max(run);
                            making = Some((scene.now + random.below(50), since));
                        }
                        Action::Refuse(id) => drop(there.remove(&id)),
                        Action::Lend(id, of) => {
                            let consumer = there.get_mut(&id).unwrap();
                            assert_eq!(consumer.0, of);
                            assert!(holds[&of] >= consumer.2, "seed {seed}");
                            *consumer = (scene.window.after(of), false, consumer.2);
                        }
                    }
                }
            }
            if patient {
                let waiting: Vec<_> = there.iter().filter(|(_, of)| of.1).collect();
                assert!(waiting.is_empty(), "seed {seed}, operation {number}: {waiting:?}");
            }
        }
    }
}
