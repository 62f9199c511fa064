//! The seeds of a campaign: all in `make thorough`, a tenth of them in a run of the tests.

use std::ops::Range;

/// Whether the long tests run at full length, as `make thorough` asks for.
pub fn thorough() -> bool {
    std::env::var_os("FORELOAD_THOROUGH").is_some_and(|said| said == "1")
}

/// Returns the seeds of a campaign that has `whole` of them. Without `FORELOAD_THOROUGH=1`, these are a tenth of the
/// seeds, chosen by `FORELOAD_SLICE` (0 to 9). CI derives that variable from the commit, so that all seeds are tried
/// over time.
pub fn seeds(whole: u64) -> Range<u64> {
    if thorough() {
        return 0..whole;
    }
    let slice =
        std::env::var("FORELOAD_SLICE").map_or(0, |text| text.parse().expect("FORELOAD_SLICE is a number"));
    assert!(slice < 10, "FORELOAD_SLICE is 0 to 9");
    let seeds = whole / 10 * slice..whole / 10 * (slice + 1);
    println!("FORELOAD_SLICE={slice}: seeds {seeds:?} of {whole}");
    seeds
}
