"""Runs the parts of the GPU kit, each with a time limit, and writes their results into one folder.

    run.sh checks --minutes 9 --out results   install, probe, doctor, tests, parity, arrays, stress
    run.sh bench --minutes 9 --out speed      install, doctor, bench
    run.sh tests parity --out more            some of them

No part stops the next one. The exit code is 0 only if all passed: skipped tests, missed limits and targets count as
failures. `results.json`, `results.md` and `log.txt` are updated after every part. The probe, parity and stress write
`probe.jsonl`, `parity.jsonl` and `stress.jsonl`, with a line for each result at once. The benchmark writes `bench.json`
and `bench.md`, again after each of its measurements. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import calls
from calls import failed, last_line
from harness import report
from probing.answers import unanswered

KIT = report.ROOT
SPARE = 15.0
"""The time at the end, in seconds, for writing results."""
IMAGES = 4000
NEEDED = {"numpy": "numpy", "PIL": "pillow", "pytest": "pytest"}
"""The modules that the parts import in addition to Foreload and torch: the machine or the kit has them."""
NO_DEVICE = 2
"""The exit code of the scripts if there is no GPU."""
REHEARSED = "test_streams or test_unused_capsules"
"""The tests of a rehearsal. They only show that tests are found, run in parallel and are counted."""


@dataclass
class Outcome:
    """The result of a part."""

    problems: list[str] = field(default_factory=list)
    text: str = ""
    data: dict = field(default_factory=dict)
    seconds: float = 0.0


class Run:
    """The common state of the parts: paths, the log, and the time limit."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        self.out, self.deadline = chosen.out, time.monotonic() + 60 * chosen.minutes - SPARE
        self.recording: Path | None = chosen.rehearse
        self.log = (self.out / "log.txt").open("w")
        self.scratch = Path(tempfile.mkdtemp(prefix="foreload-kit-"))
        self.site = self.scratch / "site"
        path = [
            self.site,
            *([chosen.dali] if chosen.dali else []),
            os.environ.get("PYTHONPATH", ""),
        ]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(entry) for entry in path if str(entry)),
            "PYTHONUNBUFFERED": "1",
            "FORELOAD_INDEX_DIR": str(self.scratch / "index"),
        }
        # Results name the kit's own command, not each script's.
        origin = {"FORELOAD_COMMAND": shlex.join(["run.sh", *sys.argv[1:]])}
        if manifest := read_json(KIT / "MANIFEST.json"):
            origin["FORELOAD_COMMIT"] = manifest["commit"]
        os.environ.update(origin)
        self.environment |= origin

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def call(
        self, *command: object, seconds: float, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a command with all its children for a limited time; return its exit code and its output."""
        words = [str(word) for word in command]
        self.say(f"$ {' '.join(words)}".replace(f"{KIT}/", ""))
        return calls.call(words, seconds, self.environment | (environment or {}), KIT, self.say)

    def script(
        self, name: str, *arguments: object, seconds: float, output: Path | None = None
    ) -> tuple[int, str, dict]:
        """Run one of the scripts in this folder; return its exit code, its Markdown and its JSON."""
        output = output or self.scratch / name
        script = KIT / "benches" / "gpu" / f"{name}.py"
        command = (sys.executable, script, *arguments, "--output", output)
        code, said = self.call(*command, seconds=seconds)
        text = output.with_suffix(".md")
        data = read_json(output.with_suffix(".json"))
        return code, text.read_text() if text.exists() else last_line(said), data

    def images(self) -> list[object]:
        """Return the option that names the kit's photographs, if it has any."""
        folder = KIT / "images"
        return ["--data", folder] if folder.is_dir() else []


def read_json(path: Path) -> dict:
    """Return the content of a file; empty if it does not exist."""
    return json.loads(path.read_text()) if path.is_file() else {}


def install(run: Run, seconds: float) -> Outcome:
    """Put the wheels into a folder that comes first on the path; nothing else on the machine is changed."""
    wheels = sorted((KIT / "wheels").glob("*.whl"))
    if run.recording and not wheels:
        return Outcome([], "no wheels: Foreload as this Python finds it")
    if not any(wheel.name.startswith("foreload-") for wheel in wheels):
        return Outcome([f"there is no wheel of Foreload in {KIT.name}/wheels: `make gpu-kit` packs one"])
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", run.site)
    code, said = run.call(*pip, "--disable-pip-version-check", *wheels, seconds=seconds)
    problems = [failed("pip", code, said, seconds)] if code else []
    for module, package in NEEDED.items():
        if importlib.util.find_spec(module) is None and not (run.site / module).is_dir():
            problems.append(f"{package} is missing here: `pack.py --also {package}` brings it along")
    return Outcome(problems, ", ".join(wheel.name for wheel in wheels))


def probe(run: Run, seconds: float) -> Outcome:
    """Query nvJPEG and the driver without Foreload. Any answer is accepted, but no answer is a failure."""
    arguments = ["--lines", run.out / "probe.jsonl", "--seconds", f"{seconds - 10:.0f}"]
    if (KIT / "images").is_dir():
        arguments += ["--images", KIT / "images"]
    arguments += ["--short"] if run.recording else []
    code, text, data = run.script("probe", *arguments, seconds=seconds)
    silent = unanswered(data.pop("lines", []))
    problems = [f"{line['step']}, {line['cell']}: {line['ended']}" for line in silent]
    if code == NO_DEVICE:
        problems = ["no GPU to probe", *problems]
    return Outcome(problems or ([failed("probe", code, text, seconds)] if code else []), text, data)


def doctor(run: Run, seconds: float) -> Outcome:
    """Run `foreload doctor`, which reports what Foreload finds on this machine."""
    code, said = run.call(sys.executable, "-m", "foreload", "doctor", seconds=seconds)
    _, facts = run.call(sys.executable, "-m", "foreload", "doctor", "--json", seconds=seconds)
    if code:
        return Outcome([failed("foreload doctor", code, said, seconds)], said)
    data = json.loads(facts[facts.index("{") :]) if "{" in facts else {}
    device = data.get("device", {})
    problems = [] if device.get("chosen") != "cpu" else [f"the CPU is chosen: {device['because']}"]
    return Outcome(problems, f"```\n{said.rstrip()}\n```", data)


def tests(run: Run, seconds: float) -> Outcome:
    """Run the tests on a device; here a skip is a failure."""
    junit = run.scratch / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-v", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", "/dev/null", "--rootdir", KIT, f"--junitxml={junit}", KIT / "tests" / "gpu"]
    if importlib.util.find_spec("xdist"):
        command += ["-n", "4"]
    if importlib.util.find_spec("pytest_timeout"):
        # A thread enforces the limit, because a signal would wait for a library that hangs. The thread ends a process,
        # which xdist replaces.
        command += ["--timeout", "100", "--timeout-method", "thread"]
    required = "1"
    if run.recording:
        command, required = [*command, "-k", REHEARSED], "stand-in"
    code, said = run.call(*command, seconds=seconds, environment={"FORELOAD_REQUIRE_GPU": required})
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
    problems = [failed("pytest", code, said, seconds)] if code == calls.OVERDUE else []
    if not code and passed == counts["tests"] > 0:
        return Outcome(problems, text, data)
    if passed < counts["tests"] or not problems:
        problems.append(f"{counts['tests'] - passed} tests failed or were skipped")
    return Outcome([*problems, *told[:3]], text, data)


