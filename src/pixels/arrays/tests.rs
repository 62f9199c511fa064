//! Conversions and gathering are compared with NumPy's results, and with a reference that takes element by element.

mod boxes;

use super::*;
use base::error::DecodeError;
use base::names::NamedValue;
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;
use std::cmp::Ordering;
use std::sync::LazyLock;

/// Conversions by NumPy 2.4 and ml_dtypes 0.6: from a type (`>`: big-endian) to a type, with arithmetic in a third
/// type, `(x.astype(w) * w(scale) + w(offset) - w(mean)) / w(std)`, and NaN where `x == missing`.
const GOLDEN: &[&str] = &[
    "int16> float32 float32 missing=-32768.0 scale=0.009999999776482582 offset=273.1499938964844 : 80008001ffff00\
     000001012b7fff3039 : 0000c07f78145ac2eb918843339388437b948843eb118a437a341644cc4cc643",
    "int16 float64 float64 missing=-32768.0 scale=0.01 offset=273.15 : 00800180ffff000001002b01ff7f3930 : 0000000\
     00000f87fc8f5285c8f424bc00ad7a3703d1271406666666666127140c2f5285c8f1271400ad7a3703d427140c2f5285c8fc68240999\
     9999999c97840",
    "int32 float32 float32 scale=0.1 : ffffff7f01000001fdfffffe07000000 : cdcc4c4dcdcccc49d0ccccc93333333f",
    "uint8 float32 float32 mean=127.5 std=57.3 : 00017f80ff : 8c680ec09c4a0dc083f70ebc83f70e3c8c680e40",
    "uint8 float16 float32 mean=114.75 std=57.375 : 00017f80ff : 00c0eebfd5326433e440",
    "float64> float16 float32 : 3ff00200000010003ff00200000000003ff006000000000040effdfff7ced91740effe00000000003\
     e600000000000003e6000000040000080000000000000007ff8000000000000fff0000000000000000012688b70e62b3ec92a737110e\
     454 : 013c003c023cff7b007c000001000080007e00fc00003200",
    "float64 float32 float32 : 040000100000f03f000000100000f03f000000f0ffffef479c7500883ce4377eb96a37ad01d696366a\
     954dbf68f88f36000000000000f87f9a9999999999b93f : 0100803f0000803f0000807f0000807f01000000000000000000c07fcdc\
     ccc3d",
    "float32 bfloat16 float32 : 0080803f0080813f00807f7fc2160100cdccccbd0000807f0000c07fe2fa0000 : 803f823f807f01\
     00cdbd807fc07f0100",
    "int64 float32 float32 : 0100000100000000030000010000000001000000000020000000000000000080ffffffffffffff7f0100\
     000010000010 : 0000804b0200804b0000005a000000df0000005f0100805d",
    "uint64> float32 float32 : 0000000001000001ffffffffffffffff800000000000000080000080000000018000000000000401 : \
     0000804b0000805f0000005f0100005f0000005f",
    "uint64 float64 float32 : 0100000100000000ffffffffffffffff000000000000008001000000800000800104000000000080 : \
     0000001000007041000000000000f043000000000000e043000000100000e043010000000000e043",
    "uint64 float16 float32 : 0108000000000000efff000000000000f0ff0000000000000000000000010000 : 0068ff7b007c007c",
    "float16 float32 float32 mean=0.3 std=0.7 : 662e00c10100ff7b : b84d92be000080c0b56ddbbe5bc4b647",
    "float32 float64 float64 mean=0.3 std=0.7 : cdcccc3d000020c059d98033caf24971 : 000000902449d2bf00000000000010\
     c06ec0647fb66ddbbfdcb66d9bf6073246",
    "int32> int8 float32 : ffffff800000007f00000005 : 807f05",
    "uint8 int64 float32 : 00ff05 : 0000000000000000ff000000000000000500000000000000",
    "bool float16 float32 : 0100 : 003c0000",
    "float32> float16 float32 missing=-9999.0 scale=2.0 : 3f000000c61c3c0060ad78ec80000000 : 003c007e007c0080",
    "bfloat16 float32 float32 : c03f4040e0c07f47c07f : 0000c03f000040400000e0c000007f470000c07f",
];

fn stored(number: Number, swapped: bool) -> StoredType {
    StoredType { number, swapped }
}

/// Converts a vector of elements.
fn convert(conversion: &NumberConversion, raw: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let count = raw.len() / conversion.from.number.size();
    let mut row = vec![0; count * conversion.to.size()];
    let corner = BoxCorner { at: &[0], strides: &[1] };
    let whole = GatheredBox { lengths: &[count as u64], chunk: corner, row: corner, channel: 0 };
    gather(raw, &mut row, &whole, conversion)?;
    Ok(row)
}

