"""A rank of a job of any launcher: it meets the others three times, reads its part of an epoch, and records both.

    python meeting.py FRAMEWORK DATA NOTES [DIRECTORY]

FRAMEWORK is initialised first: `none`, `torch`, `mpi`, `jax=COORDINATOR,PROCESSES,PROCESS`, or `dies`. With `dies`
nothing is initialised, and rank 1 of the first attempt dies by SIGKILL in the middle. All ranks share DIRECTORY.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import foreload
import numpy as np
from foreload import _exchange, _listen, _ranks

MEETINGS = ("train", "validation", "train")


def note(data: str, notes: str, directory: str | None = None, *, dies: bool = False) -> None:
    """Meet and read; write a JSON file named after the rank."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", foreload.Warning)
        rank, world_size = _ranks.resolve(None, None)
        meetings = []
        for number, purpose in enumerate(MEETINGS):
            if dies and number == 1 and rank == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            payload = f"{purpose} {number} {rank}".encode() * rank
            settings = {"rank": rank, "world_size": world_size, "directory": directory, "timeout": 60}
            meeting = _exchange.meet(purpose, payload, **settings)
            expected = [f"{purpose} {number} {giver}".encode() * giver for giver in range(world_size)]
            assert meeting.payloads == expected, meeting
            meetings.append(asdict(meeting) | {"payloads": len(expected), "token": meeting.token.hex()})
        try:
            listening: list[str] = [_listen.listen_address().address, _listen.listen_address().reason]
        except foreload.ConfigError as refused:
            listening = ["", str(refused)]
        loader = foreload.ImageLoader(
            data, batch_size=12 // world_size, image_size=16, seed=4, progress=False, device="cpu"
        )
        ids = [np.from_dlpack(batch.sample_ids).tolist() for batch in loader]
    told = {
        "rank": rank,
        "world_size": world_size,
        "local_world_size": _ranks.local_world_size(None),
        "meetings": meetings,
        "listening": listening,
        "ids": ids,
        "warnings": [str(one.message) for one in caught if "rank" in str(one.message)],
        "backend": backend_of_jax(),
    }
    path = Path(notes) / f"{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(told))
    path.with_suffix(".new").rename(path)


def backend_of_jax() -> bool:
    """Return whether JAX has taken its devices."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def main(framework: str, *arguments: str) -> None:
    """Initialise the framework, and act as a rank."""
    if framework == "torch":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
    elif framework == "mpi":
        from mpi4py import MPI

        assert MPI.Is_initialized()
    elif framework.startswith("jax="):
        import jax

        coordinator, processes, process = framework.removeprefix("jax=").split(",")
        jax.distributed.initialize(coordinator, int(processes), int(process))
    note(*arguments, dies=framework == "dies")
    if framework == "torch":
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
