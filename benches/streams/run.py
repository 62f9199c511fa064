"""Times training from streams: speed beside epochs over the same files and beside the usual way, latency, memory.

Samples come from a directory that grows and from a Redis server of this machine. A producer runs on the same cores. The
usual way is an IterableDataset of torch's with a reservoir in Python, and Reverb with tf.data.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import contest
import environments
import photographs
import report
import stream_verdicts
import wire
from contest import Program
from environments import Unavailable

HERE = Path(__file__).resolve().parent
SHARED = contest.HERE / "peers"
PARTS = ("speed", "latency", "memory", "restoring", "waiting", "learning")
SHARES = {"0.25": ["0.25"], "(0.25, 0.9)": ["0.25", "0.9"]}
PATIENCE = 3600
EXAMPLE = contest.ROOT / "examples" / "continual_learning.py"


@dataclass(frozen=True)
class Entrant:
    """One line of the table."""

    title: str
    source: Path
    environment: str | None
    """The environment that it needs; None for Foreload's own interpreter."""
    variant: str


OWN, USUAL, REVERB = (
    HERE / "peers" / f"{name}.py" for name in ("foreload_stream", "usual_way", "reverb_tables")
)
ENTRANTS = {
    stream_verdicts.EPOCHS: Entrant(
        "**Foreload**, epochs over the files", SHARED / "foreload_loader.py", None, "fast-f32"
    ),
    "folder": Entrant("**Foreload**, growing directory", OWN, None, "folder"),
    "redis": Entrant("**Foreload**, Redis stream", OWN, None, "redis"),
    "folder-rehearsal": Entrant("**Foreload**, directory, rehearsal", OWN, None, "folder-rehearsal"),
    "redis-rehearsal": Entrant("**Foreload**, Redis, rehearsal", OWN, None, "redis-rehearsal"),
    "usual-folder": Entrant("IterableDataset + reservoir, directory", USUAL, "torch", "folder-rehearsal"),
    "usual-redis": Entrant("IterableDataset + reservoir, Redis", USUAL, "redis", "redis-rehearsal"),
    "reverb": Entrant("Reverb + tf.data, directory", REVERB, "reverb", "folder-rehearsal"),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = contest.folder_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--epochs", type=int, default=3, help="how often all files come in a round")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument(
        "--capacity", type=int, default=2000, help="samples that are kept for rehearsal in the first part"
    )
    parser.add_argument("--load", type=float, default=0.7, help="share of the greatest rate, for latency")
    parser.add_argument("--seconds", type=float, default=15, help="how long samples arrive for latency")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples of the part on memory")
    parser.add_argument(
        "--kept", type=int, nargs="+", default=[10**4, 10**5, 10**6], help="buffers that are restored"
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind in the part on learning")
    parser.add_argument("--each", type=int, default=1000, help="images of each class there")
    contest.add_options(parser, rounds=5)
    chosen = parser.parse_args()
    if "latency" in chosen.parts and "speed" not in chosen.parts:
        parser.error("--parts: latency is measured at a share of what speed measures, so give both")
    return chosen


@contextmanager
def empty(folder: Path) -> Iterator[Path]:
    """Give a directory with nothing in it, which goes with the block."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Bench:
    """What all parts need: the command line, a directory beside the data, a server where there is one."""

    def __init__(self, chosen: argparse.Namespace, images: int) -> None:
        self.chosen, self.images = chosen, images
        # Files are renamed into it and share their bytes with the data, so it lies on the same file system.
        self.scratch = chosen.data.resolve().parent / "streams"
        self.server: wire.RedisServer | None = None

    def program(self, name: str, more: list[object]) -> Program:
        """Return how an entrant is run; install what it needs."""
        entrant = ENTRANTS[name]
        if "redis" in name and self.server is None:
            raise Unavailable(wire.NONE)
        python = contest.interpreter(entrant.environment, self.chosen)
        made = contest.program(
            python, entrant.source, self.chosen.data, entrant.variant, self.chosen, (SHARED, HERE)
        )
        made.words.extend(["--scratch", str(self.scratch), "--image-size", str(self.chosen.image_size)])
        if name == stream_verdicts.EPOCHS:
            made.words.extend(["--epochs", str(self.chosen.epochs)])
            return made
        images = self.images * self.chosen.epochs
        made.words.extend(["--images", str(images), "--capacity", str(self.chosen.capacity)])
        if "redis" in name:
            made.words.extend(["--server", self.server.url, "--server-pid", str(self.server.pid)])
        made.words.extend(map(str, more))
        return made

    def clear(self) -> None:
        """Remove what the last program left, so that the next begins with nothing."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        if self.server:
            self.server.empty()

    def speed(self) -> dict:
        """Do all rounds of all entrants."""
        photographs.warm(photographs.jpegs(self.chosen.data))
        wanted = self.images * self.chosen.epochs
        self.clear()

        def check(_name: str, result: dict) -> None:
            self.clear()
            if not wanted - self.chosen.batch_size * self.chosen.epochs < result["images"] <= wanted:
                raise Unavailable(f"delivered {result['images']} of {wanted} images")

        entrants = {name: functools.partial(self.program, name, []) for name in self.chosen.entrants}
        standings = contest.hold(entrants, check, self.chosen.rounds, memory=False, title="streams")
        return stream_verdicts.summarise(standings, {name: each.title for name, each in ENTRANTS.items()})

    def latency(self, speed: dict) -> dict:
        """Let samples arrive at a share of the rate that was measured."""
        found = {}
        for name in ("folder", "redis"):
            entrant = speed["entrants"].get(name, {})
            if "images_per_s" not in entrant:
                continue
            rate = self.chosen.load * entrant["images_per_s"]["median"]
            # The last of --images counts, so this comes behind the one that `program` gives.
            more = ["--rate", rate, "--images", max(self.chosen.batch_size, int(rate * self.chosen.seconds))]
            self.clear()
            found[name] = attempt(
                lambda name=name, more=more: contest.run(self.program(name, more), False)[0]
            )
            report.log(f"latency: {name}: {found[name]}")
        self.clear()
        return found

    def own(self, source: str, *words: object) -> dict:
        """Run a program of Foreload's own that prints a line of JSON."""
        python = contest.interpreter(None, self.chosen)
        path = os.pathsep.join(map(str, (contest.HERE, HERE)))
        done = subprocess.run(
            [str(word) for word in (python, HERE / source, *words)],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise Unavailable(environments.last_lines(done.stderr))
        return json.loads(done.stdout.splitlines()[-1])

    def memory(self) -> dict:
        """Look at the memory of a process over very many samples."""
        found = {}
        for source in ("iterator", "folder"):
            with empty(self.scratch) as folder:
                words = ["--source", source, "--samples", self.chosen.samples, "--folder", folder]
                words += [
                    "--capacity",
                    max(100, self.chosen.samples // 100),
                    "--threads",
                    self.chosen.threads,
                ]
                found[source] = attempt(
                    lambda words=words: stream_verdicts.judge_memory(self.own("endurance.py", *words))
                )
            report.log(f"memory: {source}: {found[source].get('failure') or found[source]['growth']}")
        return found

    def restoring(self) -> dict:
        """Save states with full buffers, and go on from them in new processes."""
        found = {}
        for capacity in self.chosen.kept:
            with empty(self.scratch) as folder:

                def measured(folder: Path = folder / "run", capacity: int = capacity) -> dict:
                    filled = self.own("restoring.py", "fill", folder, capacity)
                    runs = [
                        self.own("restoring.py", "restore", folder, capacity)
                        for _ in range(self.chosen.rounds)
                    ]
                    return stream_verdicts.judge_restoring(filled, runs, capacity)

                found[str(capacity)] = attempt(measured)
            report.log(f"restoring: {capacity}: {found[str(capacity)]}")
        return found

    def waiting(self) -> dict:
        """Train from a stream that slows down, with a share that is fixed and with one that adapts."""
        return {
            name: attempt(lambda words=words: self.own("slowing.py", "--share", *words))
            for name, words in SHARES.items()
        }

    def learning(self) -> dict:
        """Train on classes that arrive one after another: examples/continual_learning.py."""
        with empty(self.scratch) as folder:
            found = folder / "learned.json"
            words = ["--seeds", self.chosen.seeds, "--each", self.chosen.each, "--compare", "--slow", 0]
            words += ["--json", found]
            if self.chosen.output:
                words += ["--plot", self.chosen.output.with_suffix(".svg").resolve()]

            def measured() -> dict:
                python = contest.interpreter("torch", self.chosen)
                # The environment with torch has no Foreload of its own.
                ask = "import foreload, pathlib; print(pathlib.Path(foreload.__file__).parents[1])"
                asked = [contest.interpreter(None, self.chosen), "-c", ask]
                place = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
                environments.call(
                    [str(word) for word in (python, EXAMPLE, *words)],
                    "continual_learning.py failed",
                    os.environ | {"PYTHONPATH": place},
                )
                return stream_verdicts.judge_learning(json.loads(found.read_text()))

            return {"old classes": attempt(measured)}


def attempt(measure: Callable[[], dict]) -> dict:
    """Return what is measured, or why it cannot be."""
    try:
        return measure()
    except (Unavailable, subprocess.TimeoutExpired) as reason:
        report.log(str(reason))
        return {"failure": str(reason)}


def main() -> int:
    """Measure, report; return 1 when Foreload failed, or missed a target that was required."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    if chosen.data.name == "folder":
        photographs.ensure(chosen.data, "folder", chosen.foreload_python.parent / "foreload")
    images = len(photographs.jpegs(chosen.data))
    keys = ("rounds", "epochs", "warmup", "batch_size", "image_size", "threads", "capacity", "load", "seeds")
    settings = {"images": images} | {key: getattr(chosen, key) for key in keys}
    result = {"benchmark": "streams", "machine": report.machine(), "settings": settings}
    bench = Bench(chosen, images)
    with ExitStack() as stack:
        stack.enter_context(empty(bench.scratch))
        if any("redis" in name for name in chosen.entrants) and "speed" in chosen.parts:
            server = attempt(
                lambda: {"server": stack.enter_context(wire.RedisServer(bench.scratch / "server"))}
            )
            bench.server = server.get("server")
        if "speed" in chosen.parts:
            result["speed"] = bench.speed()
        if "latency" in chosen.parts:
            result["latency"] = bench.latency(result["speed"])
    for part in ("memory", "restoring", "waiting", "learning"):
        if part in chosen.parts:
            result[part] = getattr(bench, part)()
    report.deliver(result, stream_verdicts.as_text(result), chosen.json, chosen.output)
    lacking = chosen.require_targets and stream_verdicts.missed(result)
    return 1 if lacking or stream_verdicts.failed(result) else 0


if __name__ == "__main__":
    sys.exit(main())