fn cast(level: Level, from: Number, to: Number) -> NumberConversion {
    NumberConversion::new(level, stored(from, false), &[], to, &Arithmetic::default()).unwrap()
}

fn number(name: &str) -> Number {
    Number::find(name).unwrap()
}

#[test]
fn conversions_are_what_numpy_computes() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    };
    for row in GOLDEN {
        let [plan, raw, out] = row.split(" : ").collect::<Vec<_>>().try_into().unwrap();
        let mut plan = plan.split(' ');
        let [from, to, work] = std::array::from_fn(|_| plan.next().unwrap());
        let from = stored(number(from.trim_end_matches('>')), from.ends_with('>'));
        let work = if work == "float32" { WorkType::F32 } else { WorkType::F64 };
        let mut with = Arithmetic { work: Some(work), ..Arithmetic::default() };
        for (name, value) in plan.map(|parameter| parameter.split_once('=').unwrap()) {
            let value: f64 = value.parse().unwrap();
            match name {
                "missing" => with.missing.push(from.number.bits_of(value).unwrap()),
                "scale" => with.scale = Some(value),
                "offset" => with.offset = Some(value),
                "mean" => with.mean.push(value),
                _ => with.std.push(value),
            }
        }
        let mut raw = bytes(raw);
        let mut expected = bytes(out);
        if cfg!(target_endian = "big") {
            raw.chunks_mut(from.number.size()).for_each(<[u8]>::reverse);
            expected.chunks_mut(number(to).size()).for_each(<[u8]>::reverse);
        }
        for level in Level::available() {
            let conversion = NumberConversion::new(level, from, &[], number(to), &with).unwrap();
            assert_eq!(convert(&conversion, &raw).unwrap(), expected, "{}: {row}", level.name());
        }
    }
}

/// The values of a 16-bit float type that are positive and finite: the index is the bits.
static HALVES: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..0x7c00).map(|bits| half::f16::from_bits(bits).to_f64()).collect());
static BRAINS: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..0x7f80).map(|bits| half::bf16::from_bits(bits).to_f64()).collect());

/// Returns the bits of the value that is nearest to a magnitude, which `compare` compares with a float.
fn nearest(values: &[f64], compare: impl Fn(f64) -> Ordering) -> u16 {
    let below = values.partition_point(|&value| compare(value).is_ge()) - 1;
    let step = values[values.len() - 1] - values[values.len() - 2];
    let next = values.get(below + 1).copied().unwrap_or(values[below] + step);
    let up = match compare(values[below] / 2.0 + next / 2.0) {
        Ordering::Less => 0,
        Ordering::Equal => below & 1,
        Ordering::Greater => 1,
    };
    (below + up) as u16
}

#[derive(Clone, Copy)]
enum Exact {
    Integer(i128),
    Float(f64),
}

impl Exact {
    fn read(number: Number, native: &[u8]) -> Self {
        let mut bits = [0; 8];
        bits[..native.len()].copy_from_slice(native);
        let bits = u64::from_ne_bytes(bits);
        match number {
            Number::Bool => Self::Integer((bits != 0).into()),
            Number::Unsigned(_) => Self::Integer(bits.into()),
            Number::Signed(size) => {
                let unused = 64 - 8 * u32::from(size);
                Self::Integer((bits.cast_signed() << unused >> unused).into())
            }
            Number::Float(2) => Self::Float(half::f16::from_bits(bits as u16).to_f64()),
            Number::Float(4) => Self::Float(f32::from_bits(bits as u32).into()),
            Number::Float(_) => Self::Float(f64::from_bits(bits)),
            Number::Brain => Self::Float(half::bf16::from_bits(bits as u16).to_f64()),
        }
    }

