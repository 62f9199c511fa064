"""A program for Ray: workers of Ray Train without a torch backend, then actors, act as ranks as in meeting.py.

    python ray_meeting.py DATA NOTES

One worker of the first attempt dies, so that Ray Train starts all of them again.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

sys.path.insert(0, str(Path(__file__).parent))
import meeting

data, notes = sys.argv[1:]


def worker() -> None:
    """Meet in the first attempt until rank 1 dies, and again in the second."""
    from foreload import _exchange, _ranks

    rank, world_size = _ranks.resolve(None, None)
    _exchange.meet("attempts", b"", rank=rank, world_size=world_size, timeout=60)
    died = Path(notes) / "died"
    if rank == 1 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    folder = Path(notes) / "train"
    folder.mkdir(exist_ok=True)
    meeting.note(data, str(folder))


@ray.remote(num_cpus=1)
class Actor:
    """A process that was not given a rank."""

    def alone(self, dataset: str) -> list[str]:
        """Return the warnings when it asks for its rank."""
        import warnings

        from foreload import _ranks

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert _ranks.resolve(None, None, dataset) == (0, 1)
            assert _ranks.local_world_size(None) is None
        return [str(one.message) for one in caught]

    def meet(self, rank: int) -> tuple[int, list[bytes]]:
        """Meet the other actor, with ranks that the program assigns."""
        from foreload import _exchange

        met = _exchange.meet("actors", bytes([rank]), rank=rank, world_size=2, timeout=60)
        return met.node, met.payloads


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    actors = [Actor.remote() for _ in range(2)]
    said = [warning for one in actors for warning in ray.get(one.alone.remote("dataset"))]
    assert len(said) == 1, said
    assert "of the same job (Ray's job" in said[0], said
    for _ in range(2):
        met = ray.get([one.meet.remote(rank) for rank, one in enumerate(actors)])
        assert met == [(0, [b"\0", b"\1"])] * 2, met
    # Free the actors' processors for the workers.
    for one in actors:
        ray.kill(one)
    settings = RunConfig(failure_config=FailureConfig(max_failures=1), storage_path=f"{notes}/storage")
    DataParallelTrainer(worker, scaling_config=ScalingConfig(num_workers=2), run_config=settings).fit()
    (Path(notes) / "done").touch()
