//! tuning
use foreload::decode::*;
use std::time::Instant;
fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap();
    let rounds: usize = args.next().map_or(5, |s| s.parse().unwrap());
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let files: Vec<Vec<u8>> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
    let mut decoder = Decoder::new(100_000_000);
    let mut planes = Planes::default();
    let mut best = f64::MAX;
    let full = std::env::var("FULL").is_ok();
    let mut sum = 0u64;
    for _ in 0..rounds {
        let mut s: u64 = 88172645463325252;
        let mut unit = || {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            (s >> 11) as f64 / (1u64 << 53) as f64
        };
        let t = Instant::now();
        for f in &files {
            let r = decoder
                .decode(
                    f,
                    |w, h| {
                        if full {
                            return Region { x: 0, y: 0, width: w, height: h };
                        }
                        let area = (w * h) as f64;
                        for _ in 0..10 {
                            let a = area * (0.08 + 0.92 * unit());
                            let r = ((0.75f64).ln() + unit() * ((4.0f64 / 3.0).ln() - (0.75f64).ln())).exp();
                            let (cw, ch) = ((a * r).sqrt().round() as u32, (a / r).sqrt().round() as u32);
                            if cw > 0 && cw <= w && ch > 0 && ch <= h {
                                let y = (unit() * (h - ch + 1) as f64) as u32;
                                let x = (unit() * (w - cw + 1) as f64) as u32;
                                return Region { x, y, width: cw, height: ch };
                            }
                        }
                        Region { x: 0, y: 0, width: w, height: h }
                    },
                    &mut planes,
                )
                .unwrap();
            sum += r.region.x as u64 + planes.planes[0].data[0] as u64;
        }
        best = best.min(t.elapsed().as_secs_f64());
    }
    println!("{:.4} ms/image  ({sum})", best * 1e3 / files.len() as f64);
}
