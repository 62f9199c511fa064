"""States and settings that a stream refuses: states that were changed, and settings that make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreload import ConfigError, Rehearsal, StreamLoader
from test_streams import Seekable, load, with_keys


def damage(state: Any, path: str, value: Any) -> Any:
    """Return a copy of a state with one changed value."""
    state = json.loads(json.dumps(state))
    *where, last = path.split(".")
    inner = state
    for name in where:
        inner = inner[int(name) if name.isdigit() else name]
    inner[int(last) if last.isdigit() else last] = value
    return state


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sources.0.unsettled", 2**64 - 1),
        ("sources.0.unsettled", 1000),
        ("sources.0.position", None),
        ("sources", []),
        ("account.received", 0),
        ("account.lost", 2**64 - 1),
        ("account.delivered", 2**63),
        ("step", 2**64 - 1),
        ("used", 2**64 - 1),
        ("taken", -1),
        ("stream_state", 9),
    ],
)
def test_a_state_that_was_changed_is_refused(dataset: Path, path: str, value: Any) -> None:
    loader = with_keys(Seekable(dataset, 50))
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(ConfigError, match=r"state: "):
        with_keys(Seekable(dataset, 50)).load_state_dict(damage(state, path, value))


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("rehearsal.share", lambda: Rehearsal(9, share=float("nan"))),
        ("rehearsal.share", lambda: Rehearsal(9, share="x")),
        ("rehearsal.share", lambda: Rehearsal(9, share=(0.1, 0.2, 0.3))),
        ("rehearsal.half_life", lambda: Rehearsal(9, by="recency", half_life=float("inf"))),
        ("rehearsal.capacity", lambda: Rehearsal(-5)),
        ("rehearsal.capacity", lambda: Rehearsal(2**64)),
        ("rehearsal.capacity", lambda: load([], rehearsal=Rehearsal("18446744073709551615B"))),
        ("rehearsal.by", lambda: Rehearsal(9, by=5)),
        ("rehearsal.keep_states", lambda: Rehearsal(9, keep_states=-1)),
        ("samples_per_insert", lambda: load([], samples_per_insert=2)),
        ("samples_per_insert", lambda: load([], samples_per_insert=(1, float("inf")))),
        ("dry_after", lambda: load([], dry_after=float("nan"))),
        ("policy", lambda: load([], policy=5)),
        ("source", lambda: StreamLoader([])),
    ],
)
def test_absurd_settings_are_named(setting: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config: {setting}: "):
        wrong()
