"""Workers of torchrun die by SIGKILL repeatedly: the model is trained on every sample of every epoch exactly once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from pathlib import Path

import foreload
import frameworks
import kills
import numpy as np
import pytest
from conftest import THOROUGH

KILLS = int(os.environ.get("FORELOAD_KILLS", "3" if THOROUGH else "1"))
WORLD_SIZES = (2, 1, 4, 2, 2)
"""The numbers of ranks of consecutive lives, repeated."""
MOST_STEPS = 12
"""The most steps before the one in which a rank dies."""
GLOBAL_BATCH = 4
STEPS = 15

Note = tuple[int, int]
"""An epoch and a step."""


def live(
    world_size: int, data: Path, folder: Path, epochs: int, death: list[str]
) -> tuple[int, dict[Note, list[int]]]:
    """Run one life of the training; return its exit code, and the samples of each started step, ordered by rank."""
    notes = folder / "notes"
    notes.mkdir(exist_ok=True)
    for old in notes.iterdir():
        old.unlink()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
    program = [Path(__file__).with_name("killed_training.py"), data, folder / "checkpoint", notes, epochs]
    done = subprocess.run(
        list(map(str, [frameworks.interpreter(), *torchrun, *program, *death])),
        cwd=folder,
        env=frameworks.environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )
    if death:
        # torchrun names the signal; any other message is another kind of failure.
        assert f"Signal {signal.SIGKILL.value}" in done.stderr, done.stderr
    elif done.returncode:
        # The cause of another end is printed before torchrun's message.
        print(done.stderr)
    steps: dict[Note, list[int]] = {}
    for file in sorted(notes.glob("[0-9]")):
        # The last line may be incomplete.
        for line in file.read_text().split("\n")[:-1]:
            note = json.loads(line)
            steps.setdefault((note["epoch"], note["step"]), []).extend(note["ids"])
    return done.returncode, steps


@pytest.mark.timeout(200 + 60 * KILLS)
def test_every_sample_once(dataset: Path, tmp_path: Path) -> None:
    rng = random.Random(kills.seed())
    epochs = 2 + MOST_STEPS * KILLS // STEPS
    trained: dict[Note, list[int]] = {}
    world_sizes = itertools.cycle(WORLD_SIZES)
    for life in range(KILLS + 1):
        world_size = next(world_sizes)
        victim = [rng.randrange(world_size), rng.randint(1, MOST_STEPS), rng.uniform(0, 0.02)]
        death = list(map(str, victim)) if life < KILLS else []
        code, steps = live(world_size, dataset, tmp_path, epochs, death)
        assert (code == 0) == (not death), f"life {life}"
        # Steps of earlier lives after the state with which this life began are not in its model.
        begin = min(steps, default=(epochs, 0))
        for note in [note for note in trained if note >= begin]:
            del trained[note]
        trained |= steps

    # The model that results from all these lives.
    assert json.loads((tmp_path / "notes" / "trained").read_text()) == [[1] * 60] * epochs

    loader = foreload.ImageLoader(dataset, batch_size=GLOBAL_BATCH, image_size=16, seed=7)
    for epoch in range(epochs):
        steps = {step: ids for (of, step), ids in trained.items() if of == epoch}
        assert sorted(i for ids in steps.values() for i in ids) == list(range(60))
        # The samples come exactly once, and in the order of a process that is never killed.
        expected = [np.from_dlpack(batch.sample_ids).tolist() for batch in loader.batches(epoch)]
        assert [steps[step] for step in range(STEPS)] == expected