    fn single(self) -> f32 {
        match self {
            Self::Integer(integer) => integer as f32,
            Self::Float(float) => float as f32,
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }

    /// The bytes of the nearest element; `None` if an integer does not fit.
    fn rounded(self, to: Number) -> Option<Vec<u8>> {
        let sixteen = |values: &[f64], infinity: u16| {
            let bits = match self {
                Self::Float(float) if float.is_nan() => infinity | 0x40,
                Self::Float(float) if float.is_infinite() => infinity,
                Self::Float(float) => nearest(values, |of| float.abs().partial_cmp(&of).unwrap()),
                Self::Integer(integer) if integer.abs() < 1 << 53 => {
                    nearest(values, |of| (integer.abs() as f64).partial_cmp(&of).unwrap())
                }
                Self::Integer(integer) => nearest(values, |of| integer.abs().cmp(&(of as i128))),
            };
            let negative = self.double().is_sign_negative();
            (bits | u16::from(negative) << 15).to_ne_bytes().to_vec()
        };
        let bits = 8 * to.size() as u32;
        Some(match (to, self) {
            (Number::Float(2), _) => sixteen(&HALVES, 0x7c00),
            (Number::Brain, _) => sixteen(&BRAINS, 0x7f80),
            (Number::Float(4), _) => self.single().to_ne_bytes().to_vec(),
            (Number::Float(_), _) => self.double().to_ne_bytes().to_vec(),
            (_, Self::Float(_)) => panic!("floats become floats"),
            (_, Self::Integer(integer)) => {
                let range = match to {
                    Number::Signed(_) => -1 << (bits - 1)..1i128 << (bits - 1),
                    _ => 0..1i128 << bits,
                };
                let bytes = integer.to_le_bytes()[..to.size()].to_vec();
                let native =
                    if cfg!(target_endian = "big") { bytes.into_iter().rev().collect() } else { bytes };
                return range.contains(&integer).then_some(native);
            }
        })
    }
}

/// Converts one element as slowly as possible.
fn reference(from: StoredType, to: Number, with: &Arithmetic, channel: usize, raw: &[u8]) -> Option<Vec<u8>> {
    let mut native = raw.to_vec();
    if from.swapped {
        native.reverse();
    }
    let exact = Exact::read(from.number, &native);
    let mut bits = [0; 8];
    bits[..native.len()].copy_from_slice(&native);
    let same = |bits: u64| Exact::read(from.number, &bits.to_ne_bytes()[..native.len()]).double();
    let is_missing =
        with.missing.iter().any(|&of| u64::from_ne_bytes(bits) == of || same(of) == exact.double());
    if from.number == to && with == &Arithmetic::default() {
        return Some(native);
    }
    let one_of = |values: &[f64], without: f64| match values {
        [] => without,
        [value] => *value,
        several => several[channel],
    };
    let (scale, offset) = (with.scale.unwrap_or(1.0), with.offset.unwrap_or(-0.0));
    let (mean, std) = (one_of(&with.mean, 0.0), one_of(&with.std, 1.0));
    if scale.to_bits() == 1f64.to_bits() && offset.to_bits() == (-0f64).to_bits() && mean == 0.0 && std == 1.0
    {
        return if is_missing { Exact::Float(f64::NAN) } else { exact }.rounded(to);
    }
    let wide = to == Number::Float(8) || WorkType::of(from.number) == WorkType::F64;
    let result = match with.work.unwrap_or(if wide { WorkType::F64 } else { WorkType::F32 }) {
        WorkType::F32 => {
            let value = if is_missing { f32::NAN } else { exact.single() };
            let scaled = value * scale as f32 + offset as f32;
            f64::from((scaled - mean as f32) / std as f32)
        }
        WorkType::F64 => {
            let value = if is_missing { f64::NAN } else { exact.double() };
            (value * scale + offset - mean) / std
        }
    };
    Exact::Float(result).rounded(to)
}

/// Whether two elements are the same, or both NaN.
fn is_same(to: Number, one: &[u8], other: &[u8]) -> bool {
    let is_nan = |of: &[u8]| to.is_float() && Exact::read(to, of).double().is_nan();
    one == other || is_nan(one) && is_nan(other)
}

fn seed() -> u64 {
    let seed = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FORELOAD_SEED={seed}");
    seed
}

fn up_to(random: &mut RandomStream, most: usize) -> usize {
    random.below(most as u64 + 1) as usize
}

#[test]
fn floats_are_rounded_once() {
    let random = &mut RandomKey::new(b"rounding", seed(), 0, Use::Augment).stream(0);
    let mut values =
        vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, 65520.0, 65519.99999];
    for table in [&HALVES, &BRAINS] {
        for _ in 0..4000 {
            let below = up_to(random, table.len() - 2);
            let middle = table[below] / 2.0 + table[below + 1] / 2.0;
            let bits = middle.to_bits();
            let near =
                [bits, bits + 1, bits.saturating_sub(1), bits + (1 << 28), bits.saturating_sub(1 << 28)];
            values.extend(near.map(f64::from_bits));
            values.push(-middle * (1.0 + random.unit() * 1e-9));
        }
    }
    values.extend((0..20_000).map(|_| f64::from_bits(random.next_u64())));
    let integers: Vec<i64> =
        (0..20_000).map(|_| random.next_u64().cast_signed() >> random.below(64)).collect();
    let near_middles = (0..4000).map(|_| {
        let bits = random.below(8) as i64 + 0x80;
        let middle = (2 * bits + 1) << random.below(54);
        middle + random.below(3) as i64 - 1
    });
    let integers: Vec<i64> = integers.iter().copied().chain(near_middles).collect();
    let raw: [Vec<u8>; 2] = [
        values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        integers.iter().flat_map(|value| value.to_ne_bytes()).collect(),
    ];
    for to in ["float16", "bfloat16", "float32"].map(number) {
        for (from, raw) in
            [Number::Float(8), Number::Signed(8), Number::Unsigned(8)].iter().zip([&raw[0], &raw[1], &raw[1]])
        {
            let plain = Arithmetic::default();
            for level in Level::available() {
                let found = convert(&cast(level, *from, to), raw).unwrap();
                for (raw, found) in raw.chunks(8).zip(found.chunks(to.size())) {
                    let expected = reference(stored(*from, false), to, &plain, 0, raw).unwrap();
                    let what =
                        || format!("{}: {raw:?} to {}: {found:?} {expected:?}", level.name(), to.name());
                    assert!(is_same(to, found, &expected), "{}", what());
                }
            }
        }
    }
}

