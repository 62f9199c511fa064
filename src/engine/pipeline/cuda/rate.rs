//! How long an image takes the GPU's decoders, by their calls.

/// The number of calls that the rate is computed from: some of each lane's, whose batches are decoded side by side.
const REMEMBERED: usize = 12;

/// Measures how long an image takes decoders while they have work. Decoding that goes on side by side counts once.
#[derive(Debug)]
pub(crate) struct DecodeRate {
    /// The latest calls, in the order in which they were done.
    calls: Vec<TimedCall>,
    /// When the call before these was done.
    former: f64,
}

/// A batch's images that were given to a decoder at one moment and done at another, in seconds of one clock.
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
    /// Adds a call. Lanes report calls when all of a batch is done, so that these come in no order.
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

    /// The seconds that an image takes; `None` before the first call.
    pub(crate) fn of_one(&self) -> Option<f64> {
        let (mut former, mut seconds, mut images) = (self.former, 0.0, 0.0);
        for call in &self.calls {
            // Until the former call was done, the time is that one's.
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

    /// The rate after calls that are told three at a time, the latest first.
    fn rate(calls: &[TimedCall]) -> f64 {
        let mut rate = DecodeRate::default();
        calls.chunks(3).flat_map(|three| three.iter().rev()).for_each(|call| rate.saw(*call));
        rate.of_one().unwrap()
    }

    #[test]
    fn waits_behind_other_lanes_are_no_work() {
        // Three lanes give at once, each again when it is done.
        let calls: Vec<_> = (0..30).map(|number| call((number - 2).max(0), number + 1)).collect();
        assert!((rate(&calls) - 0.1).abs() < 1e-9, "{}", rate(&calls));
    }

    #[test]
    fn batches_that_are_decoded_side_by_side_share_the_time() {
        // Three lanes begin together every twelve seconds, and end together as well.
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
