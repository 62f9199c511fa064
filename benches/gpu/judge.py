"""Evaluates the measurements of the GPU comparison: medians, shares, targets, points of speed against CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness import aims, report
from harness.aims import at_least, at_most, median

SPEED = at_least(1.2)
"""Images/s as a multiple of the best of DALI and torchvision on CUDA, for the same output."""
CPU = at_most(0.5)
"""Host CPU time per image as a share of the same peer's."""
IDLE = at_most(0.05)
"""The share of a step in which the device waits for the next batch."""
RIVALS = ("dali", "torchvision")
DECODED = "gpu_decoded_"
"""The prefix of the counters of Foreload's decoding backends."""
BACKENDS = ("cuda_packed", "cuda_indexed", "hardware", "cuda_batched", "cuda", "cpu")
NAMED = 6
"""The number of threads that a line about CPU time names."""
STAGES = ("copy", "decode", "augment", "idle")


def summarise(standings: Iterable[Any], peers: Mapping[str, Any], mean_bytes: float) -> dict[str, dict]:
    summary = {}
    for standing in standings:
        peer = peers[standing.name]
        entry = {"title": peer.title, "dtype": peer.dtype, "failure": standing.failure}
        if standing.rounds:
            entry |= measured(standing, mean_bytes)
        entry["points"] = [point_of(answer, mean_bytes) for answer in standing.points]
        summary[standing.name] = entry
    fit = {name: entry for name, entry in summary.items() if "images_per_s" in entry}
    aims.judge_colours(fit.values())
    for name, entry in fit.items():
        rivals = {
            other: fit[other]
            for other in fit
            if other.startswith(RIVALS) and fit[other]["dtype"] == entry["dtype"]
        }
        if rivals:
            compare_with(entry, rivals, targeted=name.startswith("foreload") and "cpu" not in name)
    return summary


def point_of(answer: dict, mean_bytes: float) -> dict:
    point = {key: answer[key] for key in ("told", "backend", "refused") if answer.get(key)}
    if "images" in answer:
        point["images_per_s"] = answer["images"] / answer["seconds"]
        point["cpu_seconds_per_1000"] = 1000 * answer["cpu_seconds"] / answer["images"]
        point |= {key: answer[key] for key in ("mean", "nvjpeg") if key in answer}
        point["threads"] = by_thread([answer])
        if any(name.startswith(DECODED) for name in answer["counters"]):
            point["gpu"] = on_gpu([answer], mean_bytes)
    return point


def by_thread(rounds: list[dict]) -> dict[str, float]:
    """Return CPU seconds per 1 000 images of the process's threads by name, the busiest first."""
    images = sum(r["images"] for r in rounds)
    total: dict[str, float] = {}
    for one in rounds:
        for name, seconds in one.get("threads", {}).items():
            total[name] = total.get(name, 0.0) + 1000 * seconds / images
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def measured(standing: Any, mean_bytes: float) -> dict:
    rounds = standing.rounds
    entry = {
        "images_per_s": report.spread([r["images"] / r["seconds"] for r in rounds]),
        "cpu_seconds_per_1000": report.spread([1000 * r["cpu_seconds"] / r["images"] for r in rounds]),
        "setting": standing.tuned["setting"],
        "tried": standing.tuned["tried"],
        "note": standing.tuned.get("note", ""),
        "nvjpeg": standing.tuned.get("nvjpeg", []),
        "facts": standing.tuned.get("facts", {}),
        "threads": by_thread(rounds),
        **{key: standing.tuned[key] for key in ("shape", "mean", "std")},
    }
    if training := standing.training:
        step = training["seconds"] / training["steps"]
        entry["training"] = {
            "images_per_s": training["images"] / training["seconds"],
            "cpu_seconds_per_1000": 1000 * training["cpu_seconds"] / training["images"],
            "step_seconds": step,
            "step_alone_seconds": training["step_alone_seconds"],
            "slower": step / training["step_alone_seconds"] - 1,
            "idle_share": training["idle_share"],
        }
    if any("gpu_h2d_bytes" in r["counters"] for r in rounds):
        entry["gpu"] = on_gpu(rounds, mean_bytes)
    return entry


