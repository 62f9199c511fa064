//! Files that are decoded repeatedly: row positions that were learned from earlier regions change neither samples nor
//! errors nor the report of damage, even if the file has changed since.

use foreload::testing::decode::{Damaged, Decoder, Planes, RowStarts};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;

use super::fuzz::{damage, fuzz_runs, image, region, samples};

/// How often each file is decoded.
const TIMES: u64 = 5;

/// The result of decoding a file: an error, or samples and concealed damage; and whether known row positions were used.
type Answer = (Result<(Vec<u8>, Option<String>), String>, bool);

/// Decodes a random region of a file, with or without its known row positions.
fn answer(
    by: &mut (Decoder, Planes),
    bytes: &[u8],
    rows: Option<&mut Option<RowStarts>>,
    seed: u64,
) -> Answer {
    let (decoder, planes) = by;
    let choose = |width, height| region(seed, (width, height));
    let decoded = match rows {
        Some(rows) => decoder.decode_with_row_starts(bytes, rows, choose, planes),
        None => decoder.decode(bytes, choose, planes),
    };
    let by_rows = decoded.as_ref().is_ok_and(|decoded| decoded.used_row_starts);
    let found = decoded.map(|decoded| (samples(planes), decoded.concealed));
    (found.map_err(|error| error.to_string()), by_rows)
}

/// Changes a file a little, as a user who writes it again.
fn change(file: &mut [u8], stream: &mut RandomStream) {
    let at = stream.below(file.len() as u64) as usize;
    file[at] ^= 1 << stream.below(8);
}

#[test]
fn known_rows_change_nothing_that_comes_out() {
    let decoder =
        |(level, damaged)| (Decoder::with_level(1_000_000, level).with_damaged(damaged), Planes::default());
    let kinds =
        Level::available().flat_map(|level| [Damaged::Refuse, Damaged::Conceal].map(|how| (level, how)));
    let mut decoders: Vec<_> = kinds.map(decoder).collect();
    let (mut runs, mut by_rows, mut errors, mut concealed) = (0u64, 0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"known rows") {
        runs += 1;
        let mut file = image(&mut stream);
        match stream.below(4) {
            0 => damage(&mut file, &mut stream),
            1 => change(&mut file, &mut stream),
            _ => {}
        }
        let mut known = vec![None; decoders.len()];
        for time in 0..TIMES {
            for (decoder, rows) in decoders.iter_mut().zip(&mut known) {
                let (expected, _) = answer(decoder, &file, None, seed + 1000 * time);
                let (found, led) = answer(decoder, &file, Some(rows), seed + 1000 * time);
                assert!(found == expected, "time {time}, FORELOAD_FUZZ_SEED={seed}: {rows:?}");
                by_rows += u64::from(led);
                errors += u64::from(found.is_err());
                concealed += u64::from(found.is_ok_and(|(_, damage)| damage.is_some()));
            }
            if stream.below(4) == 0 && !file.is_empty() {
                change(&mut file, &mut stream);
            }
        }
    }
    let counts =
        format!("{runs} files: {by_rows} answers by known rows, {errors} errors, {concealed} concealed");
    println!("{counts}");
    assert!(by_rows > runs && errors > 0 && concealed > 0, "{counts}");
}
