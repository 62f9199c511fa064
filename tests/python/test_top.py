"""`foreload top`: it shows the loaders of other processes, even if these die, and restores the terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kills
import pytest
from waiting import until

TOP = [sys.executable, "-m", "foreload", "top", "--interval", "200ms"]

LOOP = """
    import sys, time
    from foreload import ImageLoader

    loader = ImageLoader(sys.argv[1], batch_size=10, image_size=32, device="cpu", threads=1, seed=int(sys.argv[2]))
    print("made", flush=True)
    while True:
        for batch in loader:
            time.sleep(0.01)
"""


def environment(place: Path) -> dict[str, str]:
    """Return an environment whose processes find each other only in `place`."""
    unset = ("FORELOAD_TOP", "VIRTUAL_ENV", "XDG_RUNTIME_DIR")
    return {name: value for name, value in os.environ.items() if name not in unset} | {
        "FORELOAD_RUNTIME_DIR": str(place)
    }


@contextmanager
def training(
    place: Path, dataset: Path, program: str = LOOP, seed: int = 0, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that loads `dataset` until the end of the block."""
    command = [sys.executable, "-c", textwrap.dedent(program), str(dataset), str(seed)]
    process = kills.begin(*command, stdout=subprocess.PIPE, text=True, env=environment(place) | more)
    assert process.stdout.readline().strip() == "made"
    yield process
    kills.end(process)


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `foreload top` with an output that is not a terminal."""
    command = [*TOP, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(place), check=False, timeout=60
    )


def seen(place: Path) -> list[dict]:
    """Return the processes that `foreload top --once --json` shows."""
    shown = run(place, "--once", "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["processes"]


def seen_when(place: Path, enough: Callable[[list[dict]], bool]) -> list[dict]:
    """Return the shown processes when they satisfy `enough`; the time that this takes depends on the machine."""
    return until("`foreload top` shows what is enough", lambda: seen(place), enough)


def loading(processes: list[dict], number: int = 1) -> bool:
    """Return whether this many processes have delivered batches between two queries."""
    loaders = [loader for process in processes for loader in process["loaders"]]
    return len(loaders) == number and all(loader["rates"]["samples_per_second"] > 0 for loader in loaders)


def sockets(place: Path) -> list[Path]:
    """Return the paths of the existing sockets."""
    return sorted((place / "foreload" / "top").glob("*-*"))


def test_a_loader_in_a_loop_is_seen_with_plausible_numbers(tmp_path: Path, dataset: Path) -> None:
    with training(tmp_path, dataset) as process:
        (shown,) = seen_when(tmp_path, loading)
        assert (shown["pid"], shown["state"]) == (process.pid, "answers")
        assert shown["program"].startswith("python")
        (loader,) = shown["loaders"]
        expected = {
            "kind": "images", "dataset": str(dataset), "rank": 0, "world_size": 1, "device": "cpu", "steps": 6,
            "failed": 0,
        }  # fmt: skip
        assert {name: loader[name] for name in expected} == expected
        assert 0 <= loader["step"] <= 6
        assert loader["stages"]["threads"] == 1
        mean = sum(path.stat().st_size for path in dataset.glob("*/*.jpg")) / 60
        # Reads are ahead of the delivered samples, at most by the size of the pools.
        assert loader["samples"] <= loader["bytes"] / mean * 1.2 + 10
        rates = loader["rates"]
        # The consumer takes 10 ms for a batch of ten.
        assert 0 < rates["samples_per_second"] <= 1100
        assert rates["limit"] in ("consumer", "read source", "decode", "augment", None)
        assert rates["tiers"] in ({"source": 1.0}, {})
        assert all(0 <= load <= 1 for load in [rates["waiting"], *rates["loads"].values()])
        assert 0 <= loader["stalls"]["p50"] <= loader["stalls"]["p99"] <= loader["stalls"]["max"]
        (later,) = seen(tmp_path)
        assert later["loaders"][0]["samples"] > loader["samples"]
        # The table for people shows the same.
        table = run(tmp_path)
        assert table.stdout.splitlines()[0].split()[:3] == ["PID", "PROGRAM", "DATASET"]
        pid, program, place = table.stdout.splitlines()[1].split()[:3]
        assert (pid, program) == (str(process.pid), shown["program"])
        # The beginning of a long path is omitted.
        assert str(dataset).endswith(place.lstrip("…"))
        assert [path.stat().st_mode & 0o777 for path in sockets(tmp_path)] == [0o600]
        kills.end(process)
        assert len(sockets(tmp_path)) == 1
        assert seen(tmp_path) == []
        assert sockets(tmp_path) == []


def test_several_processes_and_one_that_is_stopped_or_killed(tmp_path: Path, dataset: Path) -> None:
    with training(tmp_path, dataset) as first, training(tmp_path, dataset, seed=1) as second:
        both = sorted([first.pid, second.pid])
        assert [process["pid"] for process in seen_when(tmp_path, lambda all: loading(all, 2))] == both
        first.send_signal(signal.SIGSTOP)
        states = {process["pid"]: process for process in seen(tmp_path)}
        assert states[second.pid]["state"] == "answers"
        assert states[first.pid]["state"] == "silent"
        assert states[first.pid]["silent_seconds"] > 0
        assert states[first.pid]["program"].startswith("python")
        assert f"{first.pid}  " in run(tmp_path).stdout
        assert "not answering" in run(tmp_path).stdout
        first.send_signal(signal.SIGCONT)
        seen_when(tmp_path, lambda all: loading(all, 2))
        kills.end(first)
        # The next loader removes the leftover socket, even without `foreload top`.
        left = sockets(tmp_path)
        assert len(left) == 2
        with training(tmp_path, dataset, seed=2) as third:
            seen_when(tmp_path, lambda all: loading(all, 2))
            assert sorted(int(path.name.split("-")[0]) for path in sockets(tmp_path)) == sorted(
                [second.pid, third.pid]
            )


def test_a_loader_that_ends_takes_its_socket_with_it(tmp_path: Path, dataset: Path) -> None:
    program = """
        import sys, os
        from foreload import ImageLoader

        place = os.environ["FORELOAD_RUNTIME_DIR"] + "/foreload/top"
        def made():
            return ImageLoader(sys.argv[1], batch_size=10, image_size=32, device="cpu", threads=1)
        def threads():
            tasks = f"/proc/self/task"
            return [open(f"{tasks}/{task}/comm").read().strip() for task in os.listdir(tasks)]
        for _ in range(3):
            one, other = made(), made()
            assert not os.path.exists(place) or os.listdir(place) == []
            next(iter(one)), next(iter(other))
            assert len(os.listdir(place)) == 1 and threads().count("foreload-top") == 1, os.listdir(place)
            del one
            assert len(os.listdir(place)) == 1
            del other
            assert os.listdir(place) == []
        print("made", flush=True)
    """
    with training(tmp_path, dataset, program) as process:
        assert process.wait() == 0


def test_a_stream_is_seen_with_its_account_and_waits_for_arrivals(tmp_path: Path, dataset: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from foreload import StreamLoader, streams

        def arriving():
            while True:
                for path in Path(sys.argv[1]).glob("*/*.jpg"):
                    time.sleep(0.02)
                    yield {"jpg": path.read_bytes(), "cls": b"1"}

        source = streams.Iterator(arriving(), name="live")
        loader = StreamLoader(source, batch_size=4, image_size=24, device="cpu", threads=1)
        print("made", flush=True)
        for batch in loader:
            pass
    """
    with training(tmp_path, dataset, program):
        (shown,) = seen_when(tmp_path, loading)
        (loader,) = shown["loaders"]
        assert (loader["kind"], loader["dataset"], loader["steps"]) == ("stream", "live", None)
        assert loader["stream"]["received"] >= loader["samples"] > 0
        seen_when(tmp_path, lambda all: all[0]["loaders"][0]["rates"]["limit"] == "arrivals")


