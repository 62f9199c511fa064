"""Whether two ways to make random images from the same photographs have the same distribution: an exact test.

If they have, the results for each photograph can be exchanged between the two ways: this does not change the
probability. So the statistic of the real assignment is one of those of random exchanges, all equally likely, and its
rank among them is uniform for any distribution (a permutation test of paired samples; Hoeffding 1952).
"""

from __future__ import annotations

import itertools

import numpy as np

COMPONENTS = 16
"""The leading components of features whose products are compared."""
LEAST = 1e-7
"""The share of the largest variance below which a direction is only rounding noise."""
BLOCK = 1000
FEW, USUAL = 2000, 0.02
"""After this many exchanges, a p-value of at least `USUAL` is known well enough."""


def differences(ours: np.ndarray, theirs: np.ndarray) -> dict[str, np.ndarray]:
    """Return for each photograph the differences of statistics, (photographs, dimensions) each.

    Both arguments are features (photographs, 2, dimensions), of two draws for each photograph. The statistics are:

    - their mean;
    - their covariance, as products of the leading components' distances from the mean of all;
    - the variance of each feature given the photograph, as the square of the distance between both draws;
    - the covariance given the photograph.

    Components, and the mean of all, do not depend on the assignment, so exchanges do not change them.
    """
    middle = np.concatenate([ours, theirs]).mean(axis=(0, 1))
    apart = [np.diff(features, axis=1) / np.sqrt(2) for features in (ours, theirs)]
    return {
        "mean": ours.mean(1) - theirs.mean(1),
        "covariance": _of_products(ours - middle, theirs - middle),
        "variance by image": (apart[0] ** 2 - apart[1] ** 2).mean(1),
        "covariance by image": _of_products(*apart),
    }


def _of_products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    all_ = np.concatenate([one, other]).reshape(-1, one.shape[-1])
    deviations = all_.std(axis=0)
    scale = np.divide(1, deviations, out=np.zeros_like(deviations), where=deviations > 0)
    _, components = np.linalg.eigh((all_ * scale).T @ (all_ * scale))
    leading = scale[:, None] * components[:, ::-1][:, :COMPONENTS]
    at = np.triu_indices(leading.shape[1])

    def products(x: np.ndarray) -> np.ndarray:
        x = x @ leading
        return (x[..., at[0]] * x[..., at[1]]).mean(1)

    return products(one) - products(other)


def white(found: np.ndarray) -> np.ndarray:
    """Return differences in coordinates in which all their second moments, which no exchange changes, are one."""
    variances, axes = np.linalg.eigh(found.T @ found / len(found))
    kept = variances > LEAST * variances.max(initial=0)
    return found @ (axes[:, kept] / np.sqrt(variances[kept]))


def p_values(found: dict[str, np.ndarray], exchanges: int, seed: int) -> dict[str, float]:
    """Return for each statistic the probability, over random exchanges, of a mean difference that is at least as large.

    Two measures define "large": Hotelling's T², which is equally sensitive in every direction, and the sum of the
    squares of all dimensions, which is more sensitive to changes of many dimensions at once, such as brightness. Each
    is measured in units of its spread among exchanges, and the larger one is used.

    If a few exchanges show that a statistic is not unusual, it gets no more exchanges.
    """
    random = np.random.default_rng(seed)
    first = _p_values(found, min(exchanges, FEW), random)
    small = {name: found[name] for name, p in first.items() if p < USUAL}
    return first | (_p_values(small, exchanges, random) if exchanges > FEW else {})


def _p_values(found: dict[str, np.ndarray], exchanges: int, random: np.random.Generator) -> dict[str, float]:
    if not found:
        return {}
    parts = []
    for one in found.values():
        deviations = np.sqrt((one**2).mean(0))
        scaled = one[:, deviations > 0] / deviations[deviations > 0]
        parts += [white(scaled), scaled]
    ends = np.cumsum([0, *(part.shape[1] for part in parts)])
    whole = np.concatenate(parts, axis=1).astype(np.float32)

    def measures(signs: np.ndarray) -> np.ndarray:
        sums = (signs @ whole) ** 2
        return np.stack([sums[:, begin:end].sum(1) for begin, end in itertools.pairwise(ends)])

    # The real assignment is one of all assignments.
    of_all = [measures(np.ones((1, len(whole)), np.float32))]
    for begin in range(0, exchanges, BLOCK):
        shape = min(BLOCK, exchanges - begin), len(whole)
        of_all.append(measures(random.integers(0, 2, shape, np.int8).astype(np.float32) * 2 - 1))
    each = np.concatenate(of_all, axis=1).astype(np.float64)
    spread = each.std(axis=1, keepdims=True)
    each = np.divide(
        each - each.mean(axis=1, keepdims=True), spread, out=np.zeros_like(each), where=spread > 0
    )
    larger = each.reshape(len(found), 2, -1).max(axis=1)
    # Rounding must not make the real assignment smaller than itself.
    as_far = (larger >= larger[:, :1] - 1e-4).mean(axis=1)
    return {name: float(share) for name, share in zip(found, as_far, strict=True)}
