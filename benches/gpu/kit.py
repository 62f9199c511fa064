"""Runs the parts of the GPU kit, each with a time limit, and writes what they showed into one folder.

    run.sh all --minutes 9 --out results      install, doctor, tests, parity, stress, bench
    run.sh tests parity --out results         some of them

No part stops the next one. The exit code is 0 only if all passed: skipped tests, missed limits and targets count as
failures. `results.json`, `results.md` and `log.txt` are brought up to date after every part; the benchmark adds
`bench.json` and `bench.md`. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import report

KIT = report.ROOT
SPARE = 15.0
"""Seconds at the end for what is still to be written."""
IMAGES = 4000
NEEDED = {"numpy": "numpy", "PIL": "pillow", "pytest": "pytest"}
"""What the parts import beside Foreload and torch, by module: the machine has it, or the kit brings it."""
NO_DEVICE = 2
"""Exit code of the scripts where there is no GPU."""


@dataclass
class Outcome:
    """What a part showed."""

    problems: list[str] = field(default_factory=list)
    text: str = ""
    data: dict = field(default_factory=dict)
    seconds: float = 0.0


class Run:
    """The parts' common ground: where things lie, what was said, when it must end."""

    def __init__(self, out: Path, minutes: float, dali: Path | None) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.deadline = out.resolve(), time.monotonic() + 60 * minutes - SPARE
        self.log = (self.out / "log.txt").open("w")
        self.scratch = Path(tempfile.mkdtemp(prefix="foreload-kit-"))
        self.site = self.scratch / "site"
        path = [self.site, *([dali] if dali else []), os.environ.get("PYTHONPATH", "")]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(entry) for entry in path if str(entry)),
            "PYTHONUNBUFFERED": "1",
            "FORELOAD_INDEX_DIR": str(self.scratch / "index"),
        }
        # What results say of their origin, here and in the scripts: the kit's own command, not each script's.
        origin = {"FORELOAD_COMMAND": shlex.join(["run.sh", *sys.argv[1:]])}
        if manifest := read_json(KIT / "MANIFEST.json"):
            origin["FORELOAD_COMMIT"] = manifest["commit"]
        os.environ.update(origin)
        self.environment |= origin

    def say(self, text: str) -> None:
        """To the log and to the terminal."""
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def call(
        self, *command: object, seconds: float, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a command with all its children for at most so long; its exit code (124: no end) and what it said."""
        words = [str(word) for word in command]
        self.say(f"$ {' '.join(words)}".replace(f"{KIT}/", ""))
        process = subprocess.Popen(
            words,
            cwd=KIT,
            env=self.environment | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, code = process.communicate(timeout=max(seconds, 1.0))[0], process.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said, code = process.communicate()[0], 124
        self.say(said.rstrip())
        return code, said

    def script(self, name: str, *arguments: object, seconds: float) -> tuple[int, str, dict]:
        """Run one of the scripts that lie beside this; exit code, its Markdown, its JSON."""
        output = self.scratch / name
        code, said = self.call(
            sys.executable,
            KIT / "benches" / "gpu" / f"{name}.py",
            *arguments,
            "--output",
            output,
            seconds=seconds,
        )
        text = output.with_suffix(".md")
        return (
            code,
            text.read_text() if text.exists() else last_line(said),
            read_json(output.with_suffix(".json")),
        )


def read_json(path: Path) -> dict:
    """What a file holds; nothing when it is not there."""
    return json.loads(path.read_text()) if path.is_file() else {}


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def failed(name: str, code: int, said: str, seconds: float) -> str:
    """A sentence on a script that did not succeed."""
    return f"{name} did not end within {seconds:.0f} s" if code == 124 else f"{name}: {last_line(said)}"


def install(run: Run, seconds: float) -> Outcome:
    """Put the wheels into a folder that comes first on the path; nothing of the machine's is changed."""
    wheels = sorted((KIT / "wheels").glob("*.whl"))
    if not any(wheel.name.startswith("foreload-") for wheel in wheels):
        return Outcome([f"there is no wheel of Foreload in {KIT.name}/wheels: `make gpu-kit` packs one"])
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", run.site)
    code, said = run.call(*pip, "--disable-pip-version-check", *wheels, seconds=seconds)
    problems = [failed("pip", code, said, seconds)] if code else []
    for module, package in NEEDED.items():
        if importlib.util.find_spec(module) is None and not (run.site / module).is_dir():
            problems.append(f"{package} is missing here: `pack.py --also {package}` brings it along")
    return Outcome(problems, ", ".join(wheel.name for wheel in wheels))


def doctor(run: Run, seconds: float) -> Outcome:
    """What Foreload finds on this machine."""
    code, said = run.call(sys.executable, "-m", "foreload", "doctor", seconds=seconds)
    _, facts = run.call(sys.executable, "-m", "foreload", "doctor", "--json", seconds=seconds)
    if code:
        return Outcome([failed("foreload doctor", code, said, seconds)], said)
    data = json.loads(facts[facts.index("{") :]) if "{" in facts else {}
    device = data.get("device", {})
    problems = [] if device.get("chosen") != "cpu" else [f"the CPU is chosen: {device['because']}"]
    return Outcome(problems, f"```\n{said.rstrip()}\n```", data)


def tests(run: Run, seconds: float) -> Outcome:
    """The tests on a device; here a skip is a failure."""
    junit = run.scratch / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", "/dev/null", "--rootdir", KIT, f"--junitxml={junit}", KIT / "tests" / "gpu"]
    if importlib.util.find_spec("pytest_timeout"):
        command += ["--timeout", "120"]
    code, said = run.call(*command, seconds=seconds, environment={"FORELOAD_REQUIRE_GPU": "1"})
    if not junit.exists():
        return Outcome([failed("pytest", code, said, seconds)])
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    bad: dict[str, list[str]] = {}
    for case in suite.iter("testcase"):
        for kind in ("failure", "error", "skipped"):
            for found in case.findall(kind):
                message = f"{kind}: " + " ".join((found.get("message") or "").split())[:300]
                name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
                bad.setdefault(message, []).append(name)
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    told = [f"{len(names)} x {message} ({', '.join(names[:5])})" for message, names in bad.items()]
    text = f"{passed} of {counts['tests']} tests passed" + "".join(f"\n- {line}" for line in told)
    data = {**counts, "passed": passed, "bad": bad}
    if not code and passed == counts["tests"] > 0:
        return Outcome([], text, data)
    return Outcome([f"{counts['tests'] - passed} tests failed or were skipped", *told[:3]], text, data)


def parity(run: Run, seconds: float) -> Outcome:
    """How near the pixels come to the CPU's."""
    folder = KIT / "images"
    arguments = ["--data", folder] if folder.is_dir() else []
    code, text, data = run.script("parity", *arguments, seconds=seconds)
    if not code:
        return Outcome([], text, data)
    broken = [
        f"{line['files']}, {line['rung']}: {line['problem']}"
        for line in data.get("lines", [])
        if line["problem"]
    ]
    return Outcome(broken or [failed("parity", code, text, seconds)], text, data)


def stress(run: Run, seconds: float) -> Outcome:
    """Many batches, then a few under compute-sanitizer where there is one."""
    began, most = time.monotonic(), 0.7 * seconds
    code, text, data = run.script("stress", "--seconds", f"{most - 10:.0f}", seconds=most)
    outcome = Outcome(
        data.get("problems") or ([failed("stress", code, text, most)] if code else []), text, data
    )
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if code == NO_DEVICE or not Path(sanitizer).exists():
        outcome.text += "\n\ncompute-sanitizer: not run"
        return outcome
    script = KIT / "benches" / "gpu" / "stress.py"
    few = ("--batches", "200", "--seconds", "600", "--seed", "1", "--no-limits")
    rest = seconds - (time.monotonic() - began)
    code, said = run.call(
        sanitizer, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, script, *few, seconds=rest
    )
    verdict = {0: "no error in 200 batches", 124: f"no end within {rest:.0f} s: nothing shown"}
    outcome.text += f"\n\ncompute-sanitizer: {verdict.get(code, last_line(said))}"
    outcome.data["compute_sanitizer"] = verdict.get(code, last_line(said))
    if code not in verdict:
        outcome.problems.append(failed("compute-sanitizer", code, said, rest))
    return outcome


def bench(run: Run, seconds: float) -> Outcome:
    """Beside the other loaders, on as many ImageNet-like files as this machine can make."""
    began = time.monotonic()
    # Before images are made: is there anything to measure?
    code, said = run.call(sys.executable, "-c", "import torch; torch.cuda.init()", seconds=60)
    if code:
        return Outcome([f"no GPU that torch can use: {last_line(said)}"])
    data = run.scratch / "data"
    code, _ = run.call(
        sys.executable, "-m", "foreload", "synth", data, "--images", IMAGES, seconds=seconds / 4
    )
    if code:
        data = KIT / "images"
        run.say(f"no {IMAGES} images could be made here: {data.name} of the kit it is")
    left = seconds - (time.monotonic() - began)
    logs = run.scratch / "peers.txt"
    arguments = ["--data", data, "--budget", f"{left - 20:.0f}", "--require-targets", "--logs", logs]
    arguments += ["--seconds", 2, "--train-seconds", 3]
    code, text, result = run.script("run", *arguments, seconds=left)
    if logs.exists():
        run.log.write(logs.read_text(errors="replace"))
    for suffix in (".json", ".md"):
        if (kept := (run.scratch / "run").with_suffix(suffix)).exists():
            shutil.copy(kept, run.out / f"bench{suffix}")
    if not code:
        return Outcome([], text, result)
    problems = [
        f"{name}: {entry['failure']}"
        for name, entry in result.get("peers", {}).items()
        if entry["failure"] and name.startswith("foreload")
    ]
    for entry in result.get("peers", {}).values():
        missed = [target for target, met in entry.get("targets", {}).items() if not met]
        problems += [f"{entry['title']}: missed: {target}" for target in missed]
    return Outcome(problems or [failed("bench", code, text, left)], text, result)


PARTS: dict[str, tuple[Callable[[Run, float], Outcome], float, float]] = {
    "install": (install, 1, 60),
    "doctor": (doctor, 1, 30),
    "tests": (tests, 4, 180),
    "parity": (parity, 2, 90),
    "stress": (stress, 5, 240),
    "bench": (bench, 10, 3600),
}
"""Each part with its weight in the time that is left and the most seconds it may take."""
ALWAYS = ("install", "doctor")


def deliver(run: Run, outcomes: dict[str, Outcome]) -> None:
    """Write what is known so far."""
    parts = {name: vars(outcome) for name, outcome in outcomes.items()}
    result = {"kit": read_json(KIT / "MANIFEST.json"), "machine": report.machine(), "parts": parts}
    (run.out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    rows = [
        [name, "; ".join(outcome.problems).replace("|", "/") or "passed", f"{outcome.seconds:.0f} s"]
        for name, outcome in outcomes.items()
    ]
    lines = [report.machine_line(result["machine"]), report.table(["part", "result", "took"], rows)]
    lines += [f"## {name}\n\n{outcome.text}" for name, outcome in outcomes.items() if outcome.text]
    (run.out / "results.md").write_text("\n\n".join(lines) + "\n")


def main() -> int:
    """Run what was asked for; 0 when all passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="+", choices=["all", *PARTS], metavar="PART", help=f"all, or {', '.join(PARTS)}"
    )
    parser.add_argument("--minutes", type=float, default=9, help="time for all parts together")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for what they showed")
    parser.add_argument("--dali", type=Path, help="folder that DALI was installed into (by dali/join.sh)")
    chosen = parser.parse_args()
    wanted = [name for name in PARTS if "all" in chosen.parts or name in chosen.parts or name in ALWAYS]
    run, outcomes = Run(chosen.out, chosen.minutes, chosen.dali), {}
    try:
        for position, name in enumerate(wanted):
            part, weight, most = PARTS[name]
            share = weight / sum(PARTS[later][1] for later in wanted[position:])
            seconds = min(share * (run.deadline - time.monotonic()), most)
            began = time.monotonic()
            run.say(f"== {name}, at most {seconds:.0f} s")
            try:
                outcomes[name] = part(run, seconds) if seconds > 2 else Outcome(["no time was left"])
            except Exception as error:
                outcomes[name] = Outcome([f"{type(error).__name__}: {error}"])
            outcomes[name].seconds = time.monotonic() - began
            deliver(run, outcomes)
    finally:
        shutil.rmtree(run.scratch, ignore_errors=True)
    for name, outcome in outcomes.items():
        run.say(f"{name}: {'; '.join(outcome.problems) or 'passed'}")
    return int(any(outcome.problems for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