#[test]
fn sixteen_bits_are_read_and_written_exactly() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    for level in Level::available() {
        for from in [Number::Float(2), Number::Brain] {
            let singles = convert(&cast(level, from, Number::Float(4)), &all).unwrap();
            for (raw, single) in all.chunks(2).zip(singles.chunks(4)) {
                let expected = Exact::read(from, raw).single().to_ne_bytes();
                assert!(is_same(Number::Float(4), single, &expected), "{raw:?}: {single:?}");
            }
            let again = convert(&cast(level, Number::Float(4), from), &singles).unwrap();
            assert!(all.chunks(2).zip(again.chunks(2)).all(|(one, other)| is_same(from, one, other)));
        }
    }
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let refused = |from: &str, to: &str, with: &Arithmetic| {
        NumberConversion::new(Level::detect(), stored(number(from), false), &[2, 3], number(to), with)
            .unwrap_err()
    };
    let plain = Arithmetic::default();
    assert_eq!(refused("float32", "int32", &plain), "is stored as float32, which is not converted to int32");
    assert_eq!(refused("uint8", "bool", &plain), "is stored as uint8, which is not converted to bool");
    let missing = Arithmetic { missing: vec![0], ..plain.clone() };
    assert!(refused("int16", "int16", &missing).contains("but its dtype is int16: set dtype"));
    let std = Arithmetic { std: vec![0.0], ..plain.clone() };
    assert_eq!(refused("int16", "float32", &std), "has std=0, which must be finite and not 0");
    let scale = Arithmetic { scale: Some(1e300), ..plain.clone() };
    assert!(refused("int16", "float32", &scale).ends_with("which must be finite"));
    let lists = Arithmetic { mean: vec![1.0; 2], std: vec![1.0; 3], axis: 1, ..plain.clone() };
    assert_eq!(
        refused("int16", "float32", &lists),
        "has 2 values of mean, but 3 of std: give as many, or one"
    );
    let axis = Arithmetic { mean: vec![1.0; 3], axis: 0, ..plain };
    assert!(
        refused("int16", "float32", &axis)
            .contains("has 3 values of mean or std for axis 0, but shape [2, 3]")
    );
}

#[test]
fn integers_have_bits_and_types_have_names() {
    assert_eq!(Number::Signed(2).bits_of(-2.0), Some(0xfffe));
    assert_eq!(Number::Signed(8).bits_of(-1.0), Some(u64::MAX));
    assert_eq!(Number::Unsigned(1).bits_of(255.0), Some(255));
    assert_eq!(Number::Float(2).bits_of(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), Some(0x3c01));
    for (number, value) in [
        (Number::Unsigned(1), 256.0),
        (Number::Unsigned(1), -1.0),
        (Number::Signed(1), 0.5),
        (Number::Signed(8), 2f64.powi(63)),
        (Number::Bool, f64::NAN),
    ] {
        assert_eq!(number.bits_of(value), None);
    }
    assert_eq!(
        serde_json::to_string(&stored(Number::Brain, true)).unwrap(),
        r#"{"number":"bfloat16","swapped":true}"#
    );
}