def on_gpu(rounds: list[dict], mean_bytes: float) -> dict:
    names = dict.fromkeys(name for r in rounds for name in r["counters"])
    total = {name: sum(r["counters"].get(name, 0) for r in rounds) for name in names}
    seconds, images = sum(r["seconds"] for r in rounds), sum(r["images"] for r in rounds)
    decoded = {backend: total[DECODED + backend] for backend in BACKENDS if DECODED + backend in total}
    whole = max(sum(decoded.values()), 1)
    return {
        "decoded_share": {backend: count / whole for backend, count in decoded.items()},
        "decoded_again": total.get(f"{DECODED}again", 0),
        "h2d_bytes_per_s": total["gpu_h2d_bytes"] / seconds,
        "h2d_bytes_per_image": total["gpu_h2d_bytes"] / images,
        "h2d_bytes_per_file_byte": total["gpu_h2d_bytes"] / images / mean_bytes,
        "stage_ms_per_1000_images": {
            stage: 1e6 * total.get(f"gpu_{stage}_seconds", 0) / images for stage in STAGES
        },
        "idle_share": total.get("gpu_idle_seconds", 0) / seconds,
    }


def compare_with(entry: dict, rivals: dict[str, dict], targeted: bool) -> None:
    """Add the ratios to the fastest rival, and to the rival with the least CPU time."""
    rate, cpu = (
        {name: median(rival, key) for name, rival in rivals.items()}
        for key in ("images_per_s", "cpu_seconds_per_1000")
    )
    best, thrifty = max(rate, key=rate.__getitem__), min(cpu, key=cpu.__getitem__)
    own = median(entry, "cpu_seconds_per_1000")
    entry |= {
        "best_peer": best,
        "speed_factor": median(entry, "images_per_s") / rate[best],
        "cpu_factor": own / cpu[best],
        "thriftiest_peer": thrifty,
        "cpu_factor_of_thriftiest": own / cpu[thrifty],
    }
    if targeted:
        entry["targets"] = {
            f"at least {SPEED.bound} x the images/s of {best}": SPEED.met(entry["speed_factor"]),
            f"at most {CPU.bound} x its CPU time": CPU.met(entry["cpu_factor"]),
        }
        if "training" in entry:
            idle = f"device idle at most {IDLE.bound:.0%} of a step"
            entry["targets"][idle] = IDLE.met(entry["training"]["idle_share"])


def as_text(result: dict) -> str:
    machine, settings, peers = result["machine"], result["settings"], result["peers"]
    parts = [
        f"{machine['gpu']} ({machine['gpu_memory_bytes'] / 2**30:.0f} GiB, driver {machine['driver']}), "
        f"torch {machine['torch']}, CUDA {machine['cuda']}; {report.machine_line(machine)}",
        f"{result['data']['images']} JPEGs, {result['data']['mean_bytes'] / 1000:.0f} KB on average, page cache "
        f"warm; RandomResizedCrop {settings['image_size']} + flip + normalise, NCHW, batch "
        f"{settings['batch_size']}, {settings['threads']} threads or workers; {rounds_of(peers)} rounds of "
        f"{settings['seconds']:g} s, median (range)",
    ]
    head = ["loader", "images/s", "CPU s per 1 000", "x best peer", "its CPU", "setting"]
    head += ["training images/s", "device idle", "step slower by"]
    order = sorted(peers.values(), key=lambda e: -e.get("images_per_s", {}).get("median", 0))
    parts.append(report.table(head, [row(entry) for entry in order]))
    for entry in peers.values():
        if "gpu" in entry:
            parts.append(f"{entry['title']}: {stages_line(entry['gpu'])}")
        for target, met in entry.get("targets", {}).items():
            parts.append(f"{entry['title']}: {target}: {aims.word(met)}")
        if "best_peer" not in entry and "images_per_s" in entry:
            parts.append(f"{entry['title']}: no peer of its data type was measured")
    parts += [f"{e['title']}: nvJPEG is {', '.join(e['nvjpeg'])}" for e in peers.values() if e.get("nvjpeg")]
    for entry in peers.values():
        for name, told in entry.get("facts", {}).get("decoders", {}).items():
            parts.append(f"{entry['title']}: {name}: {told}")
    parts += [f"{e['title']}: {threads_line(e['threads'])}" for e in peers.values() if e.get("threads")]
    if any(entry.get("points") for entry in peers.values()):
        parts.append(points_table(peers))
        parts += backend_lines(peers)
    return "\n\n".join(parts)


def threads_line(threads: dict[str, float]) -> str:
    named = list(threads.items())[:NAMED]
    return "CPU s per 1 000 images by threads: " + ", ".join(f"{name} {spent:.2f}" for name, spent in named)


