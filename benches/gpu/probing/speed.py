"""Measures time and CPU cost of making handles, of single calls, and of batches from several threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_void_p
from functools import cache
from itertools import count as numbers

import driver
import numpy as np

from . import library
from .decoding import BLOCKING, Batch, Event, Targets
from .matrix import POISONS
from .pictures import Picture, Region, drawn, photographs
from .steps import Cell, Context, Step
from .verdicts import PLAINLY

EX, PLAIN = "nvjpegDecodeBatchedEx", "nvjpegDecodeBatched"


def timed(act: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    result = act()
    return 1e3 * (time.perf_counter() - began), result


def start(context: Context, backend: str) -> dict:
    """Measure the time from nothing to a decoded batch and back: a loader's cost at its start and end."""
    told: dict[str, object] = {}
    told["create_ms"], handle = timed(lambda: library.Handle(backend))
    told["create_again_ms"], second = timed(lambda: library.Handle(backend))
    try:
        told["engines"], told["cores"] = handle.engines()
    except library.NvjpegError as error:
        told["engines"] = str(error)
    told["state_ms"], state = timed(handle.state)
    told["preallocate_ms"], status = timed(lambda: handle.preallocate(state, 256, "YUV"))
    told["preallocate"] = library.name_of(status)
    state.close()
    batch = Batch(handle, photographs(context.images, 4 if context.short else 64, context.short), "YUV")
    name = EX if backend == "HARDWARE" else PLAIN
    for number in ("first", "second"):
        try:
            told[f"{number}_batch_ms"], seen = timed(lambda: batch.try_once(name, context.stream, POISONS[0]))
            told[f"{number}_batch"] = seen.get("status", seen)
        except AttributeError as error:
            told[f"{number}_batch"] = str(error)
    batch.close()
    told["destroy_ms"], _ = timed(handle.close)
    second.close()
    told["batch_without_strict"] = without_strict(context, backend, name)
    return told | {"allocations": handle.memory.calls, "allocated_bytes": handle.memory.bytes}


def without_strict(context: Context, backend: str, name: str) -> str:
    """Return the status of a batch without the library's strict mode."""
    try:
        handle = library.Handle(backend, flags=0)
        batch = Batch(handle, photographs(context.images, 4 if context.short else 64, context.short), "YUV")
        seen = batch.try_once(name, context.stream, POISONS[0])
        batch.close()
        handle.close()
    except (library.NvjpegError, AttributeError) as error:
        return str(error)
    return seen.get("status", str(seen))


class Lane:
    """A thread's own handle and stream, used by one cell after another."""

    def __init__(self, backend: str, number: int) -> None:
        self.handle, self.stream = library.Handle(backend), driver.stream(number + 1)


@cache
def lane(backend: str, number: int) -> Lane:
    return Lane(backend, number)


@cache
def pinned(pictures: tuple[Picture, ...]) -> list[int]:
    """Return the addresses of the files, copied into page-locked memory that is never freed."""
    block = driver.Pinned(sum(len(picture.file) for picture in pictures))
    at, addresses = 0, []
    for picture in pictures:
        block.bytes[at : at + len(picture.file)] = np.frombuffer(picture.file, np.uint8)
        addresses.append(block.address + at)
        at += len(picture.file)
    return addresses


