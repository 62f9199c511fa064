"""Does a network learn as well from Foreload's batches as from torchvision's?

One small residual network is trained from the same first weights (one set a seed) by torchvision's pipeline and by
Foreload's two ways to decode; same optimiser, schedule, batch size, epochs. All networks are judged by torchvision's
evaluation pipeline, so that only what they were trained on differs.

    python benches/accuracy/fetch.py data/cifar10
    python benches/accuracy/run.py --data data/cifar10 --output benches/results/accuracy

A run that was interrupted goes on where OUTPUT.partial.json ends, if it is of the same data, commit and processor.
`--smoke FOLDER` makes a small dataset there and shows that all works, nothing more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import environments
import foreload
import report
from summary import MOST_SEEDS, PIPELINES, TOLERANCE, summarise

HERE = Path(__file__).resolve().parent
SMOKE = {"image_size": 16, "resize": 16, "batch_size": 16, "epochs": 2, "width": 4, "seeds": 2}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of two image folders, train/CLASS and val/CLASS")
    parser.add_argument(
        "--smoke", type=Path, metavar="FOLDER", help="run small, on images that are made there"
    )
    parser.add_argument("--seeds", type=int, default=8, help="runs of each pipeline")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=16, help="channels of the network's first stage")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--resize", type=int, help="validation: shorter side before the crop; the image size")
    parser.add_argument("--scale", type=float, nargs=2, default=(0.5, 1.0), help="bounds of the crop's area")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, of one thread each")
    parser.add_argument(
        "--python", type=Path, help="an interpreter with torchvision; one is made if not said"
    )
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER, help="where it is made")
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    chosen = parser.parse_args()
    if (chosen.data is None) == (chosen.smoke is None):
        parser.error("either --data or --smoke must be given")
    if chosen.smoke:
        vars(chosen).update(SMOKE, data=chosen.smoke)
    if not 2 <= chosen.seeds <= MOST_SEEDS:
        parser.error(f"--seeds: is {chosen.seeds}, must be 2 to {MOST_SEEDS}")
    return chosen


def make_images(folder: Path) -> None:
    """Four classes, each a colour under noise: enough to learn something in seconds."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for split, count in (("train", 64), ("val", 16)):
        for number in range(4):
            place = folder / split / f"class_{number}"
            place.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                colour = np.array([60 * number, 128, 240 - 60 * number])
                pixels = np.clip(random.normal(colour, 40, (20, 24, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.jpg", quality=95)


class Worker:
    """A process that trains one network after another."""

    def __init__(self, python: Path) -> None:
        # The Foreload of this Python.
        module = Path(foreload.__file__).parents[1]
        path = os.pathsep.join(filter(None, [str(module), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [str(python), str(HERE / "train.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            text=True,
        )

    def train(self, settings: dict, pipeline: str, seed: int) -> dict:
        """One run; ends this program when the worker fails, which has then said why."""
        self._process.stdin.write(json.dumps([settings, pipeline, seed]) + "\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"{pipeline}, seed {seed}: the worker ended with {self._process.wait()}")
        return {"pipeline": pipeline, "seed": seed, **json.loads(answer)}

    def close(self) -> None:
        """No more runs."""
        self._process.stdin.close()
        self._process.wait()


def train_all(settings: dict, todo: list[tuple[str, int]], jobs: int, python: Path, keep) -> None:
    """All runs, `jobs` at a time; `keep` is called with each result as it comes."""
    workers = [Worker(python) for _ in range(min(jobs, len(todo)))]
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def one(pipeline: str, seed: int) -> dict:
        worker = idle.get()
        try:
            return worker.train(settings, pipeline, seed)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(max(len(workers), 1)) as pool:
        runs = [pool.submit(one, pipeline, seed) for pipeline, seed in todo]
        try:
            for run in as_completed(runs):
                keep(run.result())
        finally:
            for run in runs:
                run.cancel()
            for worker in workers:
                worker.close()


def images(data: Path) -> dict[str, int]:
    """Files of each split."""
    return {split: sum(1 for _ in (data / split).glob("*/*")) for split in ("train", "val")}


def origin(result: dict) -> dict:
    """What runs must have in common to be averaged."""
    same = {name: result[name] for name in ("settings", "dataset", "images")}
    return same | {name: result["machine"][name] for name in ("processor", "commit")}


def interrupted(result: dict, partial: Path) -> dict:
    """The result with the runs of `partial`, if there is one; ends the program when those were run otherwise."""
    if not partial.exists():
        return result
    known = json.loads(partial.read_text())
    now = origin(result)
    for name, was in origin(known).items():
        if was != now[name]:
            sys.exit(
                f"{partial}: {name}: was {was}, is {now[name]}: remove the file, or choose another --output"
            )
    return known


def measure(chosen: argparse.Namespace) -> dict:
    """Runs what is missing and keeps each result at once."""
    settings = {
        "image_size": chosen.image_size,
        "resize": chosen.resize or chosen.image_size,
        "scale": list(chosen.scale),
        "batch_size": chosen.batch_size,
        "epochs": chosen.epochs,
        "width": chosen.width,
    }
    result = {"benchmark": "accuracy", "machine": report.machine(), "settings": settings}
    result |= {"dataset": chosen.data.name, "images": images(chosen.data), "runs": []}
    if chosen.output:
        result = interrupted(result, partial_of(chosen.output))
    done = {(run["pipeline"], run["seed"]) for run in result["runs"]}
    # Seed by seed, so that what is there after an interruption can be compared.
    pairs = ((pipeline, seed) for seed in range(chosen.seeds) for pipeline in PIPELINES)
    todo = [pair for pair in pairs if pair not in done]

    def keep(run: dict) -> None:
        result["runs"].append(run)
        report.log(f"{run['pipeline']}, seed {run['seed']}: {run['accuracy']:.2f} %")
        if chosen.output:
            write(result, partial_of(chosen.output))

    python = chosen.python or environments.ensure("torch", chosen.envs)
    train_all({**settings, "data": str(chosen.data)}, todo, chosen.jobs, python, keep)
    return result


def partial_of(output: Path) -> Path:
    """Where the runs are kept until all are there."""
    return output.with_suffix(".partial.json")


def write(result: dict, path: Path) -> None:
    """The result so far, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(result, indent=1) + "\n")
    new.replace(path)


def as_text(result: dict) -> str:
    """The report in Markdown."""
    settings, summary, first = result["settings"], result["summary"], result["runs"][0]
    seeds = summary["seeds"]
    return "\n\n".join(
        [
            report.machine_line(result["machine"]),
            f"`{result['dataset']}`: {first['train_images']} training and {first['validation_images']} "
            f"validation images, {first['classes']} classes; a residual network of {first['parameters']} "
            f"parameters, {settings['epochs']} epochs in batches of {settings['batch_size']}, float32; "
            f"RandomResizedCrop({settings['image_size']}, scale={tuple(settings['scale'])}), flip, normalise; "
            f"{len(seeds)} seeds",
            "Validation accuracy in percent. All networks are judged by torchvision's pipeline; in the last column "
            "by the one they were trained with:",
            report.table(
                ["training pipeline", "mean ± deviation", "least", "greatest", "own evaluation"],
                [pipeline_row(name, summary["pipelines"][name]) for name in PIPELINES],
            ),
            "Paired differences to torchvision, seed by seed, in percentage points:",
            report.table(
                ["training pipeline", "mean", "95 % interval", "includes 0", f"interval within ±{TOLERANCE}"],
                [difference_row(name, entry) for name, entry in summary["differences"].items()],
            ),
            report.table(
                ["seed", *(name.replace("**", "") for name in PIPELINES.values())],
                [
                    [str(seed), *(f"{summary['pipelines'][name]['values'][at]:.2f}" for name in PIPELINES)]
                    for at, seed in enumerate(seeds)
                ],
            ),
        ]
    )


def pipeline_row(name: str, entry: dict) -> list[str]:
    """One pipeline's accuracy."""
    figures = (min(entry["values"]), max(entry["values"]), entry["own_mean"])
    spread = f"{entry['mean']:.2f} ± {entry['deviation']:.2f}"
    return [PIPELINES[name], spread, *(f"{figure:.2f}" for figure in figures)]


def difference_row(name: str, entry: dict) -> list[str]:
    """One of Foreload's pipelines beside torchvision's."""
    least, greatest = entry["interval"]
    says = ["yes" if entry[key] else "no" for key in ("includes_zero", "within_tolerance")]
    return [PIPELINES[name], f"{entry['mean']:+.2f}", f"{least:+.2f} to {greatest:+.2f}", *says]


def main() -> int:
    """Runs and reports."""
    chosen = parse_arguments()
    if chosen.smoke:
        make_images(chosen.smoke)
    result = measure(chosen)
    result["summary"] = summarise(result["runs"])
    report.deliver(result, as_text(result), chosen.json, chosen.output)
    if chosen.output:
        partial_of(chosen.output).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
