"""Makes the images of a folder arrive repeatedly: as files that are renamed into a directory, or in a Redis stream.

Standard input gives the number of used samples. Without `--rate`, always enough samples are ready that no loader waits;
with it, samples arrive at that pace, however many are used. It prints `ready` after its preparations, and begins with
the first line.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import wire
from harness import measure

TICK = 0.002
"""The time between two checks of the clock, in seconds, if samples arrive at a pace."""
INCOMING = "incoming"
STREAM = "images"
Send = Callable[[int], None]
"""Makes this many samples arrive, with the time of their sending."""


def main() -> None:
    """Prepare, wait for the first line, and produce until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("count", type=int, help="samples at most")
    parser.add_argument("--lead", type=int, default=1024, help="samples that lie ready")
    parser.add_argument("--rate", type=float, help="samples a second")
    parser.add_argument("--server", help="a Redis server; without one, files are renamed")
    chosen = parser.parse_args()
    classes = sorted(path.name for path in chosen.data.iterdir() if path.is_dir())
    files = [(label, Path(path)) for path, label in zip(*measure.list_images(chosen.data), strict=True)]
    # In a mixed order like an epoch's, so that no loader gets the classes one after another.
    files = [files[number * 7919 % len(files)] for number in range(len(files))]
    if chosen.server:
        send = into_redis(files, chosen.server, 4 * chosen.lead)
    else:
        send = into_folder(files, classes, chosen.scratch, chosen.count)
    print("ready", flush=True)
    first = sys.stdin.readline()
    if chosen.rate:
        at_a_pace(send, chosen.rate, chosen.count)
        return
    sent = 0
    for line in itertools.chain([first], sys.stdin):
        wanted = min(int(line) + chosen.lead, chosen.count)
        if wanted > sent:
            send(wanted - sent)
            sent = wanted


def at_a_pace(send: Send, rate: float, count: int) -> None:
    """Make `count` samples arrive, `rate` per second, until standard input ends."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    began, sent = time.monotonic(), 0
    while sent < count and not over.wait(TICK):
        due = min(int((time.monotonic() - began) * rate), count)
        if due > sent:
            send(due - sent)
            sent = due


def into_folder(files: list[tuple[int, Path]], classes: list[str], scratch: Path, count: int) -> Send:
    """Link all files under hidden names; sending a sample means renaming, as a program that writes files does."""
    incoming = scratch / INCOMING
    for name in classes:
        (incoming / name).mkdir(parents=True, exist_ok=True)
    prepared = list(linked(files, classes, incoming, scratch / "originals", count))
    following = iter(prepared)

    def send(some: int) -> None:
        for hidden, folder in itertools.islice(following, some):
            hidden.rename(f"{folder}/{time.monotonic_ns()}.jpg")

    return send


def linked(
    files: list[tuple[int, Path]], classes: list[str], incoming: Path, originals: Path, count: int
) -> Iterator[tuple[Path, str]]:
    """Yield links to the files, repeatedly; or to copies of them if the file system differs."""
    for number in range(count):
        label, path = files[number % len(files)]
        folder = incoming / classes[label]
        hidden = folder / f".{number:08}"
        try:
            hidden.hardlink_to(path.resolve())
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            originals.mkdir(exist_ok=True)
            copy = originals / f"{label}-{path.name}"
            if not copy.exists():
                shutil.copy(path, copy)
            hidden.hardlink_to(copy)
        yield hidden, str(folder)


def into_redis(files: list[tuple[int, Path]], server: str, longest: int) -> Send:
    """Add entries to a stream, which keeps the last `longest` of them."""
    connection = wire.connect(server)
    read = [(b"%d" % label, path.read_bytes()) for label, path in files]
    following = itertools.cycle(read)

    def send(some: int) -> None:
        asked = 0
        for label, image in itertools.islice(following, some):
            sent = b"%d" % time.monotonic_ns()
            words = (b"jpg", image, b"cls", label, b"sent", sent)
            connection.ask(b"XADD", STREAM.encode(), b"MAXLEN", b"~", b"%d" % longest, b"*", *words)
            asked += 1
            if asked == wire.PIPELINED:
                connection.answers(asked)
                asked = 0
        connection.answers(asked)

    return send


if __name__ == "__main__":
    main()