def middle(picture: Picture) -> Region:
    """Return a region of about two thirds of a picture in each direction, starting at a whole MCU, like an average
    crop.
    """
    width, height = picture.size
    x, y = width // 6 // 16 * 16, height // 6 // 16 * 16
    return x, y, max(2 * width // 3, 1), max(2 * height // 3, 1)


class Runner(threading.Thread):
    """A thread that decodes its batch repeatedly."""

    def __init__(
        self,
        backend: str,
        number: int,
        name: str,
        batch: Batch,
        gate: threading.Barrier,
        seconds: float,
        helpers: int,
    ) -> None:
        super().__init__(name=f"{backend} {number}")
        self.call, self.batch, self.gate, self.seconds, self.helpers = name, batch, gate, seconds, helpers
        self.stream = lane(backend, number).stream
        self.batches = self.call_seconds = self.cpu_seconds = self.wait_seconds = 0.0
        self.began = self.ended = 0.0
        self.failure: str | None = None

    def run(self) -> None:
        """Decode like a lane of a loader: prepare, call, wait without spinning."""
        try:
            with driver.context():
                self.turns()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            self.gate.abort()

    def turns(self) -> None:
        """Run until the time is up; the first repetition is not counted."""
        done = Event(BLOCKING)
        for turn in numbers():
            if turn == 1:
                self.gate.wait(60)
                self.began, cpu = time.perf_counter(), time.thread_time()
            clock = time.perf_counter()
            if turn > 1 and clock - self.began > self.seconds:
                break
            status = self.batch.initialise(self.helpers) or self.batch.decode(self.call, self.stream)
            called = time.perf_counter()
            if status:
                raise library.NvjpegError(self.call, status)
            done.record(self.stream).wait()
            if turn:
                self.batches += 1
                self.call_seconds += called - clock
                self.wait_seconds += time.perf_counter() - called
        self.ended, self.cpu_seconds = time.perf_counter(), time.thread_time() - cpu
        # Decode again into poisoned memory, in all threads at the same time: is an image skipped under load?
        self.batch.targets.poison(POISONS[1], self.stream)
        self.gate.wait(60)
        status = self.batch.initialise(self.helpers) or self.batch.decode(self.call, self.stream)
        if status:
            raise library.NvjpegError(self.call, status)
        done.record(self.stream).wait()


def rate(
    context: Context,
    backend: str,
    name: str,
    size: int,
    threads: int,
    memory: str = "pageable",
    part: str = "whole",
    hint: bool = True,
    helpers: int = 1,
) -> dict:
    """Return images per second of some threads, each with batches of photographs."""
    pictures = photographs(context.images, size, context.short)
    addresses = pinned(tuple(pictures)) if memory == "page-locked" else None
    regions = [middle(picture) for picture in pictures] if part == "regions" else None
    lanes = [lane(backend, number) for number in range(threads)]
    batches = [Batch(one.handle, pictures, "YUV", regions, addresses, hint) for one in lanes]
    for batch, one in zip(batches, lanes, strict=True):
        batch.targets.poison(POISONS[0], one.stream)
    gate, seconds = threading.Barrier(threads), 0.1 if context.short else 0.7
    runners = [Runner(backend, n, name, batch, gate, seconds, helpers) for n, batch in enumerate(batches)]
    before = [dict(one.handle.memory.calls) for one in lanes]
    process = time.process_time()
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    process = time.process_time() - process
    failures = [runner.failure for runner in runners if runner.failure]
    if failures:
        for one in lanes:
            driver.synchronize(one.stream)
        return {"failed": next((f for f in failures if "BrokenBarrier" not in f), failures[0])}
    turns = sum(runner.batches for runner in runners)
    images = turns * size
    took = max(r.ended for r in runners) - min(r.began for r in runners)
    told = {
        "images_per_s": images / took,
        "call_ms": 1e3 * sum(r.call_seconds for r in runners) / turns,
        "wait_ms": 1e3 * sum(r.wait_seconds for r in runners) / turns,
        "thread_cpu_us_per_image": 1e6 * sum(r.cpu_seconds for r in runners) / images,
        # It includes the first and the last repetition. Together with the threads' own time, it shows the library's
        # threads.
        "process_cpu_us_per_image": 1e6 * process / (images + 2 * threads * size),
        "batches": turns,
    }
    after = [one.handle.memory.calls for one in lanes]
    told["allocations"] = sum(sum(a.values()) - sum(b.values()) for a, b in zip(after, before, strict=True))
    found = [batch.inspect(one.stream, POISONS[1]) for batch, one in zip(batches, lanes, strict=True)]
    told |= {
        key: sum(one[key] for one in found) for key in ("right", "untouched", "partly untouched", "wrong")
    }
    for batch in batches:
        batch.close()
    return told


class Phased:
    """A decoder of one image at a time: Huffman codes on the CPU, the rest on the GPU."""

    def __init__(self, backend: str, stream: int) -> None:
        self.handle, self.stream, self.done = library.Handle("DEFAULT"), stream, Event(BLOCKING)
        raw, of_device, of_host = self.handle.raw, self.handle.memory.of_device, self.handle.memory.of_host
        chosen = c_int(library.BACKENDS[backend])
        self.decoder = library.make("nvjpegDecoderCreate", "nvjpegDecoderDestroy", raw, chosen)
        self.state = library.make("nvjpegDecoderStateCreate", "nvjpegJpegStateDestroy", raw, self.decoder.raw)
        made = ("nvjpegBufferPinnedCreateV2", "nvjpegBufferPinnedDestroy", raw, byref(of_host))
        self.host = library.make(*made)
        made = ("nvjpegBufferDeviceCreateV2", "nvjpegBufferDeviceDestroy", raw, byref(of_device))
        self.device = library.make(*made)
        library.call("nvjpegStateAttachPinnedBuffer", self.state.raw, self.host.raw)
        library.call("nvjpegStateAttachDeviceBuffer", self.state.raw, self.device.raw)
        self.params = self.handle.params("YUV", None)

    def decode(self, file: bytes, targets: Targets, index: int) -> tuple[float, float]:
        """Return the milliseconds of the CPU's phase, and of the rest until it is done."""
        handle, decoder, state, parsed = (
            self.handle.raw,
            self.decoder.raw,
            self.state.raw,
            self.handle.parsed.raw,
        )
        begin = time.perf_counter()
        library.call("nvjpegJpegStreamParse", handle, file, c_size_t(len(file)), c_int(0), c_int(0), parsed)
        library.call("nvjpegDecodeJpegHost", handle, decoder, state, self.params.raw, parsed)
        middle = time.perf_counter()
        stream = c_void_p(self.stream)
        library.call("nvjpegDecodeJpegTransferToDevice", handle, decoder, state, parsed, stream)
        image = byref(targets.images[index])
        library.call("nvjpegDecodeJpegDevice", handle, decoder, state, image, stream)
        self.done.record(self.stream).wait()
        return 1e3 * (middle - begin), 1e3 * (time.perf_counter() - middle)

    def close(self) -> None:
        for made in (self.params, self.state, self.device, self.host, self.decoder):
            made.close()
        self.handle.close()


def phases(context: Context, backend: str, kind: str) -> dict:
    """Decode photographs one by one; the first is not counted."""
    count = 3 if context.short else 65
    if kind == "progressive":
        size = (96, 80) if context.short else (500, 375)
        pictures = [drawn("420", size, seed, progressive=True) for seed in range(min(count, 8))]
        pictures = [pictures[index % len(pictures)] for index in range(count)]
    else:
        pictures = photographs(context.images, count, context.short)
    targets = Targets([picture.shapes("YUV", None) for picture in pictures])
    targets.poison(POISONS[0], context.stream)
    phased = Phased(backend, context.stream)
    cpu, times = 0.0, []
    for index, picture in enumerate(pictures):
        if index == 1:
            cpu = time.thread_time()
        times.append(phased.decode(picture.file, targets, index))
    cpu = time.thread_time() - cpu
    phased.close()
    targets.close()
    host, rest = (sorted(column)[(count - 1) // 2] for column in zip(*times[1:], strict=True))
    return {
        "host_ms": host,
        "rest_ms": rest,
        "thread_cpu_us_per_image": 1e6 * cpu / (count - 1),
        "images": count,
    }


def rate_cell(backend: str, name: str, size: int, threads: int, **variant: object) -> Cell:
    """Return one measurement, whose line has all fields that distinguish it from others."""
    known = {"size": size, "threads": threads, **PLAINLY, **variant}
    told = "".join(f", {key} {value}" for key, value in variant.items())
    return Cell(
        f"{size} images, {threads} threads{told}",
        lambda c: rate(c, backend, name, **known),
        backend=backend,
        **known,
    )


def rate_cells(backend: str, name: str, sizes: tuple[int, ...], threads: tuple[int, ...]) -> Iterator[Cell]:
    for number in threads:
        for size in sizes:
            yield rate_cell(backend, name, size, number)


def variant_cells(backend: str, name: str, size: int, threads: tuple[int, ...]) -> Iterator[Cell]:
    """The cells of page-locked files and of helper threads of the library; for the engine, also of parts of images, and
    of a state without the call that prepares it.
    """
    for number in threads:
        yield rate_cell(backend, name, size, number, memory="page-locked")
        yield rate_cell(backend, name, size, number, helpers=4)
        if name == EX:
            yield rate_cell(backend, name, size, number, part="regions")
            yield rate_cell(backend, name, size, number, hint=False)


def first_steps(short: bool) -> Iterator[Step]:
    for backend in ("HARDWARE", "GPU_HYBRID"):
        yield Step(
            f"start {backend}",
            [Cell("from nothing to a batch and back", lambda c, b=backend: start(c, b))],
            20,
        )


def steps(short: bool) -> Iterator[Step]:
    sizes, threads = ((2, 4), (1, 2)) if short else ((128, 256, 64, 32, 16), (1, 2, 4, 3))
    cells = list(rate_cells("HARDWARE", EX, sizes, threads))
    cells += variant_cells("HARDWARE", EX, sizes[0], threads[: 1 if short else 2])
    yield Step("rates HARDWARE", cells)
    sizes, threads = ((2, 4), (1,)) if short else ((51, 50, 128, 256), (1, 3))
    cells = list(rate_cells("GPU_HYBRID", PLAIN, sizes, threads))
    cells += variant_cells("GPU_HYBRID", PLAIN, 2 if short else 128, threads[:1])
    yield Step("rates GPU_HYBRID", cells, most=30)
    for backend in ("HYBRID", "GPU_HYBRID"):
        kinds = ("baseline", "progressive") if backend == "HYBRID" else ("baseline",)
        cells = [Cell(kind, lambda c, b=backend, k=kind: phases(c, b, k)) for kind in kinds]
        yield Step(f"phases {backend}", cells)
