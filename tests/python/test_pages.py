"""README.md and docs/: their commands and programs are run, one after another for each page, on small datasets.

`make thorough` runs the programs of all pages; other targets and CI run those of `EACH_TIME`. Blocks marked `theirs`
belong to other loaders, and run if those are installed. Each block runs in the first environment that has its imports:
this one, or one below `.envs` that tests and benchmarks have made; `make test-frameworks` makes one with torchvision,
DALI, WebDataset and `datasets`. The blocks of FFCV and MosaicML Streaming are skipped until `python
benches/harness/environments.py ffcv streaming` has made their environments.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import frameworks
import numpy as np
import pytest
import shards
from conftest import ONLY_THOROUGH
from frameworks import environments
from PIL import Image

DOCS = frameworks.ROOT / "docs"
PAGES = [frameworks.ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEXTS = [*PAGES, *(frameworks.ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"))]
REQUIRED = os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1"
OPTIONAL = {"ffcv", "streaming"}
"""Environments that `make test-frameworks` does not make, with the names of their modules."""
ENVIRONMENTS = ("frameworks", *sorted(OPTIONAL)) if REQUIRED else ()
EACH_TIME = ("README", "first-training", "streams")
"""The pages whose programs run for every change; `make thorough` runs those of all pages."""
TIMEOUT = 250
"""The time limit of a block in seconds: some make hundreds of photographs, while other tests use the other cores."""

pytestmark = pytest.mark.timeout(TIMEOUT + 50)

# Replacements for the reader's own code.
PRELUDE = """
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
steps = 0
saved = None
def step(images, labels):
    global steps
    steps += 1
    assert tuple(images.shape) == (len(labels), 3, 224, 224), images.shape
    assert 0.1 < float(images.float().std()) < 10
class model:
    state_dict = dict
