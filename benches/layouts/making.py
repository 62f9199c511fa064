"""Makes the datasets of the comparison: the same images in each layout, written by the layout's own library."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import contest
import environments
import photographs
import report

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Writer:
    """How a layout is written."""

    program: str
    environment: str


def ensure(writer: Writer, source: Path, output: Path, chosen: list[str], envs: Path) -> Path:
    """Write `source` into `output` unless that is there, and return it; a run that was cut short leaves nothing."""
    if output.is_dir():
        return output
    python = environments.ensure(writer.environment, envs)
    report.log(f"writing {output.name}: {writer.program}")
    beside = output.with_name(f"{output.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    command = [python, HERE / "writers" / f"{writer.program}.py", source, beside, *chosen]
    variables = os.environ | {"PYTHONPATH": str(contest.HERE), "HF_HUB_OFFLINE": "1"}
    environments.call([str(word) for word in command], f"{writer.program} failed", variables)
    beside.rename(output)
    return output


def thumbnails(source: Path, count: int, folder: Path, envs: Path) -> Path:
    """Return a folder with `count` images of 16 by 16 pixels in two classes, made of a folder's first images."""
    if folder.is_dir():
        return folder
    python = environments.ensure("huggingface", envs)
    beside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    code = "import sys; from PIL import Image; Image.open(sys.argv[1]).resize((16, 16)).save(sys.argv[2])"
    for number, path in enumerate(photographs.jpegs(source)[:count]):
        made = beside / f"class_{number % 2}" / f"{number:03}.jpg"
        made.parent.mkdir(parents=True, exist_ok=True)
        environments.call([str(python), "-c", code, str(path), str(made)], "no thumbnail")
    beside.rename(folder)
    return folder


def repeated(shard: Path, count: int, folder: Path) -> Path:
    """Return a folder in which the one shard of a folder lies under `count` names, as links to the same bytes."""
    if folder.is_dir():
        return folder
    beside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    (source,) = (path for path in shard.iterdir() if path.name != "index.json")
    names = [f"shard-{number:05}{source.suffix}" for number in range(count)]
    for name in names:
        os.link(source, beside / name)
    index = shard / "index.json"
    if index.is_file():
        told = json.loads(index.read_text())
        (only,) = told["shards"]
        told["shards"] = [only | {"raw_data": only["raw_data"] | {"basename": name}} for name in names]
        (beside / "index.json").write_text(json.dumps(told))
    beside.rename(folder)
    return folder
