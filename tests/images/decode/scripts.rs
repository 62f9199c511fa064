//! Progressive files with random scans of every kind.

use foreload::testing::rng::RandomStream;

use super::images::Kind;
use super::libjpeg::{self, Scan};

/// Draws scans that code all components in any order that the standard allows: bands and bits are split at random, and
/// DC is interleaved or not. Some of the last scans are omitted if `incomplete` is set, or if there were too many.
pub fn script(stream: &mut RandomStream, channels: i32, incomplete: bool) -> Vec<Scan> {
    // The scans that may be drawn next: one queue for DC, and one for each band of a component.
    let mut queues: Vec<Vec<Scan>> = Vec::new();
    let all: Vec<i32> = (0..channels).collect();
    let groups: Vec<Vec<i32>> = match stream.below(3) {
        0 => all.iter().map(|&index| vec![index]).collect(),
        1 if channels == 3 => vec![vec![0, 1], vec![2]],
        _ => vec![all.clone()],
    };
    let bits = |stream: &mut RandomStream, components: &[i32], band: (i32, i32)| {
        let lowest = stream.below(4) as i32;
        let scan = |bits| Scan { components: components.to_vec(), band, bits };
        let mut scans = vec![scan((0, lowest))];
        scans.extend((0..lowest).rev().map(|low| scan((low + 1, low))));
        scans
    };
    let mut order: Vec<Scan> = Vec::new();
    for group in &groups {
        let mut scans = bits(stream, group, (0, 0));
        order.push(scans.remove(0));
        queues.push(scans);
    }
    for &component in &all {
        let mut first = 1;
        while first <= 63 {
            let last = (first + stream.below(40) as i32).min(63);
            queues.push(bits(stream, &[component], (first, last)));
            first = last + 1;
        }
    }
    queues.retain(|queue| !queue.is_empty());
    while !queues.is_empty() && order.len() < libjpeg::MAX_SCANS {
        let next = stream.below(queues.len() as u64) as usize;
        order.push(queues[next].remove(0));
        queues.retain(|queue| !queue.is_empty());
    }
    if incomplete {
        let kept = groups.len() as u64 + stream.below((order.len() - groups.len()) as u64 + 1);
        order.truncate(kept as usize);
    }
    order
}

/// A progressive file, with a description.
pub fn file(stream: &mut RandomStream) -> (Vec<u8>, String) {
    let mut kind = Kind::baseline(stream);
    kind.progressive = true;
    let encoder = stream.below(4);
    if encoder == 0 {
        (kind.optimised, kind.restart_interval) = (true, 0);
        return (kind.encode(stream), format!("jpeg-encoder's {kind:?}"));
    }
    kind.restart_interval = [0, 1 + stream.below(40) as u16][stream.below(2) as usize];
    let scans = if encoder == 1 { Vec::new() } else { script(stream, kind.channels() as i32, false) };
    let bytes = kind.encode_by_libjpeg(&kind.pixels(stream), &scans);
    (bytes, format!("libjpeg's {kind:?} in {scans:?}"))
}
