"""Does a network learn as well from Foreload's batches as from torchvision's?

One small residual network is trained from the same first weights (one set per seed) with torchvision's pipeline and
with Foreload's two decoding modes, with the same optimiser, schedule, batch size and epochs. All networks are evaluated
with torchvision's evaluation pipeline, so that they differ only in their training batches. `--recipe strong` trains
with TrivialAugmentWide, RandomErasing and MixUp.

    python benches/accuracy/fetch.py data/cifar10-20000 --train 20000
    python benches/accuracy/run.py --data data/cifar10-20000 --output benches/results/accuracy --seeds 36

Each run is added to OUTPUT.json when it ends, with its commit and processor, and OUTPUT.md is rewritten from all runs.
Runs that exist are not repeated, so an interruption loses only the current runs, and more seeds can be added at any
time. `--smoke FOLDER` makes a small dataset there and only shows that everything works.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import json
import os
import sys
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import foreload
from harness import environments, options, programs, report
from harness.programs import Worker
from settings import RECIPES, Settings
from summary import PIPELINES, summarise

HERE = Path(__file__).resolve().parent
SMOKE = {"image_size": 16, "resize": 16, "batch_size": 16, "epochs": 2, "width": 4, "seeds": 2}


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__, data=None, targets=False)
    parser.add_argument("--data", type=Path, help="folder of two image folders, train/CLASS and val/CLASS")
    parser.add_argument(
        "--smoke", type=Path, metavar="FOLDER", help="run small, on images that are made there"
    )
    parser.add_argument("--recipe", choices=RECIPES, default=Settings.recipe, help="what is done to images")
    parser.add_argument("--seeds", type=int, help="how many runs of each pipeline are made")
    parser.add_argument("--first-seed", type=int, default=0, help="of these; the others count up from it")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--batch-size", type=int, default=Settings.batch_size)
    parser.add_argument("--width", type=int, default=Settings.width, help="channels of the first stage")
    parser.add_argument("--image-size", type=int, default=Settings.image_size)
    parser.add_argument("--resize", type=int, help="validation: shorter side before the crop; the image size")
    parser.add_argument(
        "--scale", type=float, nargs=2, default=Settings.scale, help="bounds of the crop's area"
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, of one thread each")
    parser.add_argument(
        "--python", type=Path, help="an interpreter with torchvision; one is made if not said"
    )
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER, help="where it is made")
    chosen = parser.parse_args()
    if (chosen.data is None) == (chosen.smoke is None):
        parser.error("either --data or --smoke must be given")
    if chosen.smoke:
        vars(chosen).update(SMOKE, data=chosen.smoke)
    if chosen.seeds is None:
        chosen.seeds = RECIPES[chosen.recipe].seeds
    if chosen.seeds < 2:
        parser.error(f"--seeds: is {chosen.seeds}, must be at least 2")
    if chosen.first_seed < 0:
        parser.error(f"--first-seed: is {chosen.first_seed}, must be at least 0")
    return chosen


def make_images(folder: Path) -> None:
    """Make four classes, each a colour with noise: a network learns something from them in seconds."""
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


def worker(python: Path) -> Worker:
    """Start a process that trains one network after another."""
    # This is the Foreload of this Python.
    module = Path(foreload.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(module), os.environ.get("PYTHONPATH")]))
    return Worker([python, HERE / "train.py"], os.environ | {"PYTHONPATH": path})


def train_all(settings: dict, todo: list[tuple[str, int]], jobs: int, python: Path, keep) -> None:
    """Do all runs, `jobs` at a time; `keep` is called with each result as it comes."""
    workers = [worker(python) for _ in range(min(jobs, len(todo)))]
    idle: SimpleQueue[Worker] = SimpleQueue()
    for one in workers:
        idle.put(one)

    def train(pipeline: str, seed: int) -> dict:
        one = idle.get()
        try:
            one.send(json.dumps([settings, pipeline, seed]))
            return {"pipeline": pipeline, "seed": seed, **json.loads(one.read())}
        finally:
            idle.put(one)

    calls = {f"{pipeline}, {seed}": functools.partial(train, pipeline, seed) for pipeline, seed in todo}
    try:
        for _, run in programs.side_by_side(calls, max(len(workers), 1)):
            keep(run)
    finally:
        for one in workers:
            one.end()


def images(data: Path) -> dict[str, int]:
    return {split: sum(1 for _ in (data / split).glob("*/*")) for split in ("train", "val")}


def as_json(settings: Settings) -> dict:
    return dataclasses.asdict(settings) | {"data": str(settings.data), "scale": list(settings.scale)}


def defaults() -> dict:
    """Return the default of each setting except the data, which has none."""
    return {name: value for name, value in as_json(Settings(Path())).items() if name != "data"}


def measure(chosen: argparse.Namespace) -> dict:
    settings = Settings(
        resize=chosen.resize or chosen.image_size,
        scale=tuple(chosen.scale),
        **options.settings(chosen, "data recipe image_size width epochs batch_size"),
    )
    asked = as_json(settings)
    same = {name: value for name, value in asked.items() if name != "data"}
    result = {"benchmark": "accuracy", "settings": same, "dataset": chosen.data.name}
    result |= {"images": images(chosen.data), "runs": []}
    if known := report.begun(chosen.output, result, ("settings", "dataset", "images"), defaults()):
        result["runs"] = known["runs"]
    machine = report.machine()
    done = {(run["pipeline"], run["seed"]) for run in result["runs"]}
    # The runs are ordered by seed, so that an interrupted result can be compared.
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    todo = [pair for seed in seeds for pipeline in PIPELINES if (pair := (pipeline, seed)) not in done]

    def keep(run: dict) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        where = {name: machine[name] for name in ("commit", "processor")}
        result["runs"].append(run | where | {"date": now})
        if chosen.output:
            write(chosen.output, result)
        report.log(f"{run['pipeline']}, seed {run['seed']}: {run['accuracy']:.2f} %")

    python = chosen.python or environments.ensure("torch", chosen.envs)
    train_all(asked, todo, chosen.jobs, python, keep)
    return summarised(result)


def summarised(result: dict) -> dict:
    half_width = RECIPES[result["settings"]["recipe"]].half_width
    return result | {"summary": summarise(result["runs"], half_width)}


def write(output: Path, result: dict) -> None:
    result = summarised(result)
    report.keep(result, as_text(result), output)


def as_text(result: dict) -> str:
    settings, summary, runs = result["settings"], result["summary"], result["runs"]
    recipe = RECIPES[settings["recipe"]]
    parts = [
        origin_line(result),
        f"`{result['dataset']}`: {runs[0]['train_images']} training and {runs[0]['validation_images']} validation "
        f"images, {runs[0]['classes']} classes; a residual network of {runs[0]['parameters']} parameters, "
        f"{settings['epochs']} epochs in batches of {settings['batch_size']}, {settings['precision']}; "
        f"RandomResizedCrop({settings['image_size']}, scale={tuple(settings['scale'])}), {recipe.steps}; "
        f"{len(summary['seeds'])} seeds that all pipelines ran",
    ]
    if not summary["differences"]:
        return "\n\n".join([*parts, "Too few to compare."])
    head = [
        "training pipeline",
        "mean ± deviation",
        "least",
        "greatest",
        "own evaluation",
        "processor s a run",
    ]
    parts += [
        "Validation accuracy in percent. All networks are judged by torchvision's pipeline; in the last column but "
        "one by the one they were trained with:",
        report.table(head, [pipeline_row(name, summary["pipelines"][name]) for name in PIPELINES]),
    ]
    head = ["training pipeline", "mean ± deviation", "95 % interval", "half-width", "includes 0"]
    head.append(f"half-width ≤ {recipe.half_width}")
    parts += [
        "Paired differences to torchvision, seed by seed, in percentage points:",
        report.table(head, [difference_row(name, entry) for name, entry in summary["differences"].items()]),
    ]
    rows = [
        [str(seed), *(f"{summary['pipelines'][name]['values'][at]:.2f}" for name in PIPELINES)]
        for at, seed in enumerate(summary["seeds"])
    ]
    parts.append(report.table(["seed", *(name.replace("**", "") for name in PIPELINES.values())], rows))
    return "\n\n".join(parts)


def origin_line(result: dict) -> str:
    """Describe the origin of the runs, which may have different dates."""
    runs = result["runs"]

    def several(name: str) -> str:
        return ", ".join(dict.fromkeys(run[name] for run in runs))

    name = result["settings"]["recipe"]
    asked, output = ("", "accuracy") if name == Settings.recipe else (f" --recipe {name}", f"accuracy-{name}")
    days = sorted({run["date"][:10] for run in runs})
    return (
        f"{several('processor')}, {' to '.join(dict.fromkeys((days[0], days[-1])))}, commit {several('commit')}, "
        f"torch {several('torch')}, torchvision {several('torchvision')}: "
        f"`run.py --data data/{result['dataset']}{asked} --output benches/results/{output}`"
    )


def pipeline_row(name: str, entry: dict) -> list[str]:
    figures = (min(entry["values"]), max(entry["values"]), entry["own_mean"])
    spread = f"{entry['mean']:.2f} ± {entry['deviation']:.2f}"
    return [
        PIPELINES[name],
        spread,
        *(f"{figure:.2f}" for figure in figures),
        f"{entry['processor_seconds']:.0f}",
    ]


def difference_row(name: str, entry: dict) -> list[str]:
    """Return the table row of one of Foreload's pipelines, compared with torchvision's."""
    least, greatest = entry["interval"]
    spread = f"{entry['mean']:+.2f} ± {entry['deviation']:.2f}"
    figures = (spread, f"{least:+.2f} to {greatest:+.2f}", f"{entry['half_width']:.2f}")
    return [
        PIPELINES[name],
        *figures,
        *("yes" if entry[key] else "no" for key in ("includes_zero", "decided")),
    ]


def main() -> int:
    chosen = parse_arguments()
    if chosen.smoke:
        make_images(chosen.smoke)
    result = measure(chosen)
    report.deliver(result, as_text(result), chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