def parity(run: Run, seconds: float) -> Outcome:
    arguments = [*run.images(), "--lines", run.out / "parity.jsonl"]
    arguments = [*arguments[-2:], "--short"] if run.recording else arguments
    code, text, data = run.script("parity", *arguments, seconds=seconds)
    broken = [
        f"{line['files']}, {line['backend']}: {line['problem']}"
        for line in data.get("lines", [])
        if line["problem"]
    ]
    # The script took too long or was ended by a signal; its output still has the comparisons until then.
    broken += [failed("parity", code, text, seconds)] if code not in (0, 1) or (code and not broken) else []
    return Outcome(broken, text, data)


def arrays(run: Run, seconds: float) -> Outcome:
    """Compare arrays on the GPU with the CPU's, and time both."""
    few = ["--rows", "20", "--seconds", "0.1"] if run.recording else []
    code, text, data = run.script("arrays", *few, seconds=seconds)
    broken = [f"{line['case']}: {line['problem']}" for line in data.get("lines", []) if line["problem"]]
    return Outcome(broken or ([failed("arrays", code, text, seconds)] if code else []), text, data)


def stress(run: Run, seconds: float) -> Outcome:
    """Load many batches, then a few under compute-sanitizer if there is one."""
    began, most = time.monotonic(), 0.7 * seconds
    arguments = ["--seconds", f"{most - 10:.0f}", "--lines", run.out / "stress.jsonl"]
    arguments += ["--batches", "120", "--no-limits"] if run.recording else []
    code, text, data = run.script("stress", *arguments, seconds=most)
    outcome = Outcome(
        data.get("problems") or ([failed("stress", code, text, most)] if code else []), text, data
    )
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if code == NO_DEVICE or run.recording or not Path(sanitizer).exists():
        outcome.text += "\n\ncompute-sanitizer: not run"
        return outcome
    script = KIT / "benches" / "gpu" / "stress.py"
    few = ("--batches", "200", "--seconds", "600", "--seed", "1", "--no-limits")
    rest = seconds - (time.monotonic() - began) - calls.GRACE
    # Calls that return an error are part of Foreload's queries to the driver, and Foreload checks them itself.
    checked = ("--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9")
    code, said = run.call(sanitizer, *checked, sys.executable, script, *few, seconds=rest)
    if "not supported" in said or "Unable to" in said:
        verdict = "refused here, nothing shown: " + last_line(said)
    else:
        told = {0: "no error in 200 batches", calls.OVERDUE: f"no end within {rest:.0f} s: nothing shown"}
        verdict = told.get(code, last_line(said))
        outcome.problems += [] if code in told else [failed("compute-sanitizer", code, said, rest)]
    outcome.text += f"\n\ncompute-sanitizer: {verdict}"
    outcome.data["compute_sanitizer"] = verdict
    return outcome


