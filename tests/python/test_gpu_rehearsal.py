"""The whole GPU kit on the stand-ins, small and short: its parts start, end in time, report, and are distinguished.

Other loaders answer from a recording made here. The format of Foreload's own answers is compared with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import gpu_peers
import kills
import pytest
from conftest import ONLY_ALL, ONLY_THOROUGH, need
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "benches" / "gpu"
PROGRAMS = Path(__file__).parent / "gpu_kit"
STAND_IN = Path(sys.prefix).parent / "stand-in"
CARRIED_BACK = 8
"""The most files that a borrowed machine returns."""


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests import the kit's scripts."""
    if not (STAND_IN / "libcuda.so.1").exists():
        pytest.skip("the stand-ins are not built for this Python: make test-module")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    monkeypatch.syspath_prepend(str(ROOT / "benches"))
    monkeypatch.syspath_prepend(str(KIT))


def environment(**variables: str) -> dict[str, str]:
    """The environment of a machine whose GPU is a stand-in."""
    return os.environ | {"LD_LIBRARY_PATH": str(STAND_IN), "PYTHON": sys.executable} | variables


def run(*command: object, seconds: float = 110, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the stand-ins."""
    words = [str(word) for word in command]
    return subprocess.run(
        words, env=environment(**variables), capture_output=True, text=True, check=False, timeout=seconds
    )


def lines_of(path: Path) -> list[dict]:
    """Return a file of JSON lines; the last line must be complete, too."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def fed(rate: float, cpu: float) -> dict:
    """Return a response of `serve.py` to `feed`."""
    counters = {"gpu_decoded_hardware": rate, "gpu_decoded_cuda": 0, "gpu_h2d_bytes": 110_000 * rate}
    result = {"images": rate, "steps": 9, "seconds": 1.0, "cpu_seconds": cpu * rate / 1000}
    return result | {"counters": counters, "threads": {"foreload-lane": cpu * rate / 2000}}


def recording(path: Path, **speeds: tuple[float, float]) -> Path:
    """Record responses of all loaders, with these images/s and CPU seconds per 1 000 images."""
    import standings

    described = {"shape": [256, 3, 224, 224], "mean": [0.0] * 3, "std": [1.0] * 3}
    described |= {"nvjpeg": ["libnvjpeg.so.13"], "facts": {"decoders": {"hardware": "all"}}}
    peers = {}
    for name in standings.PEERS:
        rate, cpu = speeds[name.partition("-")[0]]
        answer = fed(rate, cpu)
        peers[name] = {
            "tune": {"setting": "None", "tried": {"None": rate}, "note": "", **described},
            "feed": answer,
            "train": answer | {"idle_share": 0.01, "step_alone_seconds": 0.1},
            "point": answer | described,
        }
    device = {"gpu": "a recorded GPU", "gpu_memory_bytes": 1 << 37, "driver": "1", "torch": "2", "cuda": "13"}
    path.write_text(json.dumps({"device": device, "peers": peers}))
    return path


def small_wheel(folder: Path) -> None:
    """Make an empty wheel with the name that the kit expects: Foreload is installed already."""
    about = "foreload-0.0.dist-info"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "foreload-0.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: foreload\nVersion: 0.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


@ONLY_THOROUGH
@pytest.mark.timeout(1300)
def test_every_part_runs_from_a_packed_kit(tmp_path: Path, dataset: Path) -> None:
    import pack

    kit, out = tmp_path / "kit", tmp_path / "out"
    pack.copy_scripts(kit)
    small_wheel(kit / "wheels")
    (kit / "images").symlink_to(dataset)
    fast = {"foreload": (9000.0, 0.2), "dali": (7000.0, 0.5)}
    answers = recording(tmp_path / "recorded.json", **fast, torchvision=(5000.0, 0.3), torch=(900.0, 9.0))
    # The kit divides the minutes among its parts. Here tests of the kit run next to others on few cores.
    done = run(kit / "run.sh", "all", "--minutes", 20, "--rehearse", answers, "--out", out, seconds=1250)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    parts = json.loads((out / "results.json").read_text())["parts"]
    assert {name: part["problems"] for name, part in parts.items()} == {
        name: [] for name in ("install", "probe", "doctor", "tests", "parity", "arrays", "stress", "bench")
    }
    files = sorted(path.name for path in out.iterdir())
    assert len(files) <= CARRIED_BACK
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in files), files
    log = (out / "log.txt").read_text()
    assert re.search(r"PASSED.*test_handoff.py::test_streams", log), "tests' names are in the log"

    probed = lines_of(out / "probe.jsonl")
    steps = {line["step"] for line in probed}
    assert {"machine", "device", "pools", "modules", "page locking", "capture", "skips HARDWARE"} <= steps
    # The stand-in's engine ends the process of a caller that passes it a truncated file.
    ended = [line for line in probed if "ended" in line]
    assert {line["step"] for line in ended} == {"damage HARDWARE"}, ended
    assert all(line["ended"] == "signal SIGABRT" for line in ended)
    pixels = [
        line for line in probed if line["step"] == "pixels HARDWARE" and line.get("status") == "SUCCESS"
    ]
    assert len(pixels) >= 15
    assert all(line["right"] == line["images"] and not line["beyond"] for line in pixels)
    assert all(line["untouched"] == 0 for line in probed if line["step"] == "skips HARDWARE")
    assert any(line.get("images_per_s") for line in probed if line["step"] == "rates HARDWARE")
    assert "images that the engine skips" in parts["probe"]["text"]

    compared = lines_of(out / "parity.jsonl")
    assert {line["backend"] for line in compared} == {"hardware", "cuda_batched", "cuda", "cpu"}
    assert lines_of(out / "stress.jsonl")[-1]["batches"] >= 120
    bench = json.loads((out / "bench.json").read_text())
    assert all(bench["peers"]["foreload-f16"]["targets"].values())
    assert len(bench["peers"]["foreload-f16"]["points"]) > 8
    assert "backend cuda_batched alone: " in (out / "bench.md").read_text()
    assert "**Foreload**, float16: hardware: all" in (out / "bench.md").read_text()


