"""Processes of one job that each determine that they are rank 0 of 1 are warned of each other; others are not."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import foreload
import pytest
from foreload import _alone, _ranks
from job import Process

JOB = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}


def asked(*datasets: str) -> list[str | None]:
    """For each dataset, ask for other processes that read it as their only rank."""
    return [_alone.others(dataset) for dataset in datasets]


def forked(dataset: str) -> tuple[str | None, str | None, int]:
    """Ask in this process and then in one that is forked from it."""
    first = _alone.others(dataset)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(_alone.others(dataset)).encode())
        os._exit(0)
    return first, os.read(reading, 1000).decode(), os.getpid()


def test_the_second_process_is_told_of_the_first() -> None:
    first = Process(asked, "a", "a", "b", variables=JOB)
    assert _result_of(first) == [None, None, None]
    others = [
        (JOB, ["a"], [True]),
        (JOB, ["b", "c", "c"], [True, False, False]),
        (JOB | {"SLURM_STEP_ID": "4"}, ["a"], [False]),
        (JOB | {"SLURM_JOB_ID": "78"}, ["a"], [False]),
        ({}, ["a"], [False]),
        (JOB | {"MASTER_ADDR": "node", "MASTER_PORT": "1"}, ["a"], [False]),
    ]
    for variables, datasets, told in others:
        answers = Process(asked, *datasets, variables=variables).result()
        assert [answer is not None for answer in answers] == told, variables
        for answer in filter(None, answers):
            assert f"process {first.pid} of the same job (SLURM_JOB_ID=77 SLURM_STEP_ID=3) reads" in answer
    # The kernel frees the name when the process is dead.
    first.kill()
    assert Process(asked, "a", variables=JOB).result() == [None]


def _result_of(process: Process) -> object:
    """Return the result of a process, which stays alive."""
    assert process._answer.poll(60)
    return process._answer.recv()


def test_a_forked_process_is_another() -> None:
    first, second, parent = Process(forked, "a", variables=JOB).result()
    assert first is None
    assert f"process {parent} of the same job" in second


def test_processes_in_turn_are_none_beside_each_other() -> None:
    for _ in range(5):
        assert Process(asked, "a", variables=JOB).result() == [None]


def test_pods_of_an_indexed_job() -> None:
    assert Process(asked, "a", variables={"JOB_COMPLETION_INDEX": "0"}).result() == [None]
    (answer,) = Process(asked, "a", variables={"JOB_COMPLETION_INDEX": "2"}).result()
    assert "JOB_COMPLETION_INDEX=2 says that there are other pods" in answer


def warnings_of_a_loader(dataset: Path, index: str, settings: dict[str, int]) -> list[str]:
    """Iterate a training and a validation loader twice, and return the warnings."""
    os.environ["FORELOAD_INDEX_DIR"] = index
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train = foreload.ImageLoader(dataset, batch_size=10, image_size=16, **settings)
        validation = foreload.ImageLoader(dataset, batch_size=10, image_size=16, train=False, **settings)
        for loader in (train, validation, train):
            assert len([batch.step for batch in loader]) == 6
    return [str(one.message) for one in caught if "rank" in str(one.message)]


@pytest.mark.parametrize("settings", [{}, {"rank": 0, "world_size": 1}], ids=["unsaid", "said"])
def test_a_loader_warns_once(settings: dict[str, int], dataset: Path) -> None:
    index = os.environ["FORELOAD_INDEX_DIR"]
    first = Process(warnings_of_a_loader, dataset, index, settings, variables=JOB)
    assert _result_of(first) == []
    second = Process(warnings_of_a_loader, dataset, index, settings, variables=JOB).result()
    if settings:
        assert second == []
    else:
        assert len(second) == 1, second
        (warning,) = second
        assert warning.startswith(f"process {first.pid} of the same job")
        assert "pass rank= and world_size=" in warning
    first.kill()


def test_what_a_framework_says_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ranks._alone, "others", lambda _: pytest.fail("this rank is known to be alone"))
    monkeypatch.setattr(_ranks._places, "live", lambda: [_ranks.Place(0, 1, "Ray Train")])
    assert _ranks.resolve(None, None, "dataset") == (0, 1)