def bench(run: Run, seconds: float) -> Outcome:
    """Compare with the other loaders, on as many ImageNet-like files as this machine can make in time."""
    began = time.monotonic()
    arguments: list[object] = ["--require-targets"]
    count = IMAGES
    if run.recording:
        count, arguments = 24, [*arguments, "--recorded", run.recording, "--rounds", "2", "--seconds", "0.1"]
        arguments += ["--train-seconds", "0.1"]
    else:
        # Before making images, check that there is a GPU to measure.
        code, said = run.call(sys.executable, "-c", "import torch; torch.cuda.init()", seconds=60)
        if code:
            return Outcome([f"no GPU that torch can use: {last_line(said)}"])
        arguments += ["--seconds", 2, "--train-seconds", 3]
    data = run.scratch / "data"
    code, _ = run.call(
        sys.executable, "-m", "foreload", "synth", data, "--images", count, seconds=seconds / 4
    )
    if code:
        data = KIT / "images"
        run.say(f"no {count} images could be made here: {data.name} of the kit it is")
    left = seconds - (time.monotonic() - began)
    arguments += ["--data", data, "--budget", f"{left - 20:.0f}"]
    code, text, result = run.script("run", *arguments, seconds=left, output=run.out / "bench")
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
    if code != 1 or not problems:
        problems.append(failed("bench", code, text, left))
    return Outcome(problems, text, result)