@ONLY_ALL
@pytest.mark.timeout(120)
def test_what_is_known_survives_the_end_of_the_call(tmp_path: Path) -> None:
    answers = recording(
        tmp_path / "recorded.json", **dict.fromkeys(("foreload", "dali", "torchvision", "torch"), (1.0, 1.0))
    )
    for ending, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 1)):
        out = tmp_path / ending.name
        command = [KIT / "run.sh", "checks", "--minutes", "3", "--rehearse", answers, "--out", out]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        kit = kills.begin(*command, env=environment(), start_new_session=True, **quiet)
        lines = out / "probe.jsonl"

        def written(kit: subprocess.Popen = kit, lines: Path = lines) -> int:
            assert kit.poll() is None, "it ended too early"
            return lines.read_text().count("\n") if lines.exists() else 0

        until("the probe has written 20 lines", written, lambda count: count >= 20)
        kit.send_signal(ending)
        assert kit.wait(30) == code
        whole = lines.read_text().rpartition("\n")[0].splitlines()
        assert len([json.loads(line) for line in whole]) >= 20
        parts = json.loads((out / "results.json").read_text())["parts"]
        assert parts["install"]["problems"] == []
        assert "pixels HARDWARE" in (out / "log.txt").read_text()
        if ending == signal.SIGTERM:
            assert parts["probe"]["problems"] == ["it was interrupted"]
        else:
            # The probe has its own session, and would keep running.
            for pid in processes_of(tmp_path):
                os.kill(pid, signal.SIGKILL)


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose command line names a path below a folder."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if str(folder).encode() in command_line(pid)]


