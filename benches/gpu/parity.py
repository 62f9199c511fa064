"""Measures how close batches made on a GPU come to the CPU's: the same crops, backend by backend.

Differences are in grey levels before normalisation. If the CPU's decoders made the pixels, the rest must give exactly
the same bits. It needs a driver, but no torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import driver
import foreload
import images
import numpy as np
from foreload import transforms as T
from harness import options, report
from resemblance import MEAN_LIMIT, levels_of

BACKENDS = ("hardware", "cuda_batched", "cuda", "cpu")
LARGE = 96
"""The images of a batch, more than `cuda_batched` needs to decode Huffman codes on the GPU."""
DTYPES = ("uint8", "float32")
DECODES = ("fast", "exact")
RECIPES = {
    "jitter": [T.ColorJitter(0.8, 0.8, 0.8, 0.2), T.RandomGrayscale(0.2), T.GaussianBlur(23)],
    "RandAugment": [T.RandAugment(3, 15, interpolation="bilinear")],
    "AugMix": [T.AugMix()],
}
"""The operations on the pixels of crops, on all levels, by name."""
NO_BACKEND = "this build has no such backend"


def epoch(root: Path, device: str, **settings: object) -> tuple[dict[int, np.ndarray], dict]:
    """Return CHW images by sample id, and the counters of the GPU."""
    loader = foreload.ImageLoader(root, device=device, last_batch="partial", seed=1, **settings)
    batches, seen = iter(loader), {}
    for batch in batches:
        ids, pixels = driver.to_host(batch.sample_ids), driver.to_host(batch.images)
        seen |= dict(zip(ids.tolist(), pixels, strict=True))
    return seen, batches.stats().get("gpu") or {}


def compare(
    root: Path, backend: str, expected: dict[int, np.ndarray], what: dict[str, object], **settings: object
) -> dict:
    os.environ["FORELOAD_GPU_BACKEND"] = backend
    try:
        seen, counted = epoch(root, "cuda", **settings)
    except foreload.Error as error:
        if "FORELOAD_GPU_BACKEND" not in str(error):
            raise
        return {"backend": backend, **what, "absent": NO_BACKEND, "problem": None}
    finally:
        del os.environ["FORELOAD_GPU_BACKEND"]
    if seen.keys() != expected.keys():
        raise AssertionError(f"{backend}: {len(seen)} samples came, not the {len(expected)} of the CPU")
    means, most, identical = [], 0.0, True
    for sample, pixels in seen.items():
        difference = np.abs(levels_of(pixels) - levels_of(expected[sample]))
        means.append(float(difference.mean()))
        most = max(most, float(difference.max()))
        identical = identical and np.array_equal(pixels, expected[sample])
    decoded = {name: counted[f"decoded_{name}"] for name in BACKENDS if f"decoded_{name}" in counted}
    line = {
        "backend": backend,
        **what,
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
    backend, decoded = line["backend"], line["decoded"]
    if backend == "cpu" and not line["identical"]:
        return "pixels of the CPU's decoders came out with other bits"
    if line["mean"] > MEAN_LIMIT:
        return f"mean difference {line['mean']:.2f}, at most {MEAN_LIMIT}"
    if decoded.get(backend) or (backend == "hardware" and not driver.has_jpeg_engine()):
        return None
    if backend == "cuda_batched" and line["batch_size"] < LARGE:
        return None
    return "no image was decoded by it"


def row(line: dict) -> list[str]:
    what = [line["backend"], line["files"], line["decode"], line["dtype"]]
    if "absent" in line:
        return [*what, "", "", "", "", "", line["absent"]]
    decoded = ", ".join(f"{name} {count}" for name, count in line["decoded"].items() if count)
    figures = [f"{line[key]:.3f}" for key in ("mean", "image_p99")] + [f"{line['pixel_max']:.0f}"]
    return [*what, decoded, *figures, "yes" if line["identical"] else "no", line["problem"] or "ok"]


def as_text(lines: list[dict]) -> str:
    head = ["backend", "files", "decode", "dtype", "decoded by", "mean", "99 % of images", "worst pixel"]
    return report.table([*head, "same bits", ""], [row(line) for line in lines])


def cases(scratch: Path, photographs: Path | None, short: bool) -> Iterator[tuple[str, Path, int]]:
    count = 20 if short else 96
    yield "all kinds, small", images.make(scratch / "kinds", images.KINDS, samples=count), min(count, 32)
    yield "baseline, small", images.make(scratch / "baseline", samples=LARGE * (1 if short else 2)), LARGE
    if photographs:
        yield "photographs", photographs, LARGE


def compared(chosen: argparse.Namespace, scratch: Path) -> Iterator[dict]:
    for files, root, size in cases(scratch, chosen.data, chosen.short):
        for decode in DECODES[:1] if chosen.short else DECODES:
            for dtype in DTYPES[:1] if chosen.short else DTYPES:
                settings = {"decode": decode, "dtype": dtype, "batch_size": size}
                settings["image_size"] = 32 if chosen.short else chosen.image_size
                expected, _ = epoch(root, "cpu", **settings)
                for backend in BACKENDS:
                    yield {"files": files, **compare(root, backend, expected, settings, **settings)}
        # Operations on pixels may amplify a difference of one level, so only equal bits from the same planes are
        # conclusive.
        for name, transforms in RECIPES.items():
            crop = T.RandomResizedCrop(32 if chosen.short else chosen.image_size)
            settings = {"transforms": [crop, *transforms], "batch_size": size}
            expected, _ = epoch(root, "cpu", **settings)
            what = {"decode": "fast", "dtype": name, "batch_size": size}
            yield {"files": files, **compare(root, "cpu", expected, what, **settings)}


def main() -> int:
    """Compare and print; return 1 if a limit is exceeded, 2 without a GPU."""
    parser = options.parser(__doc__, data=None, targets=False)
    parser.add_argument("--data", type=Path, help="a folder of photographs; small files are made")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--short", action="store_true", help="small and few: try the script itself")
    parser.add_argument("--lines", type=Path, help="keep each line here as soon as it is known")
    chosen = parser.parse_args()
    try:
        driver.device_count()
    except (OSError, driver.DriverError) as reason:
        report.log(f"no GPU to compare with: {reason}")
        return 2
    lines: list[dict] = []
    kept = report.Lines(chosen.lines)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("FORELOAD_INDEX_DIR", f"{scratch}/index")
        try:
            for line in compared(chosen, Path(scratch)):
                kept.add(line)
                lines.append(line)
                told = line.get("absent") or f"mean {line['mean']:.3f}, {line['problem'] or 'ok'}"
                report.log(f"{line['files']}, {line['decode']}, {line['dtype']}, {line['backend']}: {told}")
        except KeyboardInterrupt:
            report.log("interrupted: what was compared until now follows")
            deliver(lines, chosen)
            raise
    deliver(lines, chosen)
    return int(any(line["problem"] for line in lines))


def deliver(lines: list[dict], chosen: argparse.Namespace) -> None:
    result = {"benchmark": "gpu-parity", "machine": report.machine(), "limit": MEAN_LIMIT, "lines": lines}
    report.deliver(result, as_text(lines), chosen)


if __name__ == "__main__":
    sys.exit(main())
