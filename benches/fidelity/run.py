"""Measures how near to Pillow's pixels each loader comes, on the same boxes of the same files.

The reference: Pillow decodes, crops, resizes with its antialiased bilinear filter and flips, in 8 bits. Foreload draws
the boxes (or, without Foreload, a seeded generator of the same distribution); every other method is given them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import environments
import photographs
import report
from environments import ROOT, Unavailable

HERE = Path(__file__).resolve().parent
TIMEOUT = 1800

METHODS = {
    "foreload-exact": ("**Foreload** exact", None),
    "foreload-fast": ("**Foreload** fast", None),
    "pillow-simd": ("Pillow-SIMD", "pillow-simd"),
    "torchvision-io": ("torchvision.io + v2", "torch"),
    "dali": ("DALI, CPU", "dali"),
    "libjpeg-turbo": ("libjpeg-turbo + Pillow resize", "reference"),
    "libjpeg-turbo-fast": ("libjpeg-turbo, fast transform, plain upsampling", "reference"),
    "tf-data": ("tf, antialiased", "tensorflow"),
    "tf-data-plain": ("tf, no antialiasing", "tensorflow"),
    "spdl": ("SPDL (FFmpeg)", "spdl"),
    "ffcv": ("FFCV (area resize, file not re-encoded)", "ffcv"),
    "opencv": ("OpenCV linear (no antialiasing)", "opencv"),
}

TARGETS = {
    "foreload-exact": {"mean_difference": 0.25, "psnr_median": 54.0, "psnr_first_percentile": 50.0},
    "foreload-fast": {"mean_difference": 0.6, "psnr_median": 50.0, "psnr_first_percentile": 38.0},
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "folder", help="image folder")
    parser.add_argument("--images", type=int, default=400, help="how many, spread over the dataset")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", default=list(METHODS))
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when a target is missed")
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER)
    parser.add_argument("--foreload-python", type=Path, default=ROOT / ".venv" / "bin" / "python")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser.parse_args()


def draw_views(paths: list[str], count: int, seed: int, python: Path) -> list[dict]:
    """Draw boxes as RandomResizedCrop does, when Foreload is not there to draw its own."""
    samples = [index * len(paths) // count for index in range(count)]
    program = (
        "import json, sys\nfrom PIL import Image\n"
        "print(json.dumps([Image.open(path).size for path in json.load(sys.stdin)]))"
    )
    answer = subprocess.run(
        [python, "-c", program],
        input=json.dumps([paths[sample] for sample in samples]),
        capture_output=True,
        text=True,
        check=True,
    )
    rng = random.Random(seed)
    views = []
    for sample, (width, height) in zip(samples, json.loads(answer.stdout), strict=True):
        w, h = 0, 0
        while not (0 < w <= width and 0 < h <= height):
            area = width * height * rng.uniform(0.08, 1)
            ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        box = {"x": rng.randint(0, width - w), "y": rng.randint(0, height - h), "width": w, "height": h}
        views.append({"path": paths[sample], "sample_id": sample, **box, "flip": rng.random() < 0.5})
    return views


def run_method(python: Path, request: dict, output: Path) -> None:
    """Run `methods.py` in an environment; its failure becomes `Unavailable`."""
    asked = output.with_suffix(".request")
    asked.write_text(json.dumps(request))
    command = [str(python), str(HERE / "methods.py"), str(asked), str(output)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end after {TIMEOUT} s") from None
    if done.returncode != 0:
        raise Unavailable(environments.last_lines(done.stderr))


def measure(chosen: argparse.Namespace, folder: Path) -> dict:
    """Return the scores of every method, and where the boxes came from."""
    paths = [str(path) for path in photographs.jpegs(chosen.data)]
    count = min(chosen.images, len(paths))
    reference_python = environments.ensure("reference", chosen.envs)
    loader = {"path": str(chosen.data), "batch_size": 64, "seed": chosen.seed, "last_batch": "partial"}
    common = {"image_size": chosen.image_size, "loader": loader}
    drawn_by = "foreload"
    try:
        if not os.access(chosen.foreload_python, os.X_OK):
            raise Unavailable(f"{chosen.foreload_python} is missing: run `make setup` first")
        request = {**common, "method": "foreload-views", "paths": paths, "count": count}
        run_method(chosen.foreload_python, request, folder / "views.json")
        views = json.loads((folder / "views.json").read_text())
        no_foreload = None
    except Unavailable as reason:
        views = draw_views(paths, count, chosen.seed, reference_python)
        drawn_by, no_foreload = "seeded generator", str(reason)
    request = {**common, "views": views}
    run_method(reference_python, {**request, "method": "pillow"}, folder / "pillow.npy")
    scores = {}
    for name in chosen.methods:
        title, environment = METHODS[name]
        entry = {"title": title, "failure": None}
        try:
            if environment is None and no_foreload:
                raise Unavailable(no_foreload)
            python = environments.ensure(environment, chosen.envs) if environment else chosen.foreload_python
            output = folder / f"{name}.npy"
            run_method(python, {**request, "method": name}, output)
            command = [reference_python, HERE / "score.py", folder / "pillow.npy", output]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            entry |= json.loads(answer.stdout)
            output.unlink()
            entry["least_view"] = relative_view(views[entry.pop("least_index")], chosen.data)
            entry |= verdict(name, entry)
        except Unavailable as reason:
            entry["failure"] = str(reason).replace(f"{ROOT}/", "")
        report.log(f"{name}: {json.dumps({key: entry[key] for key in entry if key != 'least_view'})}")
        scores[name] = entry
    return {"images": count, "boxes_from": drawn_by, "methods": scores}


def relative_view(view: dict, data: Path) -> dict:
    """Return a view with its path relative to the dataset."""
    return {**view, "path": str(Path(view["path"]).relative_to(data))}


def verdict(name: str, entry: dict) -> dict:
    """Whether Foreload's figures reach the targets."""
    target = TARGETS.get(name)
    if target is None:
        return {}
    met = entry["mean_difference"] <= target["mean_difference"] and all(
        entry[key] >= target[key] for key in ("psnr_median", "psnr_first_percentile")
    )
    return {"target": target, "target_met": met}


