"""Compares Foreload's transforms with torchvision's own, on photographs.

run.py ops        each transform with the same draws: the difference of its levels from torchvision's.
run.py outputs    each recipe and its source's transforms, each with its own random numbers: whether their
                  outputs have the same distribution; and which recipes with one wrong number are detected.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import foreload
import tables
from harness import datasets, environments, options, programs, report

Report = tuple[str, bool]
"""A report in Markdown, and whether all results are as expected."""
HERE = Path(__file__).resolve().parent
SIZES = [224, 96, 176]
IMAGES = {"ops": 200, "outputs": 2000}
LIST = "from references import CONTESTS, WRONG; import json; print(json.dumps([list(CONTESTS), list(WRONG)]))"


def parse_arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("what", choices=IMAGES)
    parser.add_argument("--images", type=int, help="how many of its images: 200 for ops, 2000 for outputs")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="ops: sides of the images")
    parser.add_argument("--recipes", nargs="+", help="outputs: these recipes, right or wrong, instead of all")
    parser.add_argument("--exchanges", type=int, default=50_000, help="outputs: exchanges of each test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side, of one thread each")
    parser.add_argument("--envs", type=Path, default=environments.DEFAULT_FOLDER)
    chosen = parser.parse_args()
    chosen.images = chosen.images or IMAGES[chosen.what]
    return chosen


def lines_of(python: Path, *words: str) -> list:
    """Run a program in the environment with torchvision; return its lines of JSON."""
    # This is the Foreload of this Python.
    variables = programs.python_path(Path(foreload.__file__).parents[1], HERE) | {"OMP_NUM_THREADS": "1"}
    said = programs.output_of([python, *words], variables, timeout=None)
    return [json.loads(line) for line in said.splitlines()]


def side_by_side(calls: dict[str, list[str]], python: Path, jobs: int) -> Iterator[tuple[str, list]]:
    """Run a program for each name, some at a time; yield the lines of each when it ends."""
    runs = {name: functools.partial(lines_of, python, *words) for name, words in calls.items()}
    for name, lines in programs.side_by_side(runs, jobs):
        report.log(f"{name}: done")
        yield name, lines


def measure_ops(result: dict, data: Path, python: Path, chosen: argparse.Namespace) -> Report:
    program = [str(HERE / "ops.py"), str(data), "--seed", str(chosen.seed), "--sizes"]
    calls = {str(size): [*program, str(size)] for size in chosen.sizes}
    found = dict(side_by_side(calls, python, chosen.jobs))
    lines = [line for size in calls for line in found[size]]
    result |= {"sizes": chosen.sizes, "transforms": lines}
    return tables.of_ops(result)


def measure_outputs(result: dict, data: Path, python: Path, chosen: argparse.Namespace) -> Report:
    """Compare each recipe with its source, and with wrong ones; existing results are not computed again."""
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
    """Return the recipes that are in `output`; end the program if they were compared with other settings."""
    known = report.begun(output, result, ("data", "images", "seed", "requirements", "exchanges"))
    return known["recipes"] | known["wrong"] if known else {}


def main() -> int:
    """Measure and report; return 1 if a result is not as expected and targets are required."""
    chosen = parse_arguments()
    datasets.ensure_known(chosen.data, Path(sys.executable).parent / "foreload")
    data = datasets.part(chosen.data, chosen.images, chosen.envs / "scratch")
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
    report.deliver(result, text, chosen)
    return options.exit_code(chosen, False, not met)


if __name__ == "__main__":
    sys.exit(main())
