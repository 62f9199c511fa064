//! How often a request is retried, and after which pauses. Pure except for the random seed of the pauses.

use super::failure::{HttpFailure, RequestError};
use base::rng::{RandomKey, RandomStream, Use};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAX_TRIES: u32 = 8;
/// Maximum pause after the first failure. Each further failure doubles this limit.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Upper limit of the pauses. A server may ask for a longer pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum pause that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Pauses that grow with each failure. They are random, so that clients that failed at the same time retry at different
/// times.
#[derive(Default)]
pub struct RetryBackoff {
    tries: u32,
    random: Option<RandomStream>,
}

impl RetryBackoff {
    /// Returns the pause after one more failure.
    pub fn after_failure(&mut self) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.tries.min(16)).min(LONGEST_PAUSE);
        self.tries += 1;
        let random = self.random.get_or_insert_with(draws);
        longest / 2 + longest.mul_f64(random.below(1 << 20) as f64 / f64::from(1 << 21))
    }

    /// Returns the number of failures since the last success.
    pub fn failed(&self) -> u32 {
        self.tries
    }

    /// Resets the pauses after a success.
    pub fn succeeded(&mut self) {
        self.tries = 0;
    }
}

/// The tries of one request.
pub struct Retries(RetryBackoff);

impl Retries {
    /// Starts without failures.
    pub fn new() -> Self {
        Self(RetryBackoff::default())
    }

    /// Returns the number of failed tries.
    pub fn failed(&self) -> u32 {
        self.0.failed()
    }

    /// Returns the pause before the next try, after this failure.
    ///
    /// # Errors
    /// The failure, if the request is not tried again.
    pub fn after(&mut self, failure: HttpFailure) -> Result<Duration, RequestError> {
        let pause = self.0.after_failure();
        if !failure.may_succeed_later() || self.failed() >= MAX_TRIES {
            return Err(RequestError { failure, tries: self.failed() });
        }
        Ok(match failure {
            HttpFailure::Status(_, Some(asked)) => pause.max(asked.min(MAX_RETRY_AFTER)),
            _ => pause,
        })
    }
}

/// Returns random numbers that differ between processes and moments.
fn draws() -> RandomStream {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    RandomKey::new(b"pauses", now, u64::from(std::process::id()), Use::Pause).stream(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn pauses_double_and_end() {
        let mut retries = Retries::new();
        for number in 0..MAX_TRIES - 1 {
            let longest = (FIRST_PAUSE * (1 << number)).min(LONGEST_PAUSE);
            let pause = retries.after(HttpFailure::Broken(String::new())).unwrap();
            assert!(pause >= longest / 2 && pause <= longest, "{number}: {pause:?}");
        }
        let last = retries.after(HttpFailure::Broken("it broke".to_owned())).unwrap_err();
        assert_eq!(last.to_string(), format!("it broke (tried {MAX_TRIES} times)"));
    }

    #[test]
    fn what_a_server_asks_for_is_honoured_within_bounds() {
        let asked = |seconds| {
            HttpFailure::Status(StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(seconds)))
        };
        assert_eq!(Retries::new().after(asked(7)).unwrap(), Duration::from_secs(7));
        assert_eq!(Retries::new().after(asked(1 << 40)).unwrap(), MAX_RETRY_AFTER);
        assert!(Retries::new().after(HttpFailure::Status(StatusCode::NOT_FOUND, None)).is_err());
    }
}
