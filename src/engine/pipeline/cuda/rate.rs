//! Measures how long the GPU's decoders take for an image, from the times of their calls.

/// Number of latest calls from which the rate is computed. It must include several calls of each lane, because lanes
/// decode in parallel.
const REMEMBERED: usize = 12;

/// The time that decoders take per image. Time in which no call runs does not count, and time in which calls overlap
/// counts once.
#[derive(Debug)]
pub(crate) struct DecodeRate {
    /// The latest calls, in the order in which they were done.
    calls: Vec<TimedCall>,
    /// The end of the latest call that is no longer in `calls`, in seconds.
    previous_done: f64,
}

/// A decoder's call with `images` images. The call began at `given` and ended at `done`, in seconds of one clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    pub images: usize,
    pub given: f64,
    pub done: f64,
}

impl Default for DecodeRate {
    fn default() -> Self {
        Self { calls: Vec::new(), previous_done: f64::MIN }
    }
}

impl DecodeRate {
    /// Adds a call. Calls of several lanes come in any order, because a lane reports the calls of a batch when all have
    /// ended.
    pub(crate) fn record(&mut self, call: TimedCall) {
        if call.images == 0 || !(call.done - call.given).is_finite() || call.done <= call.given {
            return;
        }
        let place = self.calls.partition_point(|known| known.done <= call.done);
        self.calls.insert(place, call);
        while self.calls.len() > REMEMBERED {
            self.previous_done = self.calls.remove(0).done;
        }
    }

    pub(crate) fn seconds_per_image(&self) -> Option<f64> {
        let (mut previous_done, mut seconds, mut images) = (self.previous_done, 0.0, 0.0);
        for call in &self.calls {
            // The time before the end of the previous call counts for the previous call.
            seconds += call.done - call.given.max(previous_done);
            images += call.images as f64;
            previous_done = call.done;
        }
        (seconds > 0.0).then(|| seconds / images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(given: i32, done: i32) -> TimedCall {
        TimedCall { images: 10, given: f64::from(given), done: f64::from(done) }
    }

    fn rate(calls: &[TimedCall]) -> f64 {
        let mut rate = DecodeRate::default();
        calls.chunks(3).flat_map(|three| three.iter().rev()).for_each(|call| rate.record(*call));
        rate.seconds_per_image().unwrap()
    }

    #[test]
    fn waits_behind_other_lanes_are_no_work() {
        // Three lanes start calls at once, but the GPU runs one call after another.
        let calls: Vec<_> = (0..30).map(|number| call((number - 2).max(0), number + 1)).collect();
        assert!((rate(&calls) - 0.1).abs() < 1e-9, "{}", rate(&calls));
    }

    #[test]
    fn batches_that_are_decoded_side_by_side_share_the_time() {
        // Three lanes begin together every twelve seconds, and end nearly together.
        let calls: Vec<_> =
            (0..30).map(|number| call(number / 3 * 12, number / 3 * 12 + 10 + number % 3)).collect();
        assert!((rate(&calls) - 0.4).abs() < 1e-9, "{}", rate(&calls));
    }

    #[test]
    fn another_rate_is_known_soon() {
        let mut calls: Vec<_> = (0..30).map(|number| call(number, number + 1)).collect();
        calls.extend((0..REMEMBERED as i32).map(|number| call(30 + 5 * number, 35 + 5 * number)));
        assert!((rate(&calls) - 0.5).abs() < 1e-9, "{}", rate(&calls));
    }
}
