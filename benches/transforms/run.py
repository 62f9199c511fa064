"""Compares Foreload's transforms with torchvision's own, on photographs.

run.py ops        each transform, given what was drawn: how far its levels are from torchvision's
run.py outputs    each recipe and its source's transforms, each with its own random numbers: whether what a
                  network gets has one distribution; and which recipes with one wrong number are found out
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import environments
import foreload
import photographs
import report
import tables
from environments import ROOT

Report = tuple[str, bool]
"""A report in Markdown, and whether all is as it should be."""
HERE = Path(__file__).resolve().parent
SIZES = [224, 96, 176]
IMAGES = {"ops": 200, "outputs": 2000}
LIST = "from references import CONTESTS, WRONG; import json; print(json.dumps([list(CONTESTS), list(WRONG)]))"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=IMAGES)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "folder", help="image folder")
    parser.add_argument("--images", type=int, help="how many of its images: 200 for ops, 2000 for outputs")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="ops: sides of the images")
    parser.add_argument("--recipes", nargs="+", help="outputs: these recipes, right or wrong, instead of all")
    parser.add_argument(
        "--exchanges", type=int, default=50_000, help="outputs: random exchanges of each test"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side, of one thread each")
    parser.add_argument("--require-targets", action="store_true", help="exit code 1 when something is off")
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER)
    parser.add_argument("--output", type=Path, help="keep the result in OUTPUT.json and OUTPUT.md too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    chosen = parser.parse_args()
    chosen.images = chosen.images or IMAGES[chosen.what]
    return chosen


def lines_of(python: Path, *words: str) -> list:
    """Run a program in the environment with torchvision; return its lines of JSON, or end with what it said."""
    # This is the Foreload of this Python.
    path = os.pathsep.join([str(Path(foreload.__file__).parents[1]), str(HERE)])
    done = subprocess.run(
        [str(python), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[1:])}: {environments.last_lines(done.stderr, limit=2000)}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def side_by_side(calls: dict[str, list[str]], python: Path, jobs: int) -> Iterator[tuple[str, list]]:
    """Run a program for each name, some at a time; yield the lines of each as it ends."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(lines_of, python, *words): name for name, words in calls.items()}
        try:
            for done in as_completed(running):
                report.log(f"{running[done]}: done")
                yield running[done], done.result()
        finally:
            for other in running:
                other.cancel()


def measure_ops(result: dict, data: Path, python: Path, chosen: argparse.Namespace) -> Report:
    """Compare each transform at each size."""
    program = [str(HERE / "ops.py"), str(data), "--seed", str(chosen.seed), "--sizes"]
    calls = {str(size): [*program, str(size)] for size in chosen.sizes}
    found = dict(side_by_side(calls, python, chosen.jobs))
    lines = [line for size in calls for line in found[size]]
    result |= {"sizes": chosen.sizes, "transforms": lines}
    return tables.of_ops(result)


def measure_outputs(result: dict, data: Path, python: Path, chosen: argparse.Namespace) -> Report:
    """Compare each recipe with its source, and with wrong ones; what was compared already is not repeated."""
    ((right, wrong),) = lines_of(python, "-c", LIST)
    result |= {"exchanges": chosen.exchanges, "recipes": {}, "wrong": {}}
    known = begun(chosen.output, result)
    program = [str(HERE / "outputs.py"), str(data), "--seed", str(chosen.seed)]
    program += ["--exchanges", str(chosen.exchanges)]
    decodes = {name: ["exact", "fast"] if name in right else ["exact"] for name in [*right, *wrong]}
    asked = [name for name in chosen.recipes or decodes if name not in known]
    calls = {name: [*program, name, "--decode", *decodes[name]] for name in asked}

    def with_all() -> Report:
        for key, names in (("recipes", right), ("wrong", wrong)):
            result[key] = {name: known[name] for name in names if name in known}
        return tables.of_outputs(result)

    for name, views in side_by_side(calls, python, chosen.jobs):
        known[name] = {"commit": result["machine"]["commit"], "views": views}
        if chosen.output:
            report.keep(result, with_all()[0], chosen.output)
    return with_all()


def begun(output: Path | None, result: dict) -> dict:
    """Return the recipes that are in `output`; end the program if they were compared otherwise."""
    path = output and output.with_suffix(".json")
    if not path or not path.exists():
        return {}
    known = json.loads(path.read_text())
    for name in ("data", "images", "seed", "requirements", "exchanges"):
        if known.get(name) != result[name]:
            sys.exit(
                f"{path}: {name}: was {known.get(name)}, is {result[name]}: remove it, or choose another --output"
            )
    return known["recipes"] | known["wrong"]


def main() -> int:
    """Measure and report; return 1 when something is off and that was asked for."""
    chosen = parse_arguments()
    photographs.ensure_known(chosen.data, Path(sys.executable).parent / "foreload")
    data = photographs.part(chosen.data, chosen.images, chosen.envs / "scratch")
    python = environments.ensure("frameworks", chosen.envs)
    result = {
        "benchmark": chosen.what,
        "machine": report.machine(),
        "data": chosen.data.name,
        "images": chosen.images,
        "seed": chosen.seed,
        "requirements": list(environments.RECIPES["torch"].requirements),
    }
    measure = measure_ops if chosen.what == "ops" else measure_outputs
    text, met = measure(result, data, python, chosen)
    report.deliver(result, text, chosen.json, chosen.output)
    return 1 if chosen.require_targets and not met else 0


if __name__ == "__main__":
    sys.exit(main())
