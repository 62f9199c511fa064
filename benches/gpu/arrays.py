"""Compares arrays in batches on a GPU with the CPU's, byte by byte, and times both: arrays as they are and converted.

The files are in the page cache. MB are of the arrays as they are in batches. It needs a driver, but no torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import driver
import foreload
import numpy as np
from foreload import fields
from harness import options, report

CASES = {
    "float32 as it is": fields.Array("single.npy", name="x"),
    "float16 as it is": fields.Array("half.npy", name="x"),
    "windows of float32": fields.Array("single.npy", name="x", window=(4, None, None)),
    "float32 to float16": fields.Array("single.npy", name="x", dtype="float16", mean=1, std=3),
}
DEVICES = ("cuda", "cpu")


def write(folder: Path, rows: int) -> Path:
    """Write rows of 1.5 MB of float32, and the same as float16."""
    folder.mkdir()
    values = np.random.default_rng(1).normal(size=(rows, 6, 256, 256)).astype(np.float32)
    np.save(folder / "single.npy", values)
    np.save(folder / "half.npy", values.astype(np.float16))
    return folder


def timed(root: Path, device: str, asked: fields.Array, seconds: float) -> tuple[list[bytes], dict]:
    """Return the first epoch's arrays, and the rate of the epochs after it."""
    loader = foreload.Loader(root, fields=[asked], device=device, batch_size=16, last_batch="partial", seed=1)
    first = [driver.to_host(batch["x"]).tobytes() for batch in loader]
    began, cpu, size = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        for batch in loader:
            last = batch
        # The copies of all batches are done before the last one's.
        driver.to_host(last.sample_ids)
        size += sum(map(len, first))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return first, {"mb_per_second": size / 1e6 / wall, "cpu_seconds_per_gb": cpu / (size / 1e9)}


def measure(root: Path, seconds: float) -> list[dict]:
    lines = []
    for name, asked in CASES.items():
        made = {device: timed(root, device, asked, seconds) for device in DEVICES}
        equal = made["cuda"][0] == made["cpu"][0]
        problem = None if equal else "batches differ from the CPU's"
        lines.append({"case": name, "problem": problem} | {device: made[device][1] for device in DEVICES})
        report.log(f"{name}: {lines[-1]}")
    return lines


def as_text(lines: list[dict]) -> str:
    head = ["arrays", *(f"{device}, {unit}" for device in DEVICES for unit in ("MB/s", "CPU s/GB")), ""]
    rows = [
        [
            line["case"],
            *(
                text
                for device in DEVICES
                for text in (
                    f"{line[device]['mb_per_second']:.0f}",
                    f"{line[device]['cpu_seconds_per_gb']:.2f}",
                )
            ),
            line["problem"] or "equal",
        ]
        for line in lines
    ]
    return report.table(head, rows)


def main() -> int:
    """Compare, time and print; return 1 if batches differ, 2 without a GPU."""
    parser: argparse.ArgumentParser = options.parser(__doc__, data=None, targets=False)
    parser.add_argument("--rows", type=int, default=512, help="of 1.5 MB")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    chosen = parser.parse_args()
    try:
        driver.device_count()
    except (OSError, driver.DriverError) as reason:
        report.log(f"no GPU to load arrays to: {reason}")
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("FORELOAD_INDEX_DIR", f"{scratch}/index")
        lines = measure(write(Path(scratch) / "data", chosen.rows), chosen.seconds)
    result = {"benchmark": "gpu-arrays", "machine": report.machine(), "lines": lines}
    report.deliver(result, as_text(lines), chosen)
    return int(any(line["problem"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
