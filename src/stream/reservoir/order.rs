//! The key of each sample. The samples with the smallest keys are kept.

use super::{KeepBy, Offered};
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};

#[derive(Debug, Clone)]
pub(super) struct KeepOrder {
    key: RandomKey,
    by: KeepBy,
}

impl KeepOrder {
    /// # Errors
    /// [`Error::Config`] for a half-life that is not finite and above 0.
    pub(super) fn new(seed: u64, by: KeepBy) -> Result<Self> {
        if let KeepBy::Recency { half_life } = by
            && !(half_life.is_finite() && half_life > 0.0)
        {
            let message = format!("is {half_life}, must be a number of samples above 0");
            return Err(Error::config("half_life", message));
        }
        Ok(Self { key: RandomKey::new(&[], seed, 0, Use::Keep), by })
    }

    /// The key of a sample.
    ///
    /// With uniform keys, the k smallest keys are a uniform choice. With weights w, the k smallest values of -ln(u)/w
    /// are distributed as k draws without replacement, each in proportion to the remaining weights (Efraimidis and
    /// Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97, 2006). The logarithm
    /// of these values, ln(-ln u) - ln w, has the same order and never overflows: for a weight that doubles with every
    /// half-life of samples (forward decay), ln w is a product and not a power.
    ///
    /// # Errors
    /// [`Error::Config`] for a score that cannot be a weight.
    pub(super) fn of(&self, offered: &Offered) -> Result<u64> {
        let bits = self.key.stream(offered.id).next_u64();
        let log_weight = match self.by {
            KeepBy::Uniform | KeepBy::Class => return Ok(bits),
            KeepBy::Recency { half_life } => std::f64::consts::LN_2 * (offered.ordinal as f64 / half_life),
            KeepBy::Score if offered.weight.is_finite() && offered.weight > 0.0 => libm::log(offered.weight),
            KeepBy::Score => {
                let message = format!(
                    "returned the score {}, must return numbers above 0: samples are kept in proportion to them",
                    offered.weight
                );
                return Err(Error::config("by", message));
            }
        };
        // The middle of one of 2^52 equal intervals between 0 and 1: never 0 or 1, for which ln(-ln u) is infinite.
        let unit = ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
        Ok(ordered(libm::log(-libm::log(unit)) - log_weight))
    }
}

/// Maps a number to an integer with the same order.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_the_order_of_the_numbers_they_stand_for() {
        let rising = [f64::NEG_INFINITY, -1e300, -2.0, -1e-300, 0.0, 1e-300, 1.0, 2.5, 1e300, f64::INFINITY];
        assert!(rising.map(ordered).is_sorted());
        assert!(ordered(-1e-300) < ordered(0.0) && ordered(1.0) < ordered(2.5));
    }

    #[test]
    fn weights_that_are_none_are_refused_by_name() {
        for half_life in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = KeepOrder::new(0, KeepBy::Recency { half_life }).unwrap_err().to_string();
            assert!(error.starts_with("config: half_life: is "), "{error}");
        }
        let order = KeepOrder::new(0, KeepBy::Score).unwrap();
        let offered = |weight| Offered { id: 1, class: None, bytes: 1, weight, ordinal: 0 };
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = order.of(&offered(weight)).unwrap_err().to_string();
            assert!(error.starts_with("config: by: returned the score "), "{error}");
        }
        assert!(order.of(&offered(f64::MIN_POSITIVE)).unwrap() > order.of(&offered(f64::MAX)).unwrap());
    }
}
