"""Nodes share their caches under real launchers: in later epochs each node reads samples that another node stores.

The nodes are hosts of `job_hosts`, which need root. `make test-frameworks` installs the launchers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO

import foreload
import frameworks
import job_hosts
import pytest
import shared_job
import slurm
from conftest import FIFTH, ONLY_THOROUGH
from job_hosts import Host
from shared_job import Note, Settings

# Each test starts several processes, and torch is slow to load if it was not read recently.
pytestmark = pytest.mark.timeout(300)

PROGRAM = Path(shared_job.__file__)
PATIENCE = 120
"""The time limit of a job in seconds."""
SAMPLES = 60
MOST_READS = SAMPLES // 20
"""The most samples that all ranks together may read from the dataset's storage in an epoch that the caches should
serve.
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Host]]:
    """Two hosts, which end with all their processes. If the system refuses them, the tests are skipped."""
    try:
        with job_hosts.hosts(tmp_path, 2) as made:
            yield made
    except job_hosts.namespaces.Refused as refusal:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no nodes: {refusal}")


def settings(dataset: Path, folder: Path, **more: object) -> str:
    """Return the settings of the ranks: each cache has room for two thirds of the dataset."""
    for name in ("notes", "caches"):
        (folder / name).mkdir()
    size = sum(path.stat().st_size for path in dataset.glob("*/*.jpg"))
    told = Settings(str(dataset), str(folder / "notes"), str(folder / "caches"), 2 * size // 3, **more)
    return json.dumps(asdict(told))


@contextlib.contextmanager
def started(command: list[object], **variables: str) -> Iterator[tuple[subprocess.Popen, IO[str]]]:
    """Start a program, which ends with the context; yield it and its output."""
    with tempfile.TemporaryFile("w+") as said:
        words = list(map(str, command))
        environment = frameworks.environment(**variables)
        process = subprocess.Popen(words, env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield process, said
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(*commands: list[object], **variables: str) -> str:
    """Run programs at the same time until they end successfully; return their output."""
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(started(command, **variables)) for command in commands]
        for process, _ in jobs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        codes = [process.poll() for process, _ in jobs]
        for _, said in jobs:
            said.seek(0)
        text = "\n".join(said.read() for _, said in jobs)
        assert codes == [0] * len(codes), text
        return text


def check(
    folder: Path, dataset: Path, *, ranks: int, local: int | None = 2, first_reads: int = SAMPLES
) -> None:
    """Compare the ranks' notes with the samples that a single process gets."""
    notes = [Note(**json.loads((folder / "notes" / f"{rank}.json").read_text())) for rank in range(ranks)]
    alone = foreload.ImageLoader(dataset, batch_size=12, rank=0, world_size=1, **shared_job.IMAGES)
    for epoch in range(shared_job.EPOCHS):
        expected: dict[int, str] = {}
        for batch in alone:
            expected |= shared_job.hashes(batch)
        together = {int(number): digest for note in notes for number, digest in note.images[epoch].items()}
        assert together == expected
    reads = [sum(note.source_reads[epoch] for note in notes) for epoch in range(shared_job.EPOCHS)]
    print(f"{reads} reads of the dataset's storage")
    assert reads[0] <= first_reads
    # Samples that were pushed late are published when the next epoch begins, and these epochs are very short.
    assert reads[-1] <= MOST_READS
    for note in notes:
        assert note.warnings == []
        assert set(note.peers["nodes"]) == {"node0", "node1"}
        assert note.local_world_size == local
        others = [peer for name, peer in note.peers["nodes"].items() if name != note.host]
        assert sum(peer["hits"] for peer in others) > 0, note.peers


@FIFTH
@pytest.mark.parametrize("framework", ["none", "torch"])
def test_torchrun(nodes: list[Host], framework: str, dataset: Path, tmp_path: Path) -> None:
    """Two agents with two ranks each, which meet over the agents' store or over the store of an initialised process
    group.
    """
    told = settings(dataset, tmp_path)
    run(*(node.command(*torchrun(nodes), PROGRAM, framework, told) for node in nodes))
    check(tmp_path, dataset, ranks=4)


def torchrun(nodes: list[Host], *options: object) -> list[object]:
    """Return the command that starts a node's two ranks."""
    words = ["-m", "torch.distributed.run", "--nnodes", len(nodes), "--nproc-per-node", 2]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"{nodes[0].name}:29400"]
    return [frameworks.interpreter(), *words, *meeting, *options]


