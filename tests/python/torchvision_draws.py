"""The draws of torchvision's and timm's transforms, recorded as the calls that they make, and Foreload's draws."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from foreload import transforms as T
from foreload._core import drawn_operations

Call = tuple[str, dict[str, Any]]
"""A function's name and its numeric parameters."""

LEAST = 2e-8
"""The smallest p-value that passes: by chance, one statistic in 50 million is smaller."""


def of_timm(module: str) -> Any:
    """Return a module of timm; without timm the test is skipped, or fails if frameworks are required."""
    if os.environ.get("FORELOAD_REQUIRE_FRAMEWORKS") == "1":
        return importlib.import_module(module)
    return pytest.importorskip(module, reason="timm is not installed; make test-frameworks has it")


def ours(transforms: list[T.Transform], size: tuple[int, int], count: int, seed: int) -> list[list[Call]]:
    """Return the calls that Foreload draws for `count` samples of `size`, (height, width)."""
    height, width = size
    drawn = json.loads(drawn_operations(T.to_json(transforms), width, height, count, seed))
    return [
        [_call(dict(op)) for op in [*ops, *({"op": "erase", **e} for e in erasures)]]
        for ops, erasures in drawn
    ]


def _call(parameters: dict[str, Any]) -> Call:
    name = parameters.pop("op")
    return name, parameters


@contextmanager
def recording(calls: list[Call]) -> Iterator[None]:
    """Record the calls of torchvision's v2 transforms instead of executing them."""
    import torch
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import _auto_augment, functional

    class Recorder:
        """Replaces the functions of torchvision's policies."""

        def __getattr__(self, name: str) -> Any:
            def record(image: Any, **parameters: Any) -> Any:
                calls.append((name, parameters))
                return image

            return record

    def call_kernel(self: Any, function: Any, image: Any, *args: Any, **parameters: Any) -> Any:
        name = function.__name__
        if name == "gaussian_blur":
            parameters["kernel_size"] = args[0]
        elif name == "permute_channels" and args:
            parameters["permutation"] = args[0]
        calls.append((name, {name: _plain(value) for name, value in parameters.items()}))
        return image

    def _plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, torch.Tensor) and value.numel() < 9 else value

    kept = v2.Transform._call_kernel, _auto_augment.F
    v2.Transform._call_kernel, _auto_augment.F = call_kernel, Recorder()
    try:
        yield
    finally:
        v2.Transform._call_kernel, _auto_augment.F = kept
    assert functional is kept[1]


def theirs(transform: Any, size: tuple[int, int], count: int, seed: int) -> list[list[Call]]:
    """Return the calls that a transform of torchvision's makes for `count` images of `size`, (height, width)."""
    import torch

    torch.manual_seed(seed)
    image, found, calls = torch.zeros(3, *size, dtype=torch.uint8), [], []
    with recording(calls):
        for _ in range(count):
            transform(image)
            found.append(calls.copy())
            calls.clear()
    return found


def check_same_distribution(
    one: list[list[Call]], other: list[list[Call]], names: tuple[str, ...] = ()
) -> None:
    """Check that two samples of calls come from one distribution, by their sequence and by each parameter.

    Only parameters that both have, or those in `names`, are compared: with the two-sample Kolmogorov-Smirnov test if
    there are many values, with chi-squared if there are few.
    """
    check_shares(
        [tuple(name for name, _ in calls) for calls in one],
        [tuple(name for name, _ in calls) for calls in other],
    )
    first, second = _parameters(one), _parameters(other)
    assert set(names) <= {name for _, name in first.keys() & second.keys()}, (first.keys(), second.keys())
    for key in first.keys() & second.keys():
        check_values(first[key], second[key], str(key))


def _parameters(found: list[list[Call]]) -> dict[tuple[str, str], list[float]]:
    values: dict[tuple[str, str], list[float]] = {}
    for calls in found:
        for function, parameters in calls:
            for name, value in parameters.items():
                listed = value if isinstance(value, list | tuple) else [value]
                for at, number in enumerate(listed):
                    if isinstance(number, int | float) and not isinstance(number, bool):
                        values.setdefault((function, f"{name}[{at}]"), []).append(float(number))
    return values


def check_values(one: list[float], other: list[float], what: str) -> None:
    """Check that two samples of numbers come from one distribution."""
    kinds = {f"{value:.5g}" for value in one}
    if len(kinds) <= 100:
        check_shares([f"{value + 0.0:.5g}" for value in one], [f"{value + 0.0:.5g}" for value in other], what)
        return
    both = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (one, other)]
    farthest = np.abs(shares[0] - shares[1]).max()
    # The asymptotic distribution of Kolmogorov: P(D > d) <= 2 exp(-2 d^2 n m / (n + m)).
    p = min(1.0, 2 * math.exp(-2 * farthest**2 / (1 / len(one) + 1 / len(other))))
    check_p(p, f"{what}: distribution functions differ by {farthest:.4f}, {len(one)} and {len(other)} values")


def check_shares(one: list[Any], other: list[Any], what: str = "calls") -> None:
    """Check with chi-squared that two samples have each kind equally often; rare kinds are counted together."""
    counts = Counter(one), Counter(other)
    kinds = sorted(counts[0].keys() | counts[1].keys(), key=str)
    table = np.array([[count[kind] for kind in kinds] for count in counts], float)
    rare = table.sum(axis=0) < 20
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic, freedom = ((table - expected) ** 2 / expected).sum(), table.shape[1] - 1
    if freedom == 0:
        return
    # Wilson and Hilferty's normal approximation.
    spread = 2 / (9 * freedom)
    sigmas = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    p = math.erfc(sigmas / math.sqrt(2)) / 2
    check_p(p, f"{what}: chi-squared {statistic:.1f} of {freedom}: {kinds[:8]}")


def check_p(p: float, what: str) -> None:
    """Check that a p-value is not too small; print it (visible with `pytest -s`)."""
    print(f"p = {p:.2g}, {what}")
    assert p >= LEAST, f"p = {p:.2g}, {what}"
