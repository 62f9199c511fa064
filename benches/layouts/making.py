"""Makes the datasets of the comparison: the same images in each layout, written by the layout's own library."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from harness import datasets, environments, programs, report

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Writer:
    """A program that writes a layout."""

    program: str
    environment: str


def ensure(writer: Writer, source: Path, output: Path, chosen: list[object], envs: Path) -> Path:
    """Write `source` into `output` if `output` does not exist, and return it."""
    if not output.is_dir():
        python = environments.ensure(writer.environment, envs)
        report.log(f"writing {output.name}: {writer.program}")
        variables = programs.python_path() | {"HF_HUB_OFFLINE": "1"}
        with datasets.whole(output) as new:
            words = [python, HERE / "writers" / f"{writer.program}.py", source, new, *chosen]
            programs.output_of(words, variables, environments.INSTALL_TIMEOUT)
    return output


def thumbnails(source: Path, count: int, folder: Path, envs: Path) -> Path:
    """Return a folder with `count` images of 16 by 16 pixels in two classes, made from a folder's first images."""
    if not folder.is_dir():
        python = environments.ensure("huggingface", envs)
        code = "import sys; from PIL import Image; Image.open(sys.argv[1]).resize((16, 16)).save(sys.argv[2])"
        with datasets.whole(folder) as new:
            for number, path in enumerate(datasets.jpegs(source)[:count]):
                made = new / f"class_{number % 2}" / f"{number:03}.jpg"
                made.parent.mkdir(exist_ok=True)
                programs.output_of([python, "-c", code, path, made])
    return folder


def repeated(shard: Path, count: int, folder: Path) -> Path:
    """Return a folder in which the only shard of another folder has `count` names, as links to the same bytes."""
    if folder.is_dir():
        return folder
    (source,) = (path for path in shard.iterdir() if path.name != "index.json")
    names = [f"shard-{number:05}{source.suffix}" for number in range(count)]
    with datasets.whole(folder) as new:
        for name in names:
            os.link(source, new / name)
        index = shard / "index.json"
        if index.is_file():
            told = json.loads(index.read_text())
            (only,) = told["shards"]
            told["shards"] = [only | {"raw_data": only["raw_data"] | {"basename": name}} for name in names]
            (new / "index.json").write_text(json.dumps(told))
    return folder
