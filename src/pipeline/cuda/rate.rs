//! How long an image takes a decoder that always has work, by calls that are timed while others wait.

/// The number of measurements that a rate is computed from, without the quickest and the slowest quarter of them.
const REMEMBERED: usize = 8;

/// Two measurements in a row that are off by this factor mean that the rate has changed.
const FAR_OFF: f64 = 2.0;

/// Measures how long an image takes a decoder that always has work.
#[derive(Debug)]
pub(crate) struct DecodeRate {
    /// The latest calls, in the order in which they were done.
    calls: Vec<TimedCall>,
    /// When the call before these was done.
    former: f64,
    /// The number of measurements in a row that were far off.
    strange: usize,
}

/// A call of a decoder: images that were given to it at one moment and done at another, in seconds of one clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    pub images: usize,
    pub given: f64,
    pub done: f64,
}

impl TimedCall {
    /// The seconds that the call took, after one that was done at `former`: until then the decoder worked on that one.
    fn seconds(&self, former: f64) -> f64 {
        self.done - self.given.max(former)
    }
}

impl Default for DecodeRate {
    fn default() -> Self {
        Self { calls: Vec::new(), former: f64::MIN, strange: 0 }
    }
}

impl DecodeRate {
    /// Adds a call. Lanes report calls when all of a batch is done, so that these come in no order.
    pub(crate) fn saw(&mut self, call: TimedCall) {
        if call.images == 0 || !(call.done - call.given).is_finite() || call.done <= call.given {
            return;
        }
        let usual = self.of_one();
        let place = self.calls.partition_point(|known| known.done <= call.done);
        let former = place.checked_sub(1).map_or(self.former, |before| self.calls[before].done);
        let one = call.seconds(former) / call.images as f64;
        self.calls.insert(place, call);
        let is_far = usual.is_some_and(|usual| one > FAR_OFF * usual || one * FAR_OFF < usual);
        self.strange = if is_far { self.strange + 1 } else { 0 };
        let kept = if self.strange < 2 { REMEMBERED } else { std::mem::take(&mut self.strange) };
        while self.calls.len() > kept {
            self.former = self.calls.remove(0).done;
        }
    }

    /// The seconds that an image takes; `None` before the first call.
    pub(crate) fn of_one(&self) -> Option<f64> {
        let mut former = self.former;
        let mut calls: Vec<(f64, f64)> = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            calls.push((call.seconds(former), call.images as f64));
            former = call.done;
        }
        calls.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let outer = calls.len() / 4;
        let (mut seconds, mut images) = (0.0, 0.0);
        for call in &calls[outer..calls.len() - outer] {
            seconds += call.0;
            images += call.1;
        }
        (seconds > 0.0).then(|| seconds / images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_behind_other_lanes_are_no_work() {
        let mut meter = DecodeRate::default();
        // Three lanes give at once, each again when it is done; the calls are told in no order.
        let calls: Vec<TimedCall> = (0..30)
            .map(|call| TimedCall {
                images: 10,
                given: f64::from((call - 2).max(0)),
                done: f64::from(call + 1),
            })
            .collect();
        for three in calls.chunks(3) {
            for call in three.iter().rev() {
                meter.saw(*call);
            }
        }
        let one = meter.of_one().unwrap();
        assert!((one - 0.1).abs() < 1e-9, "{one}");
        meter.saw(TimedCall { images: 10, given: 30.0, done: 130.0 });
        assert!((meter.of_one().unwrap() - 0.1).abs() < 1e-9, "a hiccup");
        meter.saw(TimedCall { images: 10, given: 130.0, done: 230.0 });
        assert!((meter.of_one().unwrap() - 10.0).abs() < 1e-9, "another rate");
    }
}
