"""benches/arrays: ratios to the libraries, their aims, and the choices of a loader."""

from __future__ import annotations

import argparse
from pathlib import Path

import benchmarks
import pytest

arrays, array_epochs = benchmarks.load("arrays"), benchmarks.load("arrays", "array_epochs")
from harness import report  # noqa: E402
from harness.environments import Unavailable  # noqa: E402
from harness.rounds import Standing  # noqa: E402

CLIMATE = arrays.WORKLOADS["climate"]


def standing(cpu_seconds: float, seconds: float = 1.0, waiting: float = 0.0) -> Standing:
    """A run of 1 000 samples that took this much time."""
    run = {"images": 1000, "seconds": seconds, "cpu_seconds": cpu_seconds, "waiting": [waiting]}
    return Standing([run])


class Bench:
    """A benchmark whose measurements are given."""

    def __init__(self, standings: dict[str, Standing]) -> None:
        self.standings = standings
        self.chosen = argparse.Namespace(workloads=["climate"])

    def folder(self, name: str, workload: object) -> Path:
        """Return a folder that is not opened."""
        return Path(name)

    def hold(
        self, folder: Path, workload: object, variants: dict[str, str], *swept: Path
    ) -> dict[str, Standing]:
        """Return the measurements."""
        return self.standings


def test_ratios_are_those_of_medians() -> None:
    row, cpu, speed = arrays.compared(CLIMATE, {"foreload": standing(2), "library": standing(5, 3)})
    assert (cpu, speed) == (pytest.approx(2.5), pytest.approx(3))
    assert row == ["climate, HDF5, h5py", "56.62", "2.00", "5.00", "2.50", "1000.0", "333.3", "3.00"]


def test_aims_are_judged() -> None:
    for own, met in ((2, True), (3, False)):
        found = arrays.unfiltered(Bench({"foreload": standing(own), "library": standing(5)}))
        assert [one["met"] for one in found["checks"]] == [met]
    for own, met in ((5.4, True), (5.6, False)):
        found = arrays.codecs(Bench({"foreload": standing(own), "library": standing(5)}))
        assert [one["met"] for one in found["checks"]] == [met] * len(arrays.CODECS)


def test_what_fails_has_a_reason_and_misses_its_aim() -> None:
    held = {"foreload": Standing(failure="no such file"), "library": standing(5)}
    with pytest.raises(Unavailable, match="foreload: no such file"):
        arrays.compared(CLIMATE, held)
    part = arrays.unfiltered(Bench(held))
    assert [one["met"] for one in part["checks"]] == [False]
    settings = {"gigabytes": 2, "files": 256, "threads": 2, "rounds": 3, "epochs": 3, "rates": "open=2ms"}
    result = {"machine": report.machine(), "settings": settings, "parts": {"unfiltered": part}}
    assert "not measured: foreload: no such file" in arrays.as_text(result)


def test_a_variant_is_a_list_of_choices() -> None:
    assert array_epochs.choices_of("cache=/nvme/x,pace=12.5") == {"cache": "/nvme/x", "pace": "12.5"}
    assert array_epochs.choices_of("") == {}
    assert all(
        each.sample_bytes >= arrays.SMALLEST for each in {**arrays.WORKLOADS, **arrays.CODECS}.values()
    )
