"""How near batches made on a GPU come to the CPU's: the same crops, rung by rung of the ladder of decoders.

Differences are in grey levels before normalisation. Where the pixels come from the CPU's decoders the rest must give
the very same bits. Needs a driver, not torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import driver
import foreload
import images
import numpy as np
import report
from resemblance import MEAN_LIMIT, levels_of

RUNGS = ("hardware", "cuda", "cpu")
DTYPES = ("uint8", "float32")
DECODES = ("fast", "exact")


def epoch(root: Path, device: str, **settings: object) -> tuple[dict[int, np.ndarray], dict]:
    """CHW images by sample id, and what the GPU counted."""
    loader = foreload.ImageLoader(root, device=device, last_batch="partial", seed=1, **settings)
    batches, seen = iter(loader), {}
    for batch in batches:
        ids, pixels = driver.to_host(batch.sample_ids), driver.to_host(batch.images)
        seen |= dict(zip(ids.tolist(), pixels, strict=True))
    return seen, batches.stats().get("gpu") or {}


def compare(root: Path, rung: str, expected: dict[int, np.ndarray], **settings: object) -> dict:
    """One line of the result."""
    os.environ["FORELOAD_GPU_RUNG"] = rung
    try:
        seen, counted = epoch(root, "cuda", **settings)
    finally:
        del os.environ["FORELOAD_GPU_RUNG"]
    if seen.keys() != expected.keys():
        raise AssertionError(f"{rung}: {len(seen)} samples came, not the {len(expected)} of the CPU")
    means, most, identical = [], 0.0, True
    for sample, pixels in seen.items():
        difference = np.abs(levels_of(pixels) - levels_of(expected[sample]))
        means.append(float(difference.mean()))
        most = max(most, float(difference.max()))
        identical = identical and np.array_equal(pixels, expected[sample])
    decoded = {name: counted[f"decoded_{name}"] for name in RUNGS}
    line = {
        "rung": rung,
        **settings,
        "images": len(seen),
        "decoded": decoded,
        "mean": float(np.mean(means)),
        "image_p99": float(np.percentile(means, 99)),
        "image_max": max(means),
        "pixel_max": most,
        "identical": identical,
    }
    return line | {"problem": problem(line)}


def problem(line: dict) -> str | None:
    """What is wrong with a line, if anything."""
    rung, decoded = line["rung"], line["decoded"]
    if rung == "cpu" and not line["identical"]:
        return "pixels of the CPU's decoders came out with other bits"
    if line["mean"] > MEAN_LIMIT:
        return f"mean difference {line['mean']:.2f}, at most {MEAN_LIMIT}"
    if not decoded[rung] and (rung != "hardware" or driver.has_jpeg_engine()):
        return f"no image was decoded by it: {decoded}"
    return None


def as_text(lines: list[dict]) -> str:
    """The table."""
    head = [
        "rung",
        "files",
        "decode",
        "dtype",
        "decoded by",
        "mean",
        "99 % of images",
        "worst pixel",
        "same bits",
        "",
    ]
    rows = []
    for line in lines:
        decoded = ", ".join(f"{name} {count}" for name, count in line["decoded"].items() if count)
        figures = [f"{line[key]:.3f}" for key in ("mean", "image_p99")] + [f"{line['pixel_max']:.0f}"]
        bits, verdict = "yes" if line["identical"] else "no", line["problem"] or "ok"
        rows.append(
            [line["rung"], line["files"], line["decode"], line["dtype"], decoded, *figures, bits, verdict]
        )
    return report.table(head, rows)


def main() -> int:
    """Compare, print; 1 when a limit is broken, 2 without a GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="an image folder of photographs, beside small files of all kinds"
    )
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    chosen = parser.parse_args()
    try:
        driver.device_count()
    except (OSError, driver.DriverError) as reason:
        report.log(f"no GPU to compare with: {reason}")
        return 2
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("FORELOAD_INDEX_DIR", f"{scratch}/index")
        roots = {"all kinds, small": images.make(Path(scratch) / "kinds", images.KINDS, samples=96)}
        if chosen.data:
            roots["photographs"] = chosen.data
        for files, root in roots.items():
            for decode in DECODES:
                for dtype in DTYPES:
                    settings = {"decode": decode, "dtype": dtype, "batch_size": chosen.batch_size}
                    settings["image_size"] = chosen.image_size
                    expected, _ = epoch(root, "cpu", **settings)
                    for rung in RUNGS:
                        line = {"files": files, **compare(root, rung, expected, **settings)}
                        report.log(f"{files}, {decode}, {dtype}, {rung}: mean {line['mean']:.3f}")
                        lines.append(line)
    result = {"benchmark": "gpu-parity", "machine": report.machine(), "limit": MEAN_LIMIT, "lines": lines}
    report.deliver(result, as_text(lines), chosen.json, chosen.output)
    return int(any(line["problem"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
