//! Other ways to store the dataset or to fill the cache, and what each would change.

use serde::Serialize;
use simulate::predict::{PredictedJob, Prediction, predict};
use store::tier::{FillChoice, Machine};

/// The size in bytes of the shards into which loose files would be packed.
const SHARD: u64 = 256_000_000;
/// The decoding time of packed images relative to JPEGs, measured by `make compare-packed`.
const PACKED: f64 = 0.5;
/// The smallest relative change of the time or the requests for which an alternative is listed.
const WORTH: f64 = 0.05;

#[derive(Debug, Serialize)]
pub(super) struct Alternative {
    /// The name of the alternative: `use`, `ahead`, `blocks`, `shards`, `packed`.
    way: &'static str,
    #[serde(flatten)]
    pub(super) plan: Prediction,
}

impl Alternative {
    pub(super) fn title(&self) -> &'static str {
        match self.way {
            "use" => "filled on use",
            "ahead" => "staged ahead",
            "blocks" => "shuffle=\"blocks\"",
            "shards" => "in 256 MB shards",
            _ => "packed",
        }
    }
}

/// The job in an order that keeps neighbours together, in which reading all samples takes this many `requests`.
pub(super) fn by_block(job: &PredictedJob, requests: u64) -> PredictedJob {
    PredictedJob {
        requests: requests.min(job.requests),
        requests_kept: requests.min(job.requests_kept),
        ..*job
    }
}

/// The alternatives that would change the job's time or requests, compared with the current `plan`. `can_pack` says
/// whether packing is possible. `by_blocks` is the number of requests in an order that keeps neighbours together, if
/// such an order is possible.
pub(super) fn alternatives(
    job: &PredictedJob,
    machine: &Machine,
    plan: &Prediction,
    can_pack: bool,
    by_blocks: Option<u64>,
) -> Vec<Alternative> {
    let loose = job.shards.is_none();
    let sharded = PredictedJob { shards: job.shards.or(Some(job.bytes.div_ceil(SHARD).max(1))), ..*job };
    let decoding = Machine { decode_bandwidth: machine.decode_bandwidth / PACKED, ..*machine };
    let fill = |fill| PredictedJob { fill, ..*job };
    let near = by_block(job, by_blocks.unwrap_or(job.requests));
    let all = [
        ("use", plan.ahead, fill(FillChoice::Use), machine),
        ("ahead", !plan.ahead && !loose, fill(FillChoice::Ahead), machine),
        ("blocks", by_blocks.is_some(), near, machine),
        ("shards", loose && can_pack, sharded, machine),
        ("packed", can_pack, sharded, &decoding),
    ];
    let differs = |other: f64, as_it_is: f64| (other - as_it_is).abs() > WORTH * as_it_is;
    all.into_iter()
        .filter(|(_, applies, ..)| *applies)
        .map(|(way, _, job, machine)| Alternative { way, plan: predict(&job, machine) })
        .filter(|other| {
            differs(other.plan.seconds, plan.seconds)
                || differs(other.plan.slow_requests as f64, plan.slow_requests as f64)
        })
        .collect()
}
