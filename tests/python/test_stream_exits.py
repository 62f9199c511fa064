"""Programs that end while a thread of a stream calls their iterator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import paths

PROGRAM = """
import queue, sys, time
from foreload import StreamLoader, streams

image = open(sys.argv[1], "rb").read()

def samples():
    for number in range(1 << 40):
        if number >= 16:
            {then}
        yield {{"jpg": image, "cls": number}}

loader = StreamLoader(streams.Iterator(samples(), name="frames"), batch_size=4, image_size=16)
for step, batch in enumerate(loader):
    if step == 2:
        break
"""
"""A training that leaves its loop early. The loader exists until the interpreter clears its module."""


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("time.sleep(0.0005)", id="gives more all the time"),
        pytest.param("while True: time.sleep(0.2)", id="polls"),
        pytest.param("while True: pass", id="computes"),
        pytest.param("queue.Queue().get()", id="waits for ever"),
    ],
)
def test_a_program_ends_while_its_iterator_is_called(dataset: Path, then: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(then=then), str(paths(dataset)[0])]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("if os.fork() == 0: sys.exit(0)\n    os.wait()", id="a forked child"),
        pytest.param(
            "threading.Thread(target=list, args=(loader,), daemon=True).start()\n    time.sleep(0.3)",
            id="a daemon reads",
        ),
    ],
)
def test_others_end_as_quietly(dataset: Path, end: str) -> None:
    text = "import os, threading\n" + PROGRAM.format(then="time.sleep(0.01)")
    text = text[: text.index("for step")] + f"if True:\n    iter(loader)\n    {end}\n"
    program = [sys.executable, "-W", "ignore", "-c", text, str(paths(dataset)[0])]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_that_fails_shows_its_own_error_alone(dataset: Path) -> None:
    text = PROGRAM.format(then="time.sleep(0.0005)").replace(
        "break", "raise ValueError('a loss that is NaN')"
    )
    program = [sys.executable, "-c", text, str(paths(dataset)[0])]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: a loss that is NaN"
    assert done.stderr.count("Traceback") == 1
