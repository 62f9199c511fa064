"""The meaning of the probe's lines for Foreload: a sentence for each open question, with figures."""

from __future__ import annotations

from collections.abc import Callable

from .answers import unanswered

Lines = list[dict]
EX, PLAIN = "nvjpegDecodeBatchedEx", "nvjpegDecodeBatched"


def of(lines: Lines, step: str, **known: object) -> Lines:
    """Return lines of the steps whose names begin with `step`, with these fields."""
    return [
        line
        for line in lines
        if line["step"].startswith(step) and all(line.get(key) == value for key, value in known.items())
    ]


def failure(line: dict) -> str | None:
    if "ended" in line:
        return line["ended"] + (f" ({line['said'][-200:]})" if line.get("said") else "")
    return line.get("error") or line.get("failed") or line.get("device")


def without_gpu(lines: Lines) -> str | None:
    return next((failure(line) for line in of(lines, "device") if failure(line)), None)


def library(lines: Lines) -> str:
    parts = []
    for line in of(lines, "machine") + of(lines, "device"):
        if "nvjpeg" in line:
            lacks = ", ".join(line["no_such_symbol"]) or "none"
            parts.append(f"nvJPEG {line['version']} from {line['nvjpeg']}, functions it lacks: {lacks}")
            parts += [f"also there: {file}, {version}" for file, version in line.get("others", {}).items()]
            parts.append(f"libnvcuvid.so.1: {line['libnvcuvid.so.1']}")
        elif "capability" in line:
            parts.append(
                f"{line['name']}, compute capability {line['capability']}, driver for CUDA {line['cuda']}"
            )
        elif failure(line):
            parts.append(f"{line['cell']}: {failure(line)}")
    return "; ".join(parts)


def starting(lines: Lines) -> str:
    parts = []
    for line in of(lines, "start"):
        backend = line["step"].removeprefix("start ")
        if failure(line):
            parts.append(f"{backend}: {failure(line)}")
            continue
        engines = f"{line['engines']} engines x {line['cores']} cores, " if "cores" in line else ""
        times = ("create", "create_again", "state", "preallocate", "first_batch", "second_batch", "destroy")
        given = (name for name in times if f"{name}_ms" in line)
        told = ", ".join(f"{name.replace('_', ' ')} {line[f'{name}_ms']:.1f}" for name in given)
        strict, lax = line.get("second_batch"), line.get("batch_without_strict")
        differs = "" if strict == lax else f", a batch {strict} when asked to be strict, else {lax}"
        parts.append(f"{backend}: {engines}{told} ms{differs}")
    return "; ".join(parts)


def calls(lines: Lines) -> str:
    parts = []
    for backend in ("HARDWARE", "GPU_HYBRID", "HYBRID", "DEFAULT"):
        for call in (PLAIN, EX):
            # The formats that Foreload uses: planes of colour, luma of gray.
            asked = [
                line
                for line in lines
                if line["step"] == f"pixels {backend}"
                and line.get("call") == call
                and (line["form"] == "Y") == (line["kind"] == "gray")
            ]
            for shape in ("even", "odd", "regions"):
                group = [line for line in asked if line["shape"] == shape]
                if group:
                    parts.append(f"{backend}, {call.removeprefix('nvjpeg')}, {shape}: {decoded(group)}")
    return "\n".join(f"  - {part}" for part in parts)


def decoded(group: Lines) -> str:
    """Report the results of the kinds of a shape; kinds with the same result are named together."""
    outcomes: dict[str, list[str]] = {}
    for line in group:
        outcomes.setdefault(outcome(line), []).append(line["kind"])
    return "; ".join(f"{text} ({', '.join(kinds)})" for text, kinds in outcomes.items())


def outcome(line: dict) -> str:
    if reason := failure(line):
        return reason
    if "initialise" in line:
        return f"refused at once, {line['initialise']}"
    if line["status"] != "SUCCESS" or "wait" in line:
        return line.get("wait") or line["status"]
    if line["right"] == line["images"]:
        return "right"
    bad = [f"{line[kind]} {kind}" for kind in BAD if line[kind]]
    return f"SUCCESS, but of {line['images']} {', '.join(bad)}"


def promises(lines: Lines) -> str:
    """Report kinds that the library claims to support but does not decode."""
    broken = []
    for line in lines:
        for question, answer in line.get("answers", {}).items():
            kind, _, asked = question.partition(": ")
            if answer != 0 or not line["step"].startswith("pixels "):
                continue
            call, shapes = (
                (PLAIN, ("odd",))
                if asked == "Supported"
                else (EX, ("regions",) if "region" in asked else ("odd",))
            )
            tried = [
                t
                for t in lines
                if t["step"] == line["step"] and t.get("call") == call and t.get("kind") == kind
            ]
            form = "Y" if kind == "gray" else "YUV"
            bad = {outcome(t) for t in tried if t["shape"] in shapes and t["form"] == form} - {"right"}
            broken += [f"{line['step'].removeprefix('pixels ')}, {question}: {text}" for text in bad]
    return "; ".join(broken) or ("nowhere" if any("answers" in line for line in lines) else "")


BAD = ("untouched", "partly untouched", "wrong")