def points_table(peers: dict[str, dict]) -> str:
    """Return all measurements as points of images/s against CPU time; points that no other point beats in both are
    marked.
    """
    points = []
    for entry in peers.values():
        if "images_per_s" in entry:
            medians = {key: entry[key]["median"] for key in ("images_per_s", "cpu_seconds_per_1000")}
            points.append((entry["title"], {"told": "as compared", "gpu": entry.get("gpu"), **medians}))
        points += [(entry["title"], point) for point in entry.get("points", [])]
    taken = [point for _, point in points if "images_per_s" in point]

    def is_beaten(point: dict) -> bool:
        rate, cpu = point["images_per_s"], point["cpu_seconds_per_1000"]
        return any(o["images_per_s"] > rate and o["cpu_seconds_per_1000"] < cpu for o in taken)

    rows = []
    for title, point in sorted(points, key=lambda pair: -pair[1].get("images_per_s", 0)):
        if "images_per_s" in point:
            figures = [f"{point['images_per_s']:.0f}", f"{point['cpu_seconds_per_1000']:.2f}"]
            figures.append("" if is_beaten(point) else "*")
        else:
            figures = ["", "", ""]
        told = shares(point["gpu"]) if point.get("gpu") else point.get("refused", "").replace("|", "/")
        rows.append([title, point["told"], *figures, told])
    head = ["loader", "settings", "images/s", "CPU s per 1 000", "unbeaten", "decoded by"]
    return report.table(head, rows)


def backend_lines(peers: dict[str, dict]) -> list[str]:
    """Return a verdict on each single backend of Foreload, compared with the fastest rival of its data type."""
    lines = []
    for entry in peers.values():
        best = peers.get(entry.get("best_peer", ""))
        for point in entry.get("points", []):
            if "backend" not in point or point["told"] != f"backend {point['backend']}":
                continue
            name = f"backend {point['backend']} alone"
            if "images_per_s" not in point:
                lines.append(f"{name}: {point.get('refused', 'not measured')}")
                continue
            share = point.get("gpu", {}).get("decoded_share", {}).get(point["backend"])
            served = "does not tell its share" if share is None else f"decoded {share:.0%} of the images"
            beside = ""
            if best:
                speed = point["images_per_s"] / best["images_per_s"]["median"]
                cpu = point["cpu_seconds_per_1000"] / best["cpu_seconds_per_1000"]["median"]
                beside = f", {speed:.2f} x the images/s of {entry['best_peer']} at {cpu:.2f} x its CPU"
            lines.append(
                f"{name}: {served}, {point['images_per_s']:.0f} images/s, "
                f"{point['cpu_seconds_per_1000']:.2f} CPU s per 1 000{beside}"
            )
    return lines


def rounds_of(peers: dict[str, dict]) -> int:
    """Return the number of rounds that were run."""
    return max((len(e["images_per_s"]["values"]) for e in peers.values() if "images_per_s" in e), default=0)


def stages_line(gpu: dict) -> str:
    stages = ", ".join(f"{stage} {ms:.1f}" for stage, ms in gpu["stage_ms_per_1000_images"].items())
    again = (
        f" ({gpu['decoded_again']} once more, after a decoder left them out)" if gpu["decoded_again"] else ""
    )
    return (
        f"decoded by {shares(gpu)}{again}; GPU ms per 1 000 images: {stages}; "
        f"{gpu['h2d_bytes_per_s'] / 1e9:.2f} GB/s to the device, "
        f"{gpu['h2d_bytes_per_file_byte']:.2f} bytes for each byte of a file; lanes idle {gpu['idle_share']:.1%}"
    )


def shares(gpu: dict) -> str:
    return ", ".join(f"{backend} {share:.0%}" for backend, share in gpu["decoded_share"].items())


def row(entry: dict) -> list[str]:
    factors = [report.digits(entry.get(key), 2) for key in ("speed_factor", "cpu_factor")]
    setting = "" if entry.get("setting") == "None" else entry.get("setting")
    setting = ", ".join(told for told in (setting, entry.get("note")) if told)
    training = entry.get("training", {})
    fed = [report.digits(training.get("images_per_s"), 0)]
    fed += [f"{training[key]:.1%}" if training else "" for key in ("idle_share", "slower")]
    title, *cells = report.loader(entry, *factors, setting, *fed)
    if "images_per_s" in entry and entry["failure"]:
        title += f" (failed later: {entry['failure']})".replace("|", "/")
    return [title, *cells]
