//! Decides which stage limits an epoch, for logs and for live statistics.

use super::Stage;

/// If the consumer waits for at most this share of the time, no stage limits the epoch.
pub const NEGLIGIBLE_WAIT: f64 = 0.01;

/// The stage that limits an epoch: the stage with the highest load. Decoding and augmenting count as one stage, and all
/// GPU stages count as one. `None` if the consumer waited for at most a hundredth of the time, or if no stage did any
/// work.
///
/// `waiting` is the share of the time in which the consumer waited. The load of a stage is the share of the time in
/// which a thread of the stage was busy, on average. The load of reads is the share of the time in which any read was
/// in flight.
pub fn limit(waiting: f64, loads: &[(Stage, f64)]) -> Option<Stage> {
    if waiting <= NEGLIGIBLE_WAIT {
        return None;
    }
    let load = |stage: Stage| loads.iter().find(|(of, _)| *of == stage).map_or(0.0, |(_, load)| *load);
    // The same worker threads decode and augment.
    let workers = load(Stage::Decode) + load(Stage::Augment);
    let work = if load(Stage::Decode) >= load(Stage::Augment) { Stage::Decode } else { Stage::Augment };
    let gpu = load(Stage::Copy) + load(Stage::GpuDecode) + load(Stage::GpuAugment);
    let reads = loads.iter().copied().filter(|(stage, _)| matches!(stage, Stage::Read(_)));
    reads
        .chain([(work, workers), (Stage::GpuDecode, gpu)])
        .filter(|(_, load)| *load > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(stage, _)| stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier_name::TierName;

    #[test]
    fn the_busiest_stage_is_what_is_waited_for() {
        let read = Stage::Read(TierName::NVME);
        let loads = [(read, 0.7), (Stage::Decode, 0.3), (Stage::Augment, 0.5), (Stage::GpuAugment, 0.1)];
        assert_eq!(limit(0.5, &loads), Some(Stage::Augment), "the workers do both");
        assert_eq!(limit(0.5, &[(read, 0.9), loads[1], loads[2]]), Some(read));
        assert_eq!(
            limit(0.5, &[loads[1], (Stage::Copy, 0.2), (Stage::GpuDecode, 0.2)]),
            Some(Stage::GpuDecode)
        );
        assert_eq!(limit(0.01, &loads), None, "it hardly waits");
        assert_eq!(limit(0.5, &[]), None);
    }
}