@ONLY_THOROUGH
def test_the_example(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    # It runs under `watched.py`, which ends its processes cleanly.
    (tmp_path / "notes").mkdir()
    program = [PROGRAM.with_name("watched.py"), tmp_path / "notes", "-"]
    program += [frameworks.EXAMPLES / "peers_torchrun.py", dataset, tmp_path / "checkpoint.pt"]
    said = run(*(node.command(*torchrun(nodes), *program, tmp_path / node.name) for node in nodes))
    assert len(re.findall(r"epoch \d loss", said)) == 21
    reads = [int(count) for count in re.findall(r"rank \d read (\d+) from storage", said)]
    # Each of three epochs has 56 samples. With private caches, a node would read half of the second epoch's samples,
    # and a quarter of the third's.
    assert len(reads) == 12
    assert 56 <= sum(reads) <= 56 + 28


@ONLY_THOROUGH
def test_torchrun_starts_again(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    """A rank is killed in its second epoch; all ranks meet again and use the samples that their nodes have stored."""
    told = settings(dataset, tmp_path, dies=True)
    run(*(node.command(*torchrun(nodes, "--max-restarts", 1), PROGRAM, "none", told) for node in nodes))
    check(tmp_path, dataset, ranks=4, first_reads=SAMPLES // 2)


def test_variables_alone(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    """As in the pods of a Kubernetes job: rank 0 makes the store."""
    told = settings(dataset, tmp_path)
    shared = ["env", "WORLD_SIZE=2", f"MASTER_ADDR={nodes[0].name}", "MASTER_PORT=29400"]
    program = [frameworks.interpreter(), PROGRAM, "none", told]
    run(*(node.command(*shared, f"RANK={rank}", *program) for rank, node in enumerate(nodes)))
    check(tmp_path, dataset, ranks=2, local=None)


def test_mpirun(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    python = frameworks.interpreter()
    shell = job_hosts.remote_shell(tmp_path / "shell", nodes)
    launcher = [python.with_name("mpiexec"), "-launcher", "ssh", "-launcher-exec", shell]
    ranks = ["-hosts", ",".join(node.name for node in nodes), "-n", 4, "-ppn", 2]
    run(nodes[0].command(*launcher, *ranks, python, PROGRAM, "mpi", settings(dataset, tmp_path)))
    check(tmp_path, dataset, ranks=4)


def test_ray_train(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    """A cluster of two nodes. Its workers have no process group."""
    python = frameworks.interpreter("ray")
    told = settings(dataset, tmp_path)
    head = f"{nodes[0].address}:6379"
    roles = (["--head", "--port=6379", "--include-dashboard=false"], [f"--address={head}"])
    start = [python.with_name("ray"), "start", "--block", "--num-cpus=2"]
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as sockets:
        for node, role in zip(nodes, roles, strict=True):
            words = [*start, f"--node-ip-address={node.address}", *role]
            words += [f"--temp-dir={sockets}"] * (node is nodes[0])
            stack.enter_context(started(node.command(*words), **frameworks.RAY))
        run(nodes[0].command(python, PROGRAM, f"ray={head}", told), **frameworks.RAY)
    check(tmp_path, dataset, ranks=2, local=1)


def test_jax(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    told = settings(dataset, tmp_path)
    ranks = [f"jax={nodes[0].name}:29400,2,{rank}" for rank in range(2)]
    program = [frameworks.interpreter(), PROGRAM]
    run(*(node.command(*program, rank, told) for node, rank in zip(nodes, ranks, strict=True)))
    check(tmp_path, dataset, ranks=2, local=None)


def test_slurm(nodes: list[Host], dataset: Path, tmp_path: Path) -> None:
    """Under plain srun, nodes can only meet through a directory that they share."""
    slurm.require()
    (tmp_path / "shared").mkdir()
    told = settings(dataset, tmp_path, peers={"directory": str(tmp_path / "shared")})
    with slurm.cluster(tmp_path / "slurm", nodes) as variables:
        ranks = ["srun", "--nodes=2", "--ntasks-per-node=2"]
        run(nodes[0].command(*ranks, frameworks.interpreter(), PROGRAM, "none", told), **variables)
    check(tmp_path, dataset, ranks=4)