def skipping(lines: Lines) -> str:
    """Report whether the engine returns success for images that it did not write, alone or with other threads."""
    found = of(lines, "skips")
    if not found:
        return ""
    asked = [line for line in found if not failure(line)]
    images = sum(line["images"] for line in asked)
    told = [f"{sum(line[kind] for line in asked)} {kind}" for kind in BAD]
    statuses = {status for line in asked for status in line["status"]}
    beyond = sum(line["beyond"] for line in asked)
    text = f"of {images} images {', '.join(told)}; statuses {', '.join(sorted(statuses)) or 'none'}; "
    text += f"{beyond} bytes written next to or below planes"
    crowd = [line for line in of(lines, "rates HARDWARE") if "images_per_s" in line]
    if crowd:
        told = [f"{sum(line[kind] for line in crowd)} {kind}" for kind in BAD]
        images = sum(line["size"] * line["threads"] for line in crowd)
        text += f"; with several threads at once, of {images} images {', '.join(told)}"
    return "; ".join([text, *(f"{line['cell']}: {failure(line)}" for line in found if failure(line))])


def damage(lines: Lines) -> str:
    parts = []
    for line in of(lines, "damage"):
        header = f"header {line['header']}, " if "header" in line else ""
        parts.append(f"  - {line['step'].removeprefix('damage ')}, {line['cell']}: {header}{outcome(line)}")
    return "\n".join(parts)


def best(lines: Lines) -> str:
    parts = []
    for backend in ("HARDWARE", "GPU_HYBRID"):
        rates = [line for line in of(lines, f"rates {backend}") if "images_per_s" in line]
        if rates:
            top = max(rates, key=lambda line: line["images_per_s"])
            parts.append(
                f"{backend}: {top['images_per_s']:.0f} images/s ({top['cell']}), "
                f"{top['process_cpu_us_per_image']:.0f} us of CPU an image, call {top['call_ms']:.2f} ms, "
                f"wait {top['wait_ms']:.2f} ms"
            )
    for line in of(lines, "phases"):
        told = (
            failure(line)
            or f"{line['host_ms']:.2f} ms on the CPU, {line['rest_ms']:.2f} ms on the GPU an image"
        )
        parts.append(f"{line['step'].removeprefix('phases ')} one by one, {line['cell']}: {told}")
    return "; ".join(parts)


VARIANTS = {"memory": "page-locked", "part": "regions", "hint": False, "helpers": 4}
PLAINLY = {"memory": "pageable", "part": "whole", "hint": True, "helpers": 1}
"""The usual fields of a measurement of speed."""


def variants(lines: Lines) -> str:
    """Report the gain or cost of page-locked files, regions, helper threads and the engine's preparation."""
    parts = []
    for key, value in VARIANTS.items():
        for line in of(lines, "rates", **{key: value}):
            same = {name: line[name] for name in ("backend", "size", "threads")}
            plain = next(iter(of(lines, "rates", **same, **PLAINLY)), {})
            if "images_per_s" in line and "images_per_s" in plain:
                factor = line["images_per_s"] / plain["images_per_s"]
                cpu = line["process_cpu_us_per_image"] - plain["process_cpu_us_per_image"]
                where = f"{line['backend']}, {line['size']} images, {line['threads']} threads"
                parts.append(
                    f"  - {key} {value}: {where}: {factor:.2f} x the images/s, {cpu:+.0f} us of CPU an image"
                )
    return "\n".join(parts)


def few(lines: Lines) -> str:
    """Report whether GPU_HYBRID really decodes differently from 51 images on."""
    rates = {
        line["size"]: line
        for line in of(lines, "rates GPU_HYBRID", threads=1, **PLAINLY)
        if "images_per_s" in line
    }
    told = [
        f"{size}: {line['images_per_s']:.0f} images/s, {line['process_cpu_us_per_image']:.0f} us of CPU"
        for size, line in sorted(rates.items())
    ]
    return "; ".join(told)


def pools(lines: Lines) -> str:
    told = []
    for line in of(lines, "pools"):
        answers = failure(line) or f"{line['create']}" + (
            f", a block: {line['allocate']}" if "allocate" in line else ""
        )
        told.append(f"{line['cell']}: {answers}")
    return "; ".join(told)


def modules(lines: Lines) -> str:
    """Report the driver's results for modules that suit it and for others."""
    return "; ".join(
        f"{line['cell']}: {line.get('answer') or failure(line)}" for line in of(lines, "modules")
    )


def locking(lines: Lines) -> str:
    told = []
    for line in of(lines, "page locking"):
        times = (
            f"{name} {line[f'{name}_ms']:.2f} ms" for name in ("register", "allocate") if f"{name}_ms" in line
        )
        told.append(f"{line['cell']}: " + (failure(line) or ", ".join(times)))
    return "; ".join(told)


def captures(lines: Lines) -> str:
    told = []
    for line in of(lines, "capture"):
        if reason := failure(line):
            told.append(f"{line['cell']}: {reason}")
            continue
        broken = [
            f"{name} ({answer['call'] if answer['call'] != 'ok' else answer['capture']})"
            for name, answer in line["calls"].items()
            if answer != {"call": "ok", "capture": "ok"}
        ]
        told.append(f"{line['cell']}: {', '.join(broken) or 'none breaks it'}")
    return "; ".join(told)


QUESTIONS: dict[str, Callable[[Lines], str]] = {
    "what there is": library,
    "starting and ending": starting,
    "which call decodes what": calls,
    "said to be supported, yet not decoded": promises,
    "images that the engine skips in spite of its success": skipping,
    "images a second": best,
    "page-locked files and other variants": variants,
    "few images in a batch on GPU_HYBRID": few,
    "pools with a largest size": pools,
    "modules": modules,
    "page-locking": locking,
    "calls during a graph's capture": captures,
    "damaged files": damage,
}


def as_text(lines: Lines) -> str:
    parts = []
    for question, answer in QUESTIONS.items():
        text = answer(lines)
        if text:
            parts.append(f"- **{question}:**" + ("\n" if text.startswith("  -") else " ") + text)
    parts += [f"- no answer: {line['step']}, {line['cell']}: {line['ended']}" for line in unanswered(lines)]
    return "\n".join(parts)
