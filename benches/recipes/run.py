"""Times the recipes that people train with beside torchvision, DALI and albumentations: same photographs, same cores.

Every recipe of `recipes.py` is built by every loader from its own operators (`peers/`). What is compared is the CPU
time of all processes over whole epochs of some images of a dataset, in alternating rounds. Foreload's is also set
beside its own for crop and flip alone.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import contest
import environments
import photographs
import recipes
import report
import verdicts
from contest import Program

HERE = Path(__file__).resolve().parent
SHARED = contest.HERE / "peers"
"""What loaders in torch's DataLoader share."""


@dataclass(frozen=True)
class Peer:
    """How a loader is run."""

    program: str
    environment: str | None
    """The peer's environment; None for Foreload's own interpreter."""


PEERS = {
    "torchvision": Peer("torchvision_v2", "torch"),
    "dali": Peer("dali_cpu", "dali"),
    "albumentations": Peer("albumentations_cv2", "opencv"),
    verdicts.OWN: Peer("foreload_loader", None),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = contest.folder_parser(__doc__)
    parser.add_argument("--images", type=int, default=2048, help="how many of its images make an epoch")
    parser.add_argument("--recipes", nargs="+", choices=recipes.RECIPES, default=list(recipes.RECIPES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=3,
        help="timed epochs, one at least, go on until so much time has passed",
    )
    contest.add_options(parser, rounds=3)
    chosen = parser.parse_args()
    if chosen.images < chosen.batch_size:
        parser.error(f"--images: is {chosen.images}, must be {chosen.batch_size} or more to fill a batch")
    return chosen


def program_of(peer: Peer, letter: str, data: Path, chosen: argparse.Namespace) -> Program:
    """Return how a loader runs a recipe; install what it needs."""
    python = contest.interpreter(peer.environment, chosen)
    source = HERE / "peers" / f"{peer.program}.py"
    made = contest.program(python, source, data, letter, chosen, (SHARED, HERE))
    made.words.extend(["--seconds", str(chosen.seconds)])
    return made


def measure(data: Path, chosen: argparse.Namespace) -> dict[tuple[str, str], contest.Standing]:
    """Do all rounds of all recipes and loaders."""
    files = photographs.jpegs(data)
    pairs = {f"{letter} {peer}": (letter, peer) for letter in chosen.recipes for peer in chosen.peers}
    entrants = {
        name: functools.partial(program_of, PEERS[peer], letter, data, chosen)
        for name, (letter, peer) in pairs.items()
    }

    def check(_name: str, result: dict) -> None:
        contest.check_images(result, len(files), chosen.batch_size)

    held = contest.hold(entrants, check, chosen.rounds, memory=False, title=data.name)
    return {pairs[name]: standing for name, standing in held.items()}


def main() -> int:
    """Install, measure, report; return 1 when Foreload failed, or missed an aim that was required."""
    chosen = parse_arguments()
    contest.use_cores(chosen.threads)
    photographs.ensure_known(chosen.data, chosen.foreload_python.parent / "foreload")
    part = photographs.part(chosen.data, chosen.images, chosen.envs / "scratch")
    size = photographs.warm(photographs.jpegs(part))
    machine = report.machine()
    standings = measure(part, chosen)
    result = {
        "benchmark": "recipes",
        "machine": machine,
        "settings": settings(chosen),
        "data": chosen.data.name,
        "images": chosen.images,
        "mean_bytes": size / chosen.images,
        "recipes": verdicts.summarise(standings, verdicts.has_avx512(machine)),
    }
    report.deliver(result, verdicts.as_text(result), chosen.json, chosen.output)
    own = [standing for (_, peer), standing in standings.items() if peer == verdicts.OWN]
    missed = chosen.require_targets and not all(verdicts.judgements(result["recipes"]))
    return 1 if missed or any(standing.failure for standing in own) else 0


def settings(chosen: argparse.Namespace) -> dict:
    """Return what the rounds had in common."""
    keys = ("rounds", "seconds", "warmup", "batch_size", "threads", "images")
    used = [PEERS[peer].environment for peer in chosen.peers if PEERS[peer].environment]
    requirements = {name: list(environments.RECIPES[name].requirements) for name in used}
    return {key: getattr(chosen, key) for key in keys} | {"requirements": requirements}


if __name__ == "__main__":
    sys.exit(main())
