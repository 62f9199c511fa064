//! Arrays in batches on a GPU, on the driver's stand-in alone: nvJPEG is not needed. Batches equal the CPU's, each byte
//! is copied once, and raw rows are copied from the slots that they were read into.

use crate::common::await_no_threads;
use crate::stand_in;
use foreload::testing::batch::{Batch, Place};
use foreload::testing::config::{FieldOptions, LoaderKind, LoaderOptions};
use foreload::testing::dataset::{Contents, DatasetIndex, FieldKind};
use foreload::testing::pipeline::Pipeline;
use std::path::Path;
use std::sync::Arc;

const ROWS: usize = 26;
const BATCH: usize = 4;
/// The bytes of a row of `x.npy`: enough for a copy from the slot.
const ROW: usize = 128 << 10;

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header += "\n";
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), data].concat()
}

/// 26 rows of 128 KiB in `x.npy`, and as many numbers in `y.npy`.
fn dataset() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let x: Vec<u8> = (0..ROWS * ROW / 4).flat_map(|value| (value as f32).to_le_bytes()).collect();
    std::fs::write(data.join("x.npy"), npy("<f4", "(26, 128, 256)", &x)).unwrap();
    let y: Vec<u8> = (0..ROWS as i64).flat_map(i64::to_le_bytes).collect();
    std::fs::write(data.join("y.npy"), npy("<i8", "(26,)", &y)).unwrap();
    folder
}

fn pipeline(folder: &Path, device: &str, change: impl FnOnce(&mut FieldOptions)) -> Pipeline {
    let array = |name: &str| FieldOptions { kind: Some(FieldKind::Array), ..FieldOptions::named(name) };
    let mut x = array("x.npy");
    change(&mut x);
    let asked = LoaderOptions {
        kind: LoaderKind::Fields,
        index_dir: Some(folder.join("index")),
        batch_size: BATCH as u32,
        threads: Some(2),
        seed: 5,
        device: device.into(),
        fields: Some(vec![x, array("y.npy")]),
        ..LoaderOptions::default()
    };
    let checked = asked.validate().unwrap();
    let index = DatasetIndex::open(&folder.join("data"), &checked.index_options(Contents::Images)).unwrap();
    let index = Arc::new(index);
    let config = checked.check(&index).unwrap();
    Pipeline::new(index, config)
}

fn contents(batch: &Batch) -> Vec<Vec<u8>> {
    let tensors = [batch.further(0), batch.further(1), batch.labels(), batch.sample_ids(), batch.mask()];
    tensors.iter().map(|tensor| tensor.read().unwrap().into_owned()).collect()
}

fn epoch(pipeline: &Pipeline, number: u64) -> Vec<Vec<Vec<u8>>> {
    let mut running = pipeline.epoch(number, 0, 1, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        batches.push(contents(&batch));
    }
    batches
}

#[test]
fn raw_rows_are_copied_from_their_slots_and_every_byte_once() {
    let cuda = stand_in::cuda();
    let folder = dataset();
    let gpu = pipeline(folder.path(), "cuda:0", |_| {});
    let cpu = pipeline(folder.path(), "cpu", |_| {});
    for number in 0..2 {
        let before = [cuda.calls("cuMemcpyHtoDAsync_v2"), cuda.count("bytes to device")];
        let (made, expected) = (epoch(&gpu, number), epoch(&cpu, number));
        assert!(made == expected, "epoch {number}");
        let copies = cuda.calls("cuMemcpyHtoDAsync_v2") - before[0];
        let bytes = cuda.count("bytes to device") - before[1];
        let steps = made.len();
        // A copy for each row, one for what is before the rows in the batch, and one for what is after them.
        assert_eq!(copies as usize, steps * (BATCH + 2), "in {steps} batches");
        // Five columns of a few bytes, each of them rounded up to 256 bytes.
        assert_eq!(bytes as usize, steps * (BATCH * ROW + 5 * 256), "in {steps} batches");
    }
    drop((gpu, cpu));
    await_no_threads();
}

#[test]
fn converted_rows_are_one_copy_a_batch() {
    let cuda = stand_in::cuda();
    let folder = dataset();
    let half =
        |field: &mut FieldOptions| field.array = serde_json::from_str(r#"{"dtype": "float16"}"#).unwrap();
    let gpu = pipeline(folder.path(), "cuda:0", half);
    let expected = epoch(&pipeline(folder.path(), "cpu", half), 0);
    let before = cuda.calls("cuMemcpyHtoDAsync_v2");
    assert!(epoch(&gpu, 0) == expected);
    assert_eq!(cuda.calls("cuMemcpyHtoDAsync_v2") - before, expected.len() as u64);
}

#[test]
fn a_dropped_epoch_and_a_kept_tensor_leave_later_epochs_right() {
    let _cuda = stand_in::cuda();
    let folder = dataset();
    let gpu = pipeline(folder.path(), "cuda:0", |_| {});
    let cpu = pipeline(folder.path(), "cpu", |_| {});
    let mut kept = Vec::new();
    for number in 0..8 {
        let mut running = gpu.epoch(number, 0, 1, 0).unwrap();
        for _ in 0..number % 3 {
            kept.push((number, running.next_batch().unwrap().unwrap().further(0)));
        }
    }
    assert!(epoch(&gpu, 8) == epoch(&cpu, 8));
    assert!(kept.iter().all(|(_, tensor)| tensor.place() == Place::Cuda(0)));
    for number in 0..8 {
        let expected = epoch(&cpu, number);
        let of_epoch = kept.iter().filter(|(of, _)| *of == number);
        for ((_, tensor), expected) in of_epoch.zip(expected) {
            assert!(*tensor.read().unwrap() == expected[0], "a batch of epoch {number} was written to");
        }
    }
    drop((kept, gpu, cpu));
    await_no_threads();
}

#[test]
fn a_copy_that_fails_ends_the_epoch_and_no_later_one() {
    let cuda = stand_in::cuda();
    let folder = dataset();
    let gpu = pipeline(folder.path(), "cuda:0", |_| {});
    let expected = epoch(&pipeline(folder.path(), "cpu", |_| {}), 1);
    for nth in [1, 3, 6, 14] {
        cuda.fail("cuMemcpyHtoDAsync_v2", nth, 0);
        let mut running = gpu.epoch(0, 0, 1, 0).unwrap();
        let error = loop {
            match running.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("copy {nth} failed, and the epoch did not"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("cuMemcpyHtoDAsync_v2"), "{error}");
        drop(running);
        assert!(epoch(&gpu, 1) == expected, "after copy {nth} has failed");
    }
}