def test_a_forked_child_is_not_its_parent(tmp_path: Path, dataset: Path) -> None:
    program = """
        import os, sys, time
        from foreload import ImageLoader

        def made():
            return ImageLoader(sys.argv[1], batch_size=10, image_size=32, device="cpu", threads=1)
        loader = made()
        batches = iter(loader)
        next(batches)
        read, write = os.pipe()
        if os.fork() == 0:
            # First it has its parent's socket and no loader, then a loader of its own, and then none again.
            del batches, loader
            os.close(write)
            os.read(read, 1) or os._exit(0)
            own = made()
            for batch in own:
                pass
            time.sleep(1000)
        print("made", flush=True)
        sys.stdin.readline()
        os.write(write, b"x")
        time.sleep(1000)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(dataset)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    parent = kills.begin(*command, env=environment(tmp_path), **pipes)
    child = None
    try:
        assert parent.stdout.readline().strip() == "made"
        assert [process["pid"] for process in seen(tmp_path)] == [parent.pid], "the child has no loader"
        parent.stdin.write("\n")
        parent.stdin.flush()
        processes = seen_when(tmp_path, lambda all: len(all) == 2)
        (child,) = {process["pid"] for process in processes} - {parent.pid}
        assert all(process["state"] == "answers" and len(process["loaders"]) == 1 for process in processes)
        # The child still has its parent's socket open, and would never answer.
        kills.end(parent)
        assert [process["pid"] for process in seen(tmp_path)] == [child]
        assert [path.name.split("-")[0] for path in sockets(tmp_path)] == [str(child)]
    finally:
        if child is not None:
            os.kill(child, signal.SIGKILL)


def test_whoever_answers_garbage_is_shown_as_that(tmp_path: Path, dataset: Path) -> None:
    with training(tmp_path, dataset) as process:
        seen_when(tmp_path, loading)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / "foreload" / "top" / f"{os.getpid()}-ff"))
        server.listen()

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(
                        b'{"version": 1, "program": "\\u001b[31mred", "loaders": [{"samples": "\x1b[2J'
                    )

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            states = {shown["pid"]: shown for shown in seen(tmp_path)}
            assert states[process.pid]["state"] == "answers"
            assert states[os.getpid()]["state"] == "unreadable"
            assert "invalid answer" in states[os.getpid()]["reason"]
            table = run(tmp_path).stdout
            assert "sent an invalid answer" in table
            assert "\x1b" not in table
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            server.close()


def test_without_a_place_to_meet_loaders_run_unseen_and_top_says_what_to_do(
    tmp_path: Path, dataset: Path
) -> None:
    open_to_all = tmp_path / "open"
    (open_to_all / "foreload").mkdir(parents=True)
    (open_to_all / "foreload").chmod(0o755)
    for place, why in ((tmp_path / "missing", "cannot be opened"), (open_to_all, "must have mode 0700")):
        with training(place, dataset) as process:
            shown = run(place)
            assert shown.returncode == 1
            assert why in shown.stderr
            assert "set FORELOAD_RUNTIME_DIR to the same private directory" in shown.stderr
            assert process.poll() is None
    place = tmp_path / "off"
    place.mkdir()
    with training(place, dataset, FORELOAD_TOP="0") as process:
        assert process.poll() is None
        shown = run(place)
        assert shown.returncode == 0
        assert "FORELOAD_TOP=0 are not shown" in shown.stdout.replace("\n", " ")
        assert sockets(place) == []
    assert run(place, "--interval", "1us").returncode == 2
    assert run(place, "--sort", "size").returncode == 2


class Terminal:
    """`foreload top` on its own terminal."""

    def __init__(self, place: Path) -> None:
        """Start it on a terminal of 100 columns and 24 lines."""
        self.ours, theirs = pty.openpty()
        self.resize(100, 24)
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            TOP, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(place), start_new_session=True,
            preexec_fn=self._take_terminal,
        )  # fmt: skip
        self.theirs = theirs
        self.drawn = b""

    @staticmethod
    def _take_terminal() -> None:
        # If these tests run under nohup, hangups are ignored, also in child processes.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal; the kernel notifies the program."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, *texts: bytes) -> bytes:
        """Return the output since the last call, up to the point where it contains all of `texts`."""
        deadline = time.monotonic() + 60
        while not all(text in self.drawn for text in texts):
            assert time.monotonic() < deadline, f"never drawn: {texts} in {self.drawn!r}"
            if select.select([self.ours], [], [], 1)[0]:
                self.drawn += os.read(self.ours, 65536)
        end = max(self.drawn.index(text) + len(text) for text in texts)
        drawn, self.drawn = self.drawn[:end], self.drawn[end:]
        return drawn

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.ours, keys)

    def is_as_before(self) -> bool:
        """Return whether the settings of the terminal are those from before the start."""
        return termios.tcgetattr(self.theirs) == self.before

    def close(self) -> None:
        """End the program in any state."""
        kills.end(self.process)
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """`foreload top` on a terminal, which shows the loaders of `tmp_path`."""
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


def test_it_draws_listens_and_gives_the_terminal_back(
    tmp_path: Path, dataset: Path, terminal: Terminal
) -> None:
    terminal.until(ENTERED, b"no running loader of this user", b"q quits")
    assert not terminal.is_as_before()
    with training(tmp_path, dataset) as process:
        drawn = terminal.until(str(process.pid).encode(), b"SAMPLES/S", b"images", b" of samples")
        lines = drawn.split(b"\x1b[H")[-1].split(b"\r\n")
        assert len(lines) <= 24
        terminal.press(b"s")
        terminal.until(b"by rate")
        terminal.press(b"\x1b[Bs")
        terminal.until(b"by waiting")
        terminal.resize(40, 8)
        terminal.until(b"\x1b[J")
        drawn = terminal.until(b"\x1b[H", b"\x1b[J").split(b"\x1b[J")[0].split(b"\x1b[H")[-1]
        assert drawn.count(b"\r\n") == 7
    terminal.until(b"no running loader")
    terminal.press(b"q")
    terminal.until(b"\x1b[?25h", LEFT)
    assert terminal.process.wait() == 0
    assert terminal.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_the_terminal_in_order(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.until(ENTERED, b"q quits")
    if number == signal.SIGINT:
        terminal.press(b"\x03")
    else:
        terminal.process.send_signal(number)
    terminal.until(b"\x1b[?25h", LEFT)
    assert terminal.process.wait() == -number
    assert terminal.is_as_before()


def test_it_can_be_suspended(terminal: Terminal) -> None:
    terminal.until(ENTERED, b"q quits")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.until(LEFT)
    # No process of its session could continue it, so it must not stop at all.
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(ENTERED, b"q quits")
    terminal.press(b"q")
    terminal.until(LEFT)
    assert terminal.process.wait() == 0
    assert terminal.is_as_before()
