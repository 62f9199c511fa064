"""Measures how close each loader comes to Pillow's pixels, for the same boxes of the same files.

The reference: Pillow decodes, crops, resizes with its antialiased bilinear filter and flips, in 8 bits. Foreload draws
the boxes (or, without Foreload, a seeded generator with the same distribution); every other method gets these boxes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import aims, datasets, environments, options, programs, report, rounds
from harness.aims import at_least, at_most
from harness.crops import draw_box
from harness.environments import Unavailable

HERE = Path(__file__).resolve().parent
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
AIMS = {
    "foreload-exact": {
        "mean_difference": at_most(0.25),
        "psnr_median": at_least(54.0),
        "psnr_first_percentile": at_least(50.0),
    },
    "foreload-fast": {
        "mean_difference": at_most(0.6),
        "psnr_median": at_least(50.0),
        "psnr_first_percentile": at_least(38.0),
    },
}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--images", type=int, default=400, help="how many, spread over the dataset")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", default=list(METHODS))
    options.add_environments(parser)
    return parser.parse_args()


def draw_views(paths: list[str], count: int, seed: int, python: Path) -> list[dict]:
    """Draw boxes as RandomResizedCrop does, if Foreload is not there to draw them."""
    samples = [index * len(paths) // count for index in range(count)]
    program = (
        "import json, sys\nfrom PIL import Image\n"
        "print(json.dumps([Image.open(path).size for path in json.load(sys.stdin)]))"
    )
    asked = json.dumps([paths[sample] for sample in samples])
    answer = subprocess.run([python, "-c", program], input=asked, capture_output=True, text=True, check=True)
    rng = random.Random(seed)
    views = []
    for sample, (width, height) in zip(samples, json.loads(answer.stdout), strict=True):
        box = dict(zip(("x", "y", "width", "height"), draw_box(width, height, rng), strict=True))
        views.append({"path": paths[sample], "sample_id": sample, **box, "flip": rng.random() < 0.5})
    return views


def run_method(python: Path, request: dict, output: Path) -> None:
    asked = output.with_suffix(".request")
    asked.write_text(json.dumps(request))
    programs.output_of([python, HERE / "methods.py", asked, output])


def measure(chosen: argparse.Namespace, folder: Path) -> dict:
    """Return the scores of every method, and where the boxes came from."""
    paths = [str(path) for path in datasets.jpegs(chosen.data)]
    count = min(chosen.images, len(paths))
    reference_python = environments.ensure("reference", chosen.envs)
    loader = {"path": str(chosen.data), "batch_size": 64, "seed": chosen.seed, "last_batch": "partial"}
    common = {"image_size": chosen.image_size, "loader": loader}
    drawn_by = "foreload"
    try:
        request = {**common, "method": "foreload-views", "paths": paths, "count": count}
        run_method(rounds.interpreter(None, chosen), request, folder / "views.json")
        views = json.loads((folder / "views.json").read_text())
    except Unavailable as reason:
        report.log(f"boxes are drawn without Foreload: {reason}")
        views, drawn_by = draw_views(paths, count, chosen.seed, reference_python), "seeded generator"
    request = {**common, "views": views}
    run_method(reference_python, {**request, "method": "pillow"}, folder / "pillow.npy")

    def scored(name: str, environment: str | None) -> dict:
        output = folder / f"{name}.npy"
        run_method(rounds.interpreter(environment, chosen), {**request, "method": name}, output)
        entry = programs.json_of([reference_python, HERE / "score.py", folder / "pillow.npy", output])
        output.unlink()
        least = views[entry.pop("least_index")]
        entry["least_view"] = {**least, "path": str(Path(least["path"]).relative_to(chosen.data))}
        return entry | verdict(name, entry)

    scores = {}
    for name in chosen.methods:
        title, environment = METHODS[name]
        entry = rounds.attempt(lambda name=name, environment=environment: scored(name, environment))
        scores[name] = {"title": title, "failure": None} | entry
        told = {key: value for key, value in scores[name].items() if key != "least_view"}
        report.log(f"{name}: {json.dumps(told)}")
    return {"images": count, "boxes_from": drawn_by, "methods": scores}


def verdict(name: str, entry: dict) -> dict:
    asked = AIMS.get(name)
    if asked is None:
        return {}
    met = all(aim.met(entry[key]) for key, aim in asked.items())
    return {"target": {key: aim.bound for key, aim in asked.items()}, "target_met": met}


HEAD = ["method", "mean difference", "PSNR median, dB", "1st percentile", "least", "greatest difference"]


def as_text(result: dict) -> str:
    methods = result["methods"].values()
    order = sorted(methods, key=lambda entry: entry.get("mean_difference", float("inf")))
    parts = [
        report.machine_line(result["machine"]),
        f"`{result['data']}`: {result['images']} images, boxes from {result['boxes_from']}, against Pillow "
        f"(crop, antialiased bilinear resize to {result['image_size']}, flip), 8-bit levels",
        report.table(HEAD, [row(entry) for entry in order]),
    ]
    for entry in methods:
        if asked := entry.get("target"):
            parts.append(
                f"{entry['title']}: asked mean at most {asked['mean_difference']}, median at least "
                f"{asked['psnr_median']} dB, 1st percentile at least {asked['psnr_first_percentile']} dB: "
                + aims.word(entry["target_met"])
            )
    return "\n\n".join(parts)


def row(entry: dict) -> list[str]:
    if entry["failure"]:
        return report.missing(entry, len(HEAD))
    psnr = (f"{entry[f'psnr_{key}']:.1f}" for key in ("median", "first_percentile", "least"))
    return [entry["title"], f"{entry['mean_difference']:.3f}", *psnr, str(entry["greatest_difference"])]


def main() -> int:
    """Measure and report; return 1 if Foreload failed, or missed a required target."""
    chosen = parse_arguments()
    datasets.ensure_known(chosen.data, chosen.foreload_python.parent / "foreload")
    result = {"benchmark": "fidelity", "machine": report.machine(), "data": chosen.data.name}
    result["image_size"] = chosen.image_size
    with tempfile.TemporaryDirectory(prefix="foreload-fidelity-") as folder:
        result |= measure(chosen, Path(folder))
    report.deliver(result, as_text(result), chosen)
    own = [entry for name, entry in result["methods"].items() if name.startswith("foreload")]
    missed = any(entry.get("target_met") is False for entry in own)
    return options.exit_code(chosen, any(entry["failure"] for entry in own), missed)


if __name__ == "__main__":
    sys.exit(main())