def as_text(result: dict, chosen: argparse.Namespace) -> str:
    """Return the report in Markdown."""
    head = ["method", "mean difference", "PSNR median, dB", "1st percentile", "least", "greatest difference"]
    methods = result["methods"]
    order = sorted(methods, key=lambda name: methods[name].get("mean_difference", float("inf")))
    parts = [
        report.machine_line(result["machine"]),
        f"`{chosen.data.name}`: {result['images']} images, boxes from {result['boxes_from']}, against Pillow "
        f"(crop, antialiased bilinear resize to {chosen.image_size}, flip), 8-bit levels",
        report.table(head, [row(methods[name]) for name in order]),
    ]
    for entry in methods.values():
        if "target" in entry:
            asked = entry["target"]
            parts.append(
                f"{entry['title']}: asked mean at most {asked['mean_difference']}, median at least "
                f"{asked['psnr_median']} dB, 1st percentile at least {asked['psnr_first_percentile']} dB: "
                + ("met" if entry["target_met"] else "MISSED")
            )
    return "\n\n".join(parts)


def row(entry: dict) -> list[str]:
    """Return one method's line."""
    if entry["failure"]:
        return [entry["title"], f"not measured: {entry['failure']}".replace("|", "/"), "", "", "", ""]
    return [
        entry["title"],
        f"{entry['mean_difference']:.3f}",
        f"{entry['psnr_median']:.1f}",
        f"{entry['psnr_first_percentile']:.1f}",
        f"{entry['psnr_least']:.1f}",
        str(entry["greatest_difference"]),
    ]


def main() -> int:
    """Measure and report; return 1 when Foreload failed, or missed a target that was required."""
    chosen = parse_arguments()
    photographs.ensure_known(chosen.data, chosen.foreload_python.parent / "foreload")
    result = {"benchmark": "fidelity", "machine": report.machine(), "image_size": chosen.image_size}
    with tempfile.TemporaryDirectory(prefix="foreload-fidelity-") as folder:
        result |= measure(chosen, Path(folder))
    report.deliver(result, as_text(result, chosen), chosen.json, chosen.output)
    own = [entry for name, entry in result["methods"].items() if name.startswith("foreload")]
    missed = chosen.require_targets and any(entry.get("target_met") is False for entry in own)
    return 1 if missed or any(entry["failure"] for entry in own) else 0


if __name__ == "__main__":
    sys.exit(main())
