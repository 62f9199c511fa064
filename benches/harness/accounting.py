"""Measures CPU time and memory of a process and all its descendants, from the kernel's accounting."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """Return user + system seconds of this process, its ended children and its living descendants."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return seconds + sum(process_cpu_seconds(pid) for pid in descendants(os.getpid()))


def process_cpu_seconds(pid: int) -> float:
    """Return user + system seconds of a process and of its ended children, with a resolution of one clock tick."""
    fields = stat_fields(pid)
    return sum(int(value) for value in fields[11:15]) / TICKS_PER_SECOND if fields else 0.0


def descendants(root: int) -> list[int]:
    """Return the ids of all living processes below `root`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_fields(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def thread_cpu_seconds() -> dict[str, float]:
    """Return user + system seconds of living threads; names that differ only in digits count together."""
    seconds: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, used = (task / "comm").read_text().strip(), task_cpu_seconds(task)
        except OSError:
            continue
        kind = re.sub(r"[ :-]*\d+", "", name) or name
        seconds[kind] = seconds.get(kind, 0.0) + used
    return seconds


def task_cpu_seconds(task: Path) -> float:
    """Return the seconds of one thread: to the nanosecond if the kernel counts that, otherwise in clock ticks."""
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return sum(int(value) for value in fields[11:13]) / TICKS_PER_SECOND


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tree_memory_bytes(root: int) -> int:
    """Return the resident memory of a process and its descendants, with shared pages divided among them (PSS)."""
    return sum(proportional_set_bytes(pid) for pid in [root, *descendants(root)])


def proportional_set_bytes(pid: int) -> int:
    """Return the PSS of one process; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
