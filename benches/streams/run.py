"""Times training from streams: speed compared with epochs over the same files and with the usual way, latency, memory.

Samples come from a growing directory and from a Redis server on this machine. A producer runs on the same cores. The
alternatives are torch's IterableDataset with a reservoir in Python, and Reverb with tf.data.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import stream_verdicts
import wire
from harness import datasets, environments, options, programs, report, rounds
from harness.environments import ROOT, Unavailable
from harness.rounds import COMPARED, Entrant, Program, attempt

HERE = Path(__file__).resolve().parent
SHARES = {"0.25": ["0.25"], "(0.25, 0.9)": ["0.25", "0.9"]}
PATIENCE = 3600
PARTS = ("speed", "latency", "memory", "restoring", "waiting", "learning")
EXAMPLE = ROOT / "examples" / "continual_learning.py"
OWN, USUAL, REVERB = (
    HERE / "peers" / f"{name}.py" for name in ("foreload_stream", "usual_way", "reverb_tables")
)
ENTRANTS = {
    stream_verdicts.EPOCHS: Entrant(
        "**Foreload**, epochs over the files", COMPARED / "foreload_loader.py", variant="fast-f32"
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
    parser = options.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--epochs", type=int, default=3, help="how often all files come in a round")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--capacity", type=int, default=2000, help="speed: samples kept for rehearsal")
    parser.add_argument("--load", type=float, default=0.7, help="share of the greatest rate, for latency")
    parser.add_argument("--seconds", type=float, default=15, help="how long samples arrive for latency")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples of the part on memory")
    parser.add_argument(
        "--kept", type=int, nargs="+", default=[10**4, 10**5, 10**6], help="buffers that are restored"
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind in the part on learning")
    parser.add_argument("--each", type=int, default=1000, help="images of each class there")
    options.add_loaders(parser, rounds=5)
    chosen = parser.parse_args()
    if "latency" in chosen.parts and "speed" not in chosen.parts:
        parser.error("--parts: latency is measured at a share of what speed measures, so give both")
    return chosen


class Bench:
    """The common state of all parts: the command line, a directory next to the data, a server if there is one."""

    def __init__(self, chosen: argparse.Namespace, images: int) -> None:
        self.chosen, self.images = chosen, images
        # The producer renames files into this directory; they are links to the data, so it is on the same file system.
        self.scratch = chosen.data.resolve().parent / "streams"
        self.server: wire.RedisServer | None = None
        self.result: dict = {}

    def program(self, name: str, *last: object) -> Program:
        """Return the command of an entrant; if an option is given twice, the last one counts."""
        chosen = self.chosen
        if "redis" in name and self.server is None:
            raise Unavailable(wire.NONE)
        more = ["--image-size", chosen.image_size]
        if name == stream_verdicts.EPOCHS:
            more += ["--epochs", chosen.epochs]
        else:
            more += ["--scratch", self.scratch, "--capacity", chosen.capacity]
            more += ["--images", self.images * chosen.epochs]
        if "redis" in name:
            more += ["--server", self.server.url, "--server-pid", self.server.pid]
        return ENTRANTS[name].program(chosen.data, chosen, *more, *last)

    def clear(self) -> None:
        """Remove the files of the last program, so that the next one starts with an empty directory."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        if self.server:
            self.server.empty()

    def speed(self) -> dict:
        """Run all rounds of all entrants."""
        datasets.warm(datasets.jpegs(self.chosen.data))
        wanted = self.images * self.chosen.epochs
        self.clear()

        def check(_name: str, result: dict) -> None:
            self.clear()
            if not wanted - self.chosen.batch_size * self.chosen.epochs < result["images"] <= wanted:
                raise Unavailable(f"delivered {result['images']} of {wanted} images")

        entrants = {name: functools.partial(self.program, name) for name in self.chosen.entrants}
        standings = rounds.hold(entrants, check, self.chosen.rounds, title="streams")
        return stream_verdicts.summarise(standings, {name: each.title for name, each in ENTRANTS.items()})

    def latency(self) -> dict:
        found = {}
        for name in ("folder", "redis"):
            entrant = self.result["speed"]["entrants"].get(name, {})
            if "images_per_s" not in entrant:
                continue
            rate = self.chosen.load * entrant["images_per_s"]["median"]
            last = ["--rate", rate, "--images", max(self.chosen.batch_size, int(rate * self.chosen.seconds))]
            self.clear()
            found[name] = attempt(lambda name=name, last=last: self.program(name, *last).run()[0])
            report.log(f"latency: {name}: {found[name]}")
        self.clear()
        return found

    def own(self, source: str, *words: object) -> dict:
        """Run one of Foreload's programs that prints a line of JSON."""
        python = rounds.interpreter(None, self.chosen)
        return programs.json_of([python, HERE / source, *words], programs.python_path(HERE), PATIENCE)

    def memory(self) -> dict:
        found, samples = {}, self.chosen.samples
        for source in ("iterator", "folder"):
            with datasets.emptied(self.scratch) as folder:
                words = ["--source", source, "--samples", samples, "--folder", folder]
                words += ["--capacity", max(100, samples // 100), "--threads", self.chosen.threads]
                found[source] = attempt(
                    lambda words=words: stream_verdicts.judge_memory(self.own("endurance.py", *words))
                )
            report.log(f"memory: {source}: {found[source].get('failure') or found[source]['growth']}")
        return found

    def restoring(self) -> dict:
        """Save states with full buffers, and resume from them in new processes."""
        found = {}
        for capacity in self.chosen.kept:
            with datasets.emptied(self.scratch) as folder:

                def measured(folder: Path = folder / "run", capacity: int = capacity) -> dict:
                    filled, *runs = (
                        self.own("restoring.py", task, folder, capacity)
                        for task in ("fill", *["restore"] * self.chosen.rounds)
                    )
                    return stream_verdicts.judge_restoring(filled, runs, capacity)

                found[str(capacity)] = attempt(measured)
            report.log(f"restoring: {capacity}: {found[str(capacity)]}")
        return found

    def waiting(self) -> dict:
        """Train from a stream that slows down, with a fixed share and with an adaptive one."""
        return {
            name: attempt(lambda words=words: self.own("slowing.py", "--share", *words))
            for name, words in SHARES.items()
        }

    def learning(self) -> dict:
        """Train on classes that arrive one after another: examples/continual_learning.py."""
        with datasets.emptied(self.scratch) as folder:
            found = folder / "learned.json"
            words = ["--seeds", self.chosen.seeds, "--each", self.chosen.each, "--compare", "--slow", 0]
            words += ["--json", found]
            if self.chosen.output:
                words += ["--plot", self.chosen.output.with_suffix(".svg").resolve()]

            def measured() -> dict:
                python = rounds.interpreter("torch", self.chosen)
                # The environment with torch does not have Foreload.
                ask = "import foreload, pathlib; print(pathlib.Path(foreload.__file__).parents[1])"
                place = programs.output_of([rounds.interpreter(None, self.chosen), "-c", ask]).strip()
                variables = os.environ | {"PYTHONPATH": place}
                programs.output_of([python, EXAMPLE, *words], variables, environments.INSTALL_TIMEOUT)
                return stream_verdicts.judge_learning(json.loads(found.read_text()))

            return {"old classes": attempt(measured)}


def main() -> int:
    """Measure and report; return 1 if Foreload failed, or missed a required target."""
    chosen = parse_arguments()
    rounds.use_cores(chosen.threads)
    if chosen.data.name == "folder":
        program = chosen.foreload_python.parent / "foreload"
        datasets.synthesise(program, chosen.data, "--images", datasets.IMAGES)
    images = len(datasets.jpegs(chosen.data))
    keys = "rounds epochs warmup batch_size image_size threads capacity load seeds"
    settings = {"images": images} | options.settings(chosen, keys)
    bench = Bench(chosen, images)
    bench.result = result = {"benchmark": "streams", "machine": report.machine(), "settings": settings}

    def measure(*parts: str) -> None:
        result.update({part: getattr(bench, part)() for part in parts if part in chosen.parts})

    with ExitStack() as stack:
        stack.enter_context(datasets.emptied(bench.scratch))
        if any("redis" in name for name in chosen.entrants) and "speed" in chosen.parts:
            server = wire.RedisServer(bench.scratch / "server")
            bench.server = attempt(lambda: {"server": stack.enter_context(server)}).get("server")
        measure("speed")
        measure("latency")
    measure(*PARTS[2:])
    report.deliver(result, stream_verdicts.as_text(result), chosen)
    return options.exit_code(chosen, stream_verdicts.failed(result), stream_verdicts.missed(result))


if __name__ == "__main__":
    sys.exit(main())
