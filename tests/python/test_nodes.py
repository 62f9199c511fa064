"""Nodes that share their caches, with faults at random times: bytes stay right, runs end, and everything is counted.

`FORELOAD_NODE_FAULTS=500` makes it a campaign, and `FORELOAD_SEED` repeats a run with its printed seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import warnings

import foreload
import kills
import node_faults
import node_world
import pytest
from conftest import ONLY_ALL

FAULTS = int(os.environ.get("FORELOAD_NODE_FAULTS", "0"))
HAND = 10
"""The number of faults in a run of a campaign."""
MEMORY = 4 << 20
"""The size of a node's tier in memory, if it has one, in bytes."""
SPAN = 4.0
"""The faults start within this many seconds after the nodes have met."""


def run(
    world: node_world.World, names: list[str], before: list[str], jobs: int, filled: bool = False
) -> None:
    """Run a job, or two at once, with these faults; if `filled`, they start after the nodes' caches are filled."""
    for name in before:
        node_faults.before_run(world, name)
    if jobs == 2:
        world.faults["two jobs"] += 1
    setup = node_world.Setup(
        memory_bytes=world.rng.choice([0, 0, MEMORY]), tls=world.rng.choice([False, False, True])
    )
    print(setup, flush=True)
    one = node_world.Run(world, jobs, node_faults.FAULTS, setup)
    done = False
    try:
        begins = sorted((world.rng.uniform(0, SPAN), name) for name in names)
        one.finish(begins, filled=filled)
        done = True
    finally:
        one.close(kill=not done)


def enter(stack: contextlib.ExitStack, *arguments: object) -> node_world.World:
    """Return a world; skip the test if the system refuses one."""
    try:
        return stack.enter_context(node_world.world(*arguments))
    except node_world.namespaces.Refused as refusal:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no nodes: {refusal}")


@ONLY_ALL
@pytest.mark.timeout(120 + 6 * FAULTS)
def test_nodes_that_share_their_caches_survive_whatever_happens_to_them() -> None:
    seed = kills.seed()
    every = list(node_faults.FAULTS)
    with contextlib.ExitStack() as stack:
        world = enter(stack, seed)
        # The reference loader warns of changes that were made on purpose.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", foreload.Warning)
        # Two of the three nodes may die within the same second, and then no samples would come from them.
        run(world, every, ["changed before"], jobs=2, filled=True)
        while world.faults.total() < FAULTS:
            before = [name for name in node_faults.BEFORE if world.rng.random() < 0.4]
            jobs = 1 + (world.rng.random() < 0.2)
            filled = world.rng.random() < 0.5
            run(world, world.rng.choices(every, k=HAND), before, jobs, filled)
            print(world.faults.total(), dict(world.faults), flush=True)
    for what, counts in [("faults", world.faults), ("found", world.found), ("told", world.told)]:
        print(what, json.dumps(dict(sorted(counts.items())), indent=1))
    for wait, where in sorted(world.waits)[:-6:-1]:
        print(f"waited {wait:.2f} s: {where}")
    found = world.found
    assert found["peer hits"] > 0
    assert found["peers fallbacks"] > 0
    assert found["peer unreachable"] + found["peer breaker"] + found["peer timeouts"] > 0


@ONLY_ALL
def test_a_request_that_was_damaged_on_its_way_brings_no_other_samples_bytes() -> None:
    with contextlib.ExitStack() as stack:
        # All files have the same length, so that the length cannot distinguish samples.
        world = enter(stack, 1, range(12_000, 12_001))
        run = node_world.Run(world, 1, node_faults.FAULTS)
        try:
            for _ in range(node_world.NODES):
                node_faults.between(run, world.rng, "misdirect")
            for _ in range(4):
                run.epoch([])
                # Pushed samples are published within a second.
                time.sleep(1)
        finally:
            run.close(kill=True)