"""
STEPPED = "\nassert steps > 0, 'no step was made'\n"

SMALLER = {
    # Absolute paths belong to the reader's machine.
    r"(?<=[\s\"])/(?=(pfs|nvme)/)": "",
    # So does a directory that grows.
    r"(?<=\")incoming(?=\")": "data/train",
    # Slow steps and large sizes are reduced here.
    r"\b90\b": "2",
    r"width >= 512\b": "width >= 32",
    r"synth data/try --images 4000\b": "synth data/made --images 40",
    r"\b800GB\b": "80MB",
    r"(?<=Ram\(\")20GB": "20MB",
    r"(?<=\"image_size\": )224\b": "32",
}
"""Replacements in the text of a block before it runs."""


class Block(NamedTuple):
    """A block of code of a page."""

    page: Path
    kind: str
    """The language and mark of the block."""
    name: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return all parts of a page, in its order."""
    found, heading = [], page.stem
    for part in re.split(r"^(## [^\n]*|```.*?^```)$", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        if part.startswith("## "):
            heading = part[3:]
        elif part.startswith("```"):
            kind, text = part.removesuffix("```")[3:].split("\n", 1)
            found.append(Block(page, kind, f"{page.stem}, {len(found)}: {heading}, {kind}", text))
    return found


BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = [block for block in BLOCKS if block.kind.split()[0] in ("sh", "python")]


def lay_out(folder: Path) -> None:
    """Make the datasets that pages mention, except those that their own commands make."""
    rng = np.random.default_rng(0)
    for number in range(600):
        path = folder / f"data/train/{('cat', 'dog', 'rare')[number % 3]}/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)).resize((80, 60)).save(path)
    for copy in (
        "data/val",
        "data/try",
        "data/food-101/images",
        "data/real",
        "data/rendered",
        "pfs/imagenet/train",
    ):
        shutil.copytree(folder / "data/train", folder / copy, copy_function=os.link)
    shutil.copytree(folder / "data/train/cat", folder / "data/flat", copy_function=os.link)
    for place in ("scenes", "coco"):
        shutil.copytree(folder / "data/train/cat", folder / f"data/{place}/images", copy_function=os.link)
    names = [path.name for path in sorted((folder / "data/flat").iterdir())]
    (folder / "data/scenes/masks").mkdir()
    for name in names:
        Image.new("L", (80, 60), 1).save(folder / "data/scenes/masks" / name.replace(".jpg", ".png"))
    annotations = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "annotations": [
            {"id": number, "image_id": number, "bbox": [9, 8, 30, 40], "category_id": 1}
            for number in range(150)
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (folder / "data/coco/annotations.json").write_text(json.dumps(annotations))
    photos = sorted((folder / "data/train").rglob("*.jpg"))
    rows = [f"train/{path.parent.name}/{path.name},{path.parent.name}\n" for path in photos]
    (folder / "data/photos.csv").write_text("".join(["filename,label\n", *rows]))
    shutil.copytree(frameworks.ROOT / "tests/fixtures/mds/all/files", folder / "data/mds")
    shards.make(folder / "data/segmented", 32, 2, shards.sample)
    shards.make(folder / "data/pairs", 32, 2, shards.pair)
    listed = folder / "data/food-101/meta/train.txt"
    listed.parent.mkdir()
    listed.write_text("".join(f"cat/{number}\n" for number in range(0, 600, 3)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A folder for all blocks of a page, with the program in its `bin`."""

    @functools.cache
    def make(page: Path) -> Path:
        folder = tmp_path_factory.mktemp(page.stem)
        program = folder / "bin" / "foreload"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m foreload "$@"\n')
        program.chmod(0o755)
        if "foreload synth data/train" not in page.read_text():
            lay_out(folder)
        # A dataset as on the Hugging Face hub.
        shutil.copytree(frameworks.ROOT / "tests/fixtures/snapshot/splits/files", folder / "data/hub")
        return folder

    return make


def imports(program: str) -> tuple[str, ...]:
    """Return the modules that a program imports."""
    names = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    needed = {"foreload": "numpy", "foreload.torch": "torch", "foreload.dali": "nvidia.dali"}
    return tuple(sorted({needed.get(name, name) for name in names}))


@functools.cache
def interpreter(modules: tuple[str, ...]) -> str | None:
    """Return the first Python that can import all of these and NumPy, and whose torch works with DALI's iterators."""
    proof = f"import {', '.join(('numpy', *modules))}"
    if "nvidia.dali.plugin.pytorch" in modules:
        proof += "; import torch; assert int(torch.__version__.split('.')[0]) >= 2"
    for python in (sys.executable, *map(environments.python_of, ENVIRONMENTS)):
        command = [str(python), "-c", proof]
        if Path(python).exists() and subprocess.run(command, capture_output=True).returncode == 0:
            return str(python)
    return None


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=block.name, marks=() if block.page.stem in EACH_TIME else ONLY_THOROUGH)
        for block in RUN
    ],
)
def test_block(place: Callable[[Path], Path], block: Block) -> None:
    kind, text = block.kind, block.text
    for pattern, smaller in SMALLER.items():
        text = re.sub(pattern, smaller, text)
    if kind == "sh":
        command = ["sh", "-ec", text]
    else:
        modules = imports(text)
        python = interpreter(modules)
        if python is None:
            missing = f"no environment has all of {', '.join(modules)}"
            others = sorted(OPTIONAL & {module.split(".")[0] for module in modules})
            if REQUIRED and not others:
                pytest.fail(missing)
            make = [f"`python benches/harness/environments.py {name}`, then " for name in others]
            pytest.skip(f"{missing}: {''.join(make)}`make thorough` runs it")
        # Our programs must reach a second epoch; for programs of other loaders, one epoch is enough.
        epochs = 1 if kind.endswith("theirs") else 2
        stepped = STEPPED if re.search(r"(?<!\.)\bstep\(", text) else ""
        command = [python, "-c", f"EPOCHS = {epochs}\n{PRELUDE}{text}{stepped}"]
    folder = place(block.page)
    done = subprocess.run(
        command,
        cwd=folder,
        env=frameworks.environment(PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_understood(page: Path) -> None:
    found = [block.kind for block in BLOCKS if block.page == page]
    assert set(found) <= {"sh", "python", "python theirs", "yaml"}
    assert page.read_text().count("```") == 2 * len(found)
    # Blocks that do not run must at least be valid programs.
    for block in BLOCKS:
        if block.page == page and block.kind.startswith("python"):
            ast.parse(block.text)


def test_what_the_pages_are_to_show() -> None:
    count = {page.stem: sum(b.kind == "python" for b in BLOCKS if b.page == page) for page in PAGES}
    assert count["README"] >= 2
    assert count["migrating"] >= 8
    assert len((frameworks.ROOT / "README.md").read_text().splitlines()) <= 120


def anchors(page: Path) -> set[str]:
    """Return the link targets of a page: its headings."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"^ +- [^:]+: ([a-z-]+\.md)$", (frameworks.ROOT / "mkdocs.yml").read_text(), re.M)
    made = ["changelog.md", "cli.md"]  # The site makes these two pages.
    assert sorted(listed) == sorted([*made, *(page.name for page in PAGES[1:])])
