"""docs/migrating.md: its commands and programs run, one after another, on a generated dataset.

Blocks marked `theirs` are other loaders'; they run where those are installed. Each runs in the first environment that
has what it imports: this one, or for `make test-frameworks` one below `.envs` that tests and benchmarks made. That
makes one with torchvision, DALI and WebDataset; FFCV's and MosaicML Streaming's own blocks are skipped, in CI too,
until somebody has made theirs: `python benches/compare/environments.py ffcv streaming`.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import frameworks
import pytest
from frameworks import environments

PAGE = frameworks.ROOT / "docs" / "migrating.md"
REQUIRED = os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1"
OPTIONAL = {"ffcv", "streaming"}
"""Environments, and the modules they are for, that `make test-frameworks` does not make."""
ENVIRONMENTS = ("frameworks", *sorted(OPTIONAL)) if REQUIRED else ()
TIMEOUT = 100

# What stands for the reader's own.
PRELUDE = """
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
steps = 0
def step(images, labels):
    global steps
    steps += 1
    assert tuple(images.shape) == (len(labels), 3, 224, 224), images.shape
    assert 0.1 < float(images.float().std()) < 10
"""
STEPPED = "\nassert steps > 0, 'no step was made'\n"


def blocks() -> list[tuple[str, str, str]]:
    """(language and mark, heading and number, text) of each block of code."""
    found, heading = [], ""
    for part in re.split(r"^(## [^\n]*|```[^`]*?^```)$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        if part.startswith("## "):
            heading = part[3:]
        elif part.startswith("```"):
            kind, text = part.removesuffix("```")[3:].split("\n", 1)
            found.append((kind, f"{len(found)}: {heading or 'datasets'}, {kind}", text))
    return found


BLOCKS = blocks()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all blocks, and the program on the path of its `bin`."""
    folder = tmp_path_factory.mktemp("migrating")
    program = folder / "bin" / "foreload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m foreload "$@"\n')
    program.chmod(0o755)
    return folder


def imports(program: str) -> tuple[str, ...]:
    """The modules a program imports."""
    names = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    needed = {"foreload.torch": "torch", "foreload.dali": "nvidia.dali"}
    return tuple(sorted({needed.get(name, name) for name in names}))


@functools.cache
def interpreter(modules: tuple[str, ...]) -> str | None:
    """The first Python that can import all of these, and NumPy, with a torch that DALI's iterators can use."""
    proof = f"import numpy, {', '.join(modules)}"
    if "nvidia.dali.plugin.pytorch" in modules:
        proof += "; import torch; assert int(torch.__version__.split('.')[0]) >= 2"
    for python in (sys.executable, *map(environments.python_of, ENVIRONMENTS)):
        command = [str(python), "-c", proof]
        if Path(python).exists() and subprocess.run(command, capture_output=True).returncode == 0:
            return str(python)
    return None


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, _, text in BLOCKS], ids=[at for _, at, _ in BLOCKS]
)
def test_block(place: Path, kind: str, text: str) -> None:
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
            make = [f"`python benches/compare/environments.py {name}`, then " for name in others]
            pytest.skip(f"{missing}: {''.join(make)}`make test-frameworks` runs it")
        # Ours shall meet a second epoch; theirs are only shown to be what they are said to be.
        epochs = 1 if kind.endswith("theirs") else 2
        command = [
            python,
            "-c",
            f"EPOCHS = {epochs}\n" + PRELUDE + text + (STEPPED if "step(" in text else ""),
        ]
    done = subprocess.run(
        command,
        cwd=place,
        env=frameworks.environment(PATH=f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}"


def test_the_page_is_understood() -> None:
    kinds = [kind for kind, _, _ in BLOCKS]
    assert set(kinds) == {"sh", "python", "python theirs"}
    assert kinds.count("python") >= 8
    assert PAGE.read_text().count("```") == 2 * len(BLOCKS)


def test_links_lead_somewhere() -> None:
    page = PAGE.read_text()
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("## ")
    }
    for target in re.findall(r"\]\(([^)]+)\)", page):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert (PAGE.parent / target).exists(), target