def test_a_question_that_ends_its_process_costs_one_line(tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    done = run(sys.executable, PROGRAMS / "crashing_probe.py", "--lines", path, FORELOAD_STANDIN_DEVICES="0")
    assert done.returncode == 1, done.stderr
    trials = {line["cell"]: line for line in lines_of(path) if line["step"] == "trials"}
    assert trials["answered"]["value"] == 0.3333
    assert trials["aborts"]["ended"] == "signal SIGABRT"
    assert "crashing_probe.py" in trials["aborts"]["said"], "the place is reported"
    assert trials["lacks a function"]["error"] == "no such symbol: nvjpegNew"
    assert trials["hangs"]["ended"] == "no end within its time"
    assert trials["refused"]["error"] == "KeyError: 'nothing'"
    assert trials["broken"]["ended"] == "exit 1"
    assert trials["answered at last"]["value"] == 2
    # No question could be asked there.
    assert [line["cell"] for line in lines_of(path) if line["step"] == "no device"] == ["start"]


def test_what_a_failed_call_leaves_out_is_no_skip(tmp_path: Path) -> None:
    """A call that fails in the stand-in does not change its targets. This is not a skip, because the failure is
    reported.
    """
    path = tmp_path / "probe.jsonl"
    only = ("--short", "--only", "machine", "device", "skips", "--lines", path)
    done = run(sys.executable, KIT / "probe.py", *only, FORELOAD_STANDIN_FAIL="nvjpegDecodeBatchedEx:1:6")
    assert done.returncode == 0, done.stderr
    first = next(line for line in lines_of(path) if line["step"] == "skips HARDWARE")
    assert first["status"] == {"EXECUTION_FAILED": 1, "SUCCESS": 1}
    assert (first["images"], first["right"], first["untouched"]) == (1, 1, 0)


def test_images_that_are_left_out_in_spite_of_a_success_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    only = ("--short", "--only", "machine", "device", "skips", "--lines", path)
    done = run(sys.executable, PROGRAMS / "skipping_probe.py", *only)
    assert done.returncode == 0, done.stderr
    found = [line for line in lines_of(path) if line["step"] == "skips HARDWARE"]
    assert all(line["status"] == {"SUCCESS": 2} for line in found)
    assert all(line["untouched"] == line["right"] == line["images"] / 2 for line in found)
    assert "of 16 images 8 untouched" in done.stdout


def test_pixels_are_judged_by_what_was_written() -> None:
    import numpy as np
    from probing import decoding, pictures

    picture = pictures.drawn("420", (37, 21), 5)
    planes = picture.expected("YUV", None)
    assert [plane.shape for plane in planes] == [(21, 37), (11, 19), (11, 19)], "chroma is rounded up"
    part = picture.expected("YUV", (16, 0, 21, 16))
    assert np.array_equal(part[0], planes[0][:16, 16:])
    assert np.array_equal(part[1], planes[1][:8, 8:])
    found = decoding.Findings()
    luma = planes[0]
    poison = 0xA5
    half = luma.copy()
    half[:, 30:] = poison
    assert found.judge(luma, luma, poison, 0) == "right"
    assert found.judge(np.full_like(luma, poison), luma, poison, 0) == "untouched"
    assert found.judge(half, luma, poison, 0) == "partly untouched"
    assert found.judge(np.roll(luma, 8, axis=1), luma, poison, 0) == "wrong"


def probed(step: str, cell: str, **fields: object) -> dict:
    """Return a line of the probe."""
    return {"step": step, "cell": cell, "at_s": 1.0, **fields}


def rate(threads: int, images_per_s: float, **variant: object) -> dict:
    """Return a line about the engine's speed."""
    plain = {"memory": "pageable", "part": "whole", "hint": True, "helpers": 1} | variant
    figures = {"process_cpu_us_per_image": 100.0, "call_ms": 1.0, "wait_ms": 2.0}
    figures |= {"untouched": 1, "partly untouched": 0, "wrong": 0}
    known = {"backend": "HARDWARE", "size": 128, "threads": threads}
    return probed("rates HARDWARE", "x", images_per_s=images_per_s, **figures, **known, **plain)


def test_the_probes_lines_decide_what_was_suspected() -> None:
    from probing import verdicts

    good = {"right": 16, "untouched": 0, "partly untouched": 0, "wrong": 0}
    asked = {"call": verdicts.PLAIN, "kind": "420", "form": "YUV", "images": 16}
    ex = asked | {"call": verdicts.EX}
    lines = [
        probed("pixels HARDWARE", "1", **ex, shape="even", status="SUCCESS", **good),
        probed(
            "pixels HARDWARE", "2", **ex, shape="odd", status="SUCCESS", **good | {"right": 0, "wrong": 16}
        ),
        probed("pixels GPU_HYBRID", "3", **ex, shape="odd", status="IMPLEMENTATION_NOT_SUPPORTED"),
        probed("pixels GPU_HYBRID", "4", answers={"420: SupportedEx, whole": 0, "420: Supported": 0}),
        probed("pixels GPU_HYBRID", "5", **asked, shape="odd", status="SUCCESS", **good),
        probed("skips HARDWARE", "6", status={"SUCCESS": 6}, images=600, beyond=0, **good | {"untouched": 2}),
        probed("pools", "twice the device", create="CUDA_ERROR_INVALID_VALUE (1)"),
        rate(1, 8000.0),
        rate(1, 8800.0, memory="page-locked"),
        probed("capture", "as threads are", calls={"cuEventQuery": {"call": "900", "capture": "901"}}),
        probed("damage HARDWARE", "no header, 1 of 16", how="no header", ended="signal SIGSEGV", said=""),
        probed("start HARDWARE", "first", ended="signal SIGSEGV", said=""),
    ]
    text = verdicts.as_text(lines)
    assert "HARDWARE, DecodeBatchedEx, even: right (420)" in text
    assert "HARDWARE, DecodeBatchedEx, odd: SUCCESS, but of 16 16 wrong (420)" in text
    assert "GPU_HYBRID, DecodeBatchedEx, odd: IMPLEMENTATION_NOT_SUPPORTED (420)" in text
    assert "yet not decoded:** GPU_HYBRID, 420: SupportedEx, whole: IMPLEMENTATION_NOT_SUPPORTED" in text
    assert "of 600 images 2 untouched" in text
    assert "with several threads at once, of 256 images 2 untouched" in text
    assert "twice the device: CUDA_ERROR_INVALID_VALUE (1)" in text
    assert "memory page-locked: HARDWARE, 128 images, 1 threads: 1.10 x the images/s" in text
    assert "as threads are: cuEventQuery (900)" in text
    assert "HARDWARE, no header, 1 of 16: signal SIGSEGV" in text
    assert "no answer: start HARDWARE, first: signal SIGSEGV" in text
    assert "no answer: damage" not in text


BARE = (sys.executable, "-I", "-S", "-c")
"""A command line of Python that starts fast, even on a busy machine."""
TELLS = """
import time
try:
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("told")
"""
DEAF = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.fork()
print(os.getpid(), flush=True)
time.sleep(600)
"""


@ONLY_THOROUGH
def test_a_command_is_asked_to_end_before_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import calls

    heard: list[str] = []
    code, said = calls.call([*BARE, TELLS], 8, os.environ, tmp_path, heard.append)
    assert (code, heard) == (calls.OVERDUE, ["begun", "told"])
    assert said == "begun\ntold\n"
    # This process ignores the signal, and has a child.
    monkeypatch.setattr(calls, "GRACE", 0.5)
    code, said = calls.call([*BARE, DEAF], 8, os.environ, tmp_path, heard.append)
    assert code == calls.OVERDUE
    pids = said.split()
    assert len(pids) == 2
    assert not [pid for pid in pids if b"os.fork" in command_line(int(pid))]


def command_line(pid: int) -> bytes:
    """Return the command line of a process; nothing if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@ONLY_THOROUGH
@pytest.mark.parametrize("variant", ["cuda", "packed", "indexed", "cpu"])
def test_foreloads_peer_answers_as_the_recording_says(variant: str, dataset: Path, tmp_path: Path) -> None:
    """Torch's CPU replaces its CUDA, and batches come from the stand-ins."""
    need("torch", required_by="TORCH")
    requests = [
        {"do": "tune", "seconds": 0.05},
        {"do": "feed", "seconds": 0.1},
        {"do": "train", "seconds": 0.1},
        {"do": "point", "seconds": 0.1, "backend": "cuda", "threads": 1, "batch_size": 2},
        {"do": "point", "seconds": 0.1, "backend": "none that there is"},
        {"do": "point", "seconds": 0.1, "cpu_decode": "auto"},
    ]
    peer = KIT / "peers" / "foreload_gpu.py"
    options = ("--variant", variant, "--dtype", "f32", "--batch-size", 4, "--image-size", 32, "--threads", 2)
    answers = gpu_peers.ask(peer, dataset, *options, requests=requests, env=environment())
    tuned, feed, trained, one_backend, refused, both = answers
    speeds = dict.fromkeys(("foreload", "dali", "torchvision", "torch"), (1.0, 1.0))
    recorded = json.loads(recording(tmp_path / "recorded.json", **speeds).read_text())["peers"][
        "foreload-f32"
    ]
    for answer, name in (
        (tuned, "tune"),
        (feed, "feed"),
        (trained, "train"),
        (one_backend, "point"),
        (both, "point"),
    ):
        assert answer.keys() == recorded[name].keys(), name
    assert feed["images"] > 0
    assert [Path(file).parent for file in tuned["nvjpeg"]] == ([STAND_IN] if variant == "cuda" else [])
    assert any(name.startswith("foreload") for name in feed["threads"]), feed["threads"]
    if variant == "packed":
        assert feed["counters"]["gpu_decoded_cuda_packed"] > 0
        assert feed["counters"]["gpu_decoded_cpu"] == 0
    if variant == "indexed":
        assert feed["counters"]["gpu_decoded_cuda_indexed"] > 0
        assert feed["counters"]["gpu_decoded_cpu"] == 0
    if variant == "cuda":
        # If one backend is requested, other backends finish only images that were already in flight.
        assert one_backend["counters"]["gpu_decoded_cuda"] > 0
        assert one_backend["counters"]["gpu_decoded_hardware"] == 0
    assert "FORELOAD_GPU_BACKEND" in refused["refused"]
    assert both["shape"] == [4, 3, 32, 32]


def test_dali_falls_back_to_whole_images(monkeypatch: pytest.MonkeyPatch, dataset: Path) -> None:
    """Fakes of torch and DALI show how the peer reacts, and reports, if parts of images cannot be decoded."""
    fakes = {name: MagicMock() for name in ("torch", "nvidia", "nvidia.dali")}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    # Like DALI's decorator, it takes the function's arguments, then those of the pipeline.
    built: list[SimpleNamespace] = []

    def pipeline_def(_function: object) -> object:
        def make(*arguments: object, **_settings: object) -> SimpleNamespace:
            whole = arguments[-1]
            refusal = None if whole else RuntimeError("nvImageCodec failed with INTERNAL_ERROR")
            pipeline = MagicMock(whole=whole, run=MagicMock(side_effect=refusal))
            built.append(pipeline)
            return pipeline

        return make

    fakes["nvidia.dali"].pipeline_def = pipeline_def
    monkeypatch.syspath_prepend(str(KIT / "peers"))
    for name in ("serve", "dali_mixed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import dali_mixed

    monkeypatch.setattr(dali_mixed.metadata, "version", lambda _name: "0.8.0")
    options = SimpleNamespace(data=dataset, batch_size=4, threads=2, seed=0)
    feed = dali_mixed.DaliFeed(options, 0.9)
    assert [pipeline.whole for pipeline in built] == [False, True]
    assert built[0].shutdown.called
    assert feed.note == "whole images, then the crop"
    # One attempt is enough: the next setting does not try again.
    dali_mixed.DaliFeed(options, 1.0)
    assert [pipeline.whole for pipeline in built] == [False, True, True]
    # The version that ends the process is never tried.
    monkeypatch.setattr(dali_mixed.DaliFeed, "whole", False)
    monkeypatch.setattr(dali_mixed.metadata, "version", lambda _name: "0.9.0.20")
    dali_mixed.DaliFeed(options, 1.0)
    assert [pipeline.whole for pipeline in built[3:]] == [True]
    for name in ("serve", "dali_mixed"):
        monkeypatch.delitem(sys.modules, name)
