"""Each example with the real frameworks: if it is killed and started again, the result is the same as in one run."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import frameworks
import kills
import numpy as np
import pytest
from conftest import ONLY_THOROUGH
from PIL import Image

# Each test starts several processes, and torch is slow to load if it was not read recently.
pytestmark = pytest.mark.timeout(400)

STEPS = 7
"""The steps of an epoch: 60 samples, 8 a step, the last 4 dropped."""
EPOCHS = 3
BY_MPIRUN = ("mpi_allreduce", "jax_processes")
"""The examples that MPI starts; torchrun starts the others."""
MORE_ARGUMENTS = {"peers_torchrun": ["cache"]}
"""The arguments of an example in addition to dataset and checkpoint: directories, separate for each run."""
KILLED_AT = 17
"""The last batch before the kill. By then, states were saved after the 5th and the 12th step, and not later."""


class Run(NamedTuple):
    """The output and the batches of one run of an example."""

    code: int
    losses: list[str]
    """The losses, as printed."""
    batches: list[list[dict]]
    """The batches that Foreload delivered, by rank."""
    said: str


class Example:
    """An example that runs in a process."""

    def __init__(
        self, name: str, data: Path, folder: Path, checkpoint: str, ranks: int = 0, death: str = "-"
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._notes = folder / "notes"
        self._notes.mkdir()
        python = frameworks.interpreter()
        launcher = [str(python)]
        if name in BY_MPIRUN:
            launcher = [str(python.with_name("mpiexec")), "-n", str(ranks), str(python)]
        elif ranks:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        watched = [str(Path(__file__).with_name("watched.py")), str(self._notes), death]
        program = [str(frameworks.EXAMPLES / f"{name}.py"), str(data), checkpoint]
        program += MORE_ARGUMENTS.get(name, [])
        settings = {"cwd": folder, "env": frameworks.environment(), "text": True}
        settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = kills.begin(*launcher, *watched, *program, **settings)

    def end(self) -> Run:
        """Wait for the process."""
        said, _ = self._process.communicate(timeout=180)
        files = sorted(self._notes.iterdir(), key=lambda path: int(path.name))
        notes = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        # At the end of an epoch DALI reads ahead into the next one, even if there is none.
        batches = [[note for note in rank if note["epoch"] < EPOCHS] for rank in notes]
        losses = re.findall(r"epoch \d+ loss \d+\.\d+", said)
        return Run(self._process.returncode, losses, batches, said)


@pytest.mark.parametrize(
    ("name", "ranks", "saved"),
    [
        ("numpy_dlpack", 0, 12),
        pytest.param("jax_dlpack", 0, 12, marks=ONLY_THOROUGH),
        pytest.param("ddp", 2, 12, marks=ONLY_THOROUGH),
        pytest.param("peers_torchrun", 2, 12, marks=ONLY_THOROUGH),
        pytest.param("stateful_dataloader", 0, 12, marks=ONLY_THOROUGH),
        pytest.param("lightning_trainer", 0, 15, marks=ONLY_THOROUGH),
        pytest.param("accelerate_trainer", 2, 12, marks=ONLY_THOROUGH),
        pytest.param("mpi_allreduce", 2, 12, marks=ONLY_THOROUGH),
        pytest.param("jax_processes", 2, 12, marks=ONLY_THOROUGH),
        ("dali_decoded", 0, 12),
        pytest.param("dali_encoded", 0, 12, marks=ONLY_THOROUGH),
    ],
)
def test_killed_and_started_again(name: str, ranks: int, saved: int, dataset: Path, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    # The last rank dies, and the others end because of that.
    death = f"{max(ranks, 1) - 1}:{KILLED_AT}"
    both = (
        Example(name, dataset, tmp_path / "whole", str(tmp_path / "unused"), ranks),
        Example(name, dataset, tmp_path / "first", checkpoint, ranks, death),
    )
    whole, first = (example.end() for example in both)
    assert whole.code == 0, whole.said
    assert first.code != 0, first.said
    assert (tmp_path / "checkpoint").exists(), first.said
    alone = alone_from(name, dataset, tmp_path) if ranks else None
    second = Example(name, dataset, tmp_path / "second", checkpoint, ranks).end()
    assert second.code == 0, second.said

    # Every sample of an epoch comes at most once, and all come except those of an incomplete last batch.
    assert len(whole.batches) == max(ranks, 1)
    for epoch in range(EPOCHS):
        ids = [i for rank in whole.batches for note in rank if note["epoch"] == epoch for i in note["ids"]]
        assert len(ids) == len(set(ids)) == 8 * STEPS
    for rank, batches in enumerate(whole.batches):
        assert [(note["epoch"], note["step"]) for note in batches] == [
            (epoch, step) for epoch in range(EPOCHS) for step in range(STEPS)
        ]
        # The bytes are equal: the first run got the first batches, the second run got those after the last saved state.
        assert first.batches[rank] == batches[: len(first.batches[rank])]
        assert second.batches[rank] == batches[saved:]
    assert len(first.batches[-1]) == KILLED_AT

    # The training itself is equal, too: model, optimiser and data were restored to the same state.
    assert len(whole.losses) == EPOCHS * STEPS, whole.said
    assert first.losses == whole.losses[: len(first.losses)]
    assert second.losses == whole.losses[saved:]

    if alone:
        # One process gets the batches of both ranks, step by step.
        third = alone.end()
        assert third.code == 0, third.said
        both_ids = [[i for note in notes for i in note["ids"]] for notes in zip(*whole.batches, strict=True)]
        assert [note["ids"] for note in third.batches[0]] == both_ids[saved:]


def alone_from(name: str, dataset: Path, folder: Path) -> Example:
    """Run the example in one process, from a copy of the checkpoint."""
    checkpoint, copy = folder / "checkpoint", folder / "copy"
    (shutil.copytree if checkpoint.is_dir() else shutil.copy)(checkpoint, copy)
    return Example(name, dataset, folder / "alone", str(copy), ranks=1)


@ONLY_THOROUGH
def test_rehearsal_keeps_what_was_learnt(tmp_path: Path) -> None:
    """The experiment on continual learning, too small to learn much; a slow stream does not make the training wait."""
    words = [frameworks.EXAMPLES / "continual_learning.py", "--each", 300, "--compare", "--slow", 2]
    words += ["--json", tmp_path / "found.json", "--plot", tmp_path / "plot.svg"]
    done = subprocess.run(
        [str(word) for word in (frameworks.interpreter(), *words)],
        cwd=tmp_path,
        env=frameworks.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    # Accuracies of the classes by task. At the end, the first eight classes are from earlier tasks.
    old = {name: statistics.mean(run[-1][:8]) for name, (run,) in found["runs"].items()}
    assert all([len(task) for task in run] == [2, 4, 6, 8, 10] for (run,) in found["runs"].values())
    assert old["without rehearsal"] < 2 < 8 < min(old["with rehearsal"], old["plain reservoir"]), done.stdout
    (fixed, _), (adapted, _) = found["slow"].values()
    assert adapted < fixed / 2, done.stdout
    drawing = ElementTree.parse(tmp_path / "plot.svg")
    assert len(drawing.findall("{http://www.w3.org/2000/svg}polyline")) == 3


def output_of(example: str, *words: object) -> list[tuple[int, float, float]]:
    """Run an example. Returns epoch, loss and a second figure of each line."""
    command = [frameworks.interpreter(), frameworks.EXAMPLES / f"{example}.py", *words]
    done = subprocess.run(
        [str(word) for word in command],
        env=frameworks.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"epoch (\d+) loss ([\d.]+)(?: (?:IoU|accuracy) ([\d.]+))?", done.stdout)
    return [(int(epoch), float(loss), float(other or 0)) for epoch, loss, other in found]


@ONLY_THOROUGH
def test_a_diffusion_model_learns_from_buckets_and_resumes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for number in range(160):
        size = [(64, 64), (96, 48), (48, 96), (24, 24)][number % 4]
        path = tmp_path / "data" / f"class{number % 2}" / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (3, 3, 3), dtype=np.uint8)).resize(size).save(path, quality=95)
    whole = output_of("diffusion_buckets", tmp_path / "data", tmp_path / "whole.pt")
    assert [epoch for epoch, *_ in whole] == [0, 1, 2, 3]
    assert whole[-1][1] < 0.8 * whole[0][1], whole
    command = [frameworks.interpreter(), frameworks.EXAMPLES / "diffusion_buckets.py", tmp_path / "data"]
    first = kills.begin(
        *map(str, command),
        str(tmp_path / "killed.pt"),
        env=frameworks.environment(),
        text=True,
        stdout=subprocess.PIPE,
    )
    assert first.stdout is not None
    losses = [first.stdout.readline() for _ in range(2)]
    # The checkpoint of epoch 0 is complete; that of epoch 1 may be.
    first.kill()
    first.wait()
    rest = output_of("diffusion_buckets", tmp_path / "data", tmp_path / "killed.pt")
    assert whole[-len(rest) :] == rest, losses
    assert len(rest) in (2, 3)


@ONLY_THOROUGH
def test_a_segmentation_model_learns_from_folders(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows, columns = np.mgrid[:64, :64]
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for number in range(96):
        image = rng.integers(0, 90, (64, 64, 3), dtype=np.uint8)
        mask = np.zeros((64, 64), np.uint8)
        for kind in (1, 2):
            (top, left), radius = rng.integers(14, 50, 2), rng.integers(8, 14)
            round_one = (rows - top) ** 2 + (columns - left) ** 2 < radius**2
            square = (abs(rows - top) < radius) & (abs(columns - left) < radius)
            inside = round_one if kind == 1 else square
            image[inside, kind] += 110
            mask[inside] = kind
        Image.fromarray(image).save(tmp_path / "images" / f"{number:03}.jpg", quality=95)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number:03}.png")
    lines = output_of("segmentation_folders", tmp_path)
    assert lines[-1][2] > 0.75, lines


@ONLY_THOROUGH
def test_a_transformer_learns_from_images_of_any_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for number in range(240):
        width, height = rng.integers(24, 65, 2)
        # The classes differ in the direction of their stripes.
        rows, columns = np.mgrid[:height, :width]
        stripes = np.sin((rows if number % 2 else columns) * 0.8 + rng.uniform(0, 6)) * 90 + 128
        image = stripes[..., None] + rng.normal(0, 25, (height, width, 3))
        path = tmp_path / f"class{number % 2}" / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)
    lines = output_of("navit_budgets", tmp_path)
    assert lines[-1][2] > 0.9, lines


LONGER = {"diffusion_buckets": 80, "navit_budgets": 80, "segmentation_folders": 80}
"""The lines of the examples with a model of their own."""


def test_they_are_short() -> None:
    """The examples that show how a framework is used. The experiment on rehearsal is longer."""
    examples = [path for path in frameworks.EXAMPLES.glob("*.py") if path.stem != "continual_learning"]
    assert len(examples) == 18
    for path in examples:
        assert len(path.read_text().splitlines()) < LONGER.get(path.stem, 40), path