PARTS: dict[str, tuple[Callable[[Run, float], Outcome], float, float]] = {
    "install": (install, 1, 60),
    "probe": (probe, 5, 170),
    "doctor": (doctor, 1, 30),
    "tests": (tests, 5, 200),
    "parity": (parity, 3, 120),
    "arrays": (arrays, 1, 60),
    "stress": (stress, 5, 240),
    "bench": (bench, 15, 3600),
}
"""Each part with its weight in the remaining time, and the most seconds it may take."""
ALWAYS = ("install", "doctor")
GROUPS = {"all": tuple(PARTS), "checks": ("probe", "tests", "parity", "arrays", "stress")}


def deliver(run: Run, outcomes: dict[str, Outcome]) -> None:
    parts = {name: vars(outcome) for name, outcome in outcomes.items()}
    result = {"kit": read_json(KIT / "MANIFEST.json"), "machine": report.machine(), "parts": parts}
    report.replace(run.out / "results.json", json.dumps(result, indent=1) + "\n")
    rows = [
        [name, "; ".join(outcome.problems).replace("|", "/") or "passed", f"{outcome.seconds:.0f} s"]
        for name, outcome in outcomes.items()
    ]
    lines = [report.machine_line(result["machine"]), report.table(["part", "result", "took"], rows)]
    lines += [f"## {name}\n\n{outcome.text}" for name, outcome in outcomes.items() if outcome.text]
    report.replace(run.out / "results.md", "\n\n".join(lines) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = f"{', '.join(GROUPS)}, or some of {', '.join(PARTS)}"
    parser.add_argument("parts", nargs="+", choices=[*GROUPS, *PARTS], metavar="PART", help=names)
    parser.add_argument("--minutes", type=float, default=9, help="time for all parts together")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for what they showed")
    parser.add_argument("--dali", type=Path, help="folder that DALI was installed into (by dali/join.sh)")
    parser.add_argument(
        "--rehearse",
        type=Path,
        metavar="RECORDING",
        help="small and few, on the stand-ins: try the kit itself, with other loaders' answers from this file",
    )
    chosen = parser.parse_args()
    # The parts run in the kit's folder, not in the caller's.
    for name in ("out", "dali", "rehearse"):
        setattr(chosen, name, getattr(chosen, name) and getattr(chosen, name).resolve())
    if (chosen.out / "results.json").exists():
        parser.error(f"--out: {chosen.out} has the results of another run: name another folder")
    asked = {part for name in chosen.parts for part in GROUPS.get(name, (name,))}
    chosen.parts = [name for name in PARTS if name in asked or name in ALWAYS]
    return chosen


def main() -> int:
    chosen = parse_arguments()
    # If the kit is ended by a signal it still writes its results so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run, outcomes = Run(chosen), {}
    try:
        for position, name in enumerate(chosen.parts):
            part, weight, most = PARTS[name]
            share = weight / sum(PARTS[later][1] for later in chosen.parts[position:])
            seconds = min(share * (run.deadline - time.monotonic()), most)
            began = time.monotonic()
            run.say(f"== {name}, at most {seconds:.0f} s")
            try:
                outcomes[name] = part(run, seconds) if seconds > 2 else Outcome(["no time was left"])
            except KeyboardInterrupt:
                outcomes[name] = Outcome(["it was interrupted"])
                raise
            except Exception as error:
                outcomes[name] = Outcome([f"{type(error).__name__}: {error}"])
            finally:
                outcomes[name].seconds = time.monotonic() - began
                deliver(run, outcomes)
    except KeyboardInterrupt:
        run.say("interrupted: the parts that follow were not run")
    finally:
        shutil.rmtree(run.scratch, ignore_errors=True)
    for name, outcome in outcomes.items():
        run.say(f"{name}: {'; '.join(outcome.problems) or 'passed'}")
    return int(len(outcomes) < len(chosen.parts) or any(outcome.problems for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
