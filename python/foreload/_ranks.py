"""Which part of each global batch is this process's: its rank among how many."""

from __future__ import annotations

import os
import sys


def resolve(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return (rank, world size): as given, else of an initialised `torch.distributed`, else of torchrun's variables.

    Asked when an iteration begins, not when a loader is made: the process group may be initialised in between. torch
    is never imported for it.

    Raises:
        foreload.ConfigError: only one of the two is given, or a variable is not a number.
    """
    from foreload import ConfigError

    if (rank is None) != (world_size is None):
        missing = "rank" if rank is None else "world_size"
        raise ConfigError(f"config: {missing}: is missing, rank and world_size must be given together")
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    given = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if None in given:
        return 0, 1
    try:
        return int(given[0]), int(given[1])
    except ValueError:
        message = f"config: rank: RANK={given[0]!r} and WORLD_SIZE={given[1]!r} must be numbers"
        raise ConfigError(message) from None


def local_world_size(given: int | None) -> int | None:
    """Return how many ranks share this node: as given, else of torchrun's variable; None where neither says.

    Raises:
        foreload.ConfigError: the variable is not a number.
    """
    from foreload import ConfigError

    text = os.environ.get("LOCAL_WORLD_SIZE")
    if given is not None or text is None:
        return given
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"config: local_world_size: LOCAL_WORLD_SIZE={text!r} must be a number, at least 1")
    return int(text)
