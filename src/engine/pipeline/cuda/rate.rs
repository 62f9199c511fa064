//! Measures how long the GPU's decoders take for an image, from the times of their calls.

/// The number of calls that the rate is computed from: some of each lane's, whose batches are decoded in parallel.
const REMEMBERED: usize = 12;

/// How long decoders take for an image while they have work. Time in which calls overlap counts once.
#[derive(Debug)]
pub(crate) struct DecodeRate {
    /// The latest calls, in the order in which they were done.
    calls: Vec<TimedCall>,
    /// When the call before `calls` was done.
    former: f64,
}

/// Images of a batch that were given to a decoder at one time and done at another, in seconds of one clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    pub images: usize,
    pub given: f64,
    pub done: f64,
}

impl Default for DecodeRate {
    fn default() -> Self {
        Self { calls: Vec::new(), former: f64::MIN }
    }
}

impl DecodeRate {
    /// Adds a call. Lanes report calls when all of a batch is done, so calls come in any order.
    pub(crate) fn saw(&mut self, call: TimedCall) {
        if call.images == 0 || !(call.done - call.given).is_finite() || call.done <= call.given {
            return;
        }
        let place = self.calls.partition_point(|known| known.done <= call.done);
        self.calls.insert(place, call);
        while self.calls.len() > REMEMBERED {
            self.former = self.calls.remove(0).done;
        }
    }

    /// Returns the seconds that an image takes; `None` before the first call.
    pub(crate) fn of_one(&self) -> Option<f64> {
        let (mut former, mut seconds, mut images) = (self.former, 0.0, 0.0);
        for call in &self.calls {
            // Until the former call was done, the time belongs to that call.
            seconds += call.done - call.given.max(former);
            images += call.images as f64;
            former = call.done;
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

    /// Returns the rate after calls that are reported three at a time, the latest first.
    fn rate(calls: &[TimedCall]) -> f64 {
        let mut rate = DecodeRate::default();
        calls.chunks(3).flat_map(|three| three.iter().rev()).for_each(|call| rate.saw(*call));
        rate.of_one().unwrap()
    }

    #[test]
    fn waits_behind_other_lanes_are_no_work() {
        // Three lanes start calls at once, and each starts another one when it is done.
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
