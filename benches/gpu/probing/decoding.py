"""One batch on one backend, into memory that is filled with a poison before and inspected afterwards."""

from __future__ import annotations

import ctypes
import time
from ctypes import byref, c_int, c_size_t, c_uint8, c_uint64, c_void_p

import driver
import numpy as np

from . import library
from .pictures import CHROMA_TOLERANCE, LUMA_TOLERANCE, Picture, Region

ROW, GUARD = 32, 8
"""The alignment of the rows of planes in bytes; and the number of rows below a plane that must not change."""
TIMED, BLOCKING = 0, 1 | 2
"""The flags of events: one with a time, and one to wait for without spinning."""


class Event:
    """An event in a stream."""

    def __init__(self, flags: int = TIMED) -> None:
        self.raw = c_void_p()
        driver.call("cuEventCreate", byref(self.raw), ctypes.c_uint(flags))

    def record(self, stream: int) -> Event:
        driver.call("cuEventRecord", self.raw, c_void_p(stream))
        return self

    def wait(self) -> None:
        driver.call("cuEventSynchronize", self.raw)

    def since(self, earlier: Event) -> float:
        between = ctypes.c_float()
        driver.call("cuEventElapsedTime", byref(between), earlier.raw, self.raw)
        return between.value


class Targets:
    """Device memory for the planes of a batch."""

    def __init__(self, shapes: list[list[tuple[int, int]]]) -> None:
        self.places: list[list[tuple[int, int, int, int]]] = []
        """For each plane of each image: offset, bytes of a row, width, height."""
        end = 0
        for planes in shapes:
            places = []
            for width, height in planes:
                pitch = -(-width // ROW) * ROW
                places.append((end, pitch, width, height))
                end += pitch * (height + GUARD)
            self.places.append(places)
        self.bytes, self.address = end, c_void_p()
        driver.call("cuMemAlloc_v2", byref(self.address), c_size_t(end))
        self.images = (library.Image * len(shapes))()
        for image, places in zip(self.images, self.places, strict=True):
            for index, (offset, pitch, _, _) in enumerate(places):
                image.channel[index], image.pitch[index] = self.address.value + offset, pitch

    def poison(self, value: int, stream: int) -> None:
        """Fill the memory and wait: the engine does not wait for its stream."""
        at, size = c_uint64(self.address.value), c_size_t(self.bytes)
        driver.call("cuMemsetD8Async", at, c_uint8(value), size, c_void_p(stream))
        driver.synchronize(stream)

    def read(self, stream: int) -> np.ndarray:
        host = driver.Pinned(self.bytes)
        driver.copy_to_host(host.address, self.address.value, self.bytes, stream)
        driver.synchronize(stream)
        copied = host.bytes.copy()
        host.close()
        return copied

    def close(self) -> None:
        """Free it."""
        driver.call("cuMemFree_v2", self.address)


class Findings:
    """The result of the images of a batch."""

    def __init__(self) -> None:
        self.counts = {"right": 0, "untouched": 0, "partly untouched": 0, "wrong": 0}
        self.worst = [0, 0]
        """The largest difference in luma and in chroma of an image that was written as a whole."""
        self.beyond = 0
        """The number of bytes outside of planes (to the right and below) that were written."""

    def look(
        self, targets: Targets, raw: np.ndarray, index: int, expected: list[np.ndarray], poison: int
    ) -> None:
        """Evaluate one image; planes without an expectation are not examined."""
        kinds = set()
        for plane, wanted in enumerate(expected):
            offset, pitch, width, height = targets.places[index][plane]
            rows = raw[offset : offset + pitch * (height + GUARD)].reshape(-1, pitch)
            seen = rows[:height, :width]
            self.beyond += int(np.count_nonzero(rows[:height, width:] != poison))
            self.beyond += int(np.count_nonzero(rows[height:] != poison))
            kinds.add(self.judge(seen, wanted, poison, int(plane > 0)))
        verdict = kinds.pop() if len(kinds) == 1 else "wrong" if "wrong" in kinds else "partly untouched"
        self.counts[verdict] += 1

    def judge(self, seen: np.ndarray, wanted: np.ndarray, poison: int, chroma: int) -> str:
        difference = np.abs(seen.astype(np.int16) - wanted)
        within = difference <= (CHROMA_TOLERANCE if chroma else LUMA_TOLERANCE)
        if (seen == poison).all():
            return "untouched"
        if not within.all() and (within | (seen == poison)).all():
            return "partly untouched"
        self.worst[chroma] = max(self.worst[chroma], int(difference.max(initial=0)))
        return "right" if within.all() else "wrong"

    def told(self) -> dict:
        return {
            **self.counts,
            "worst_luma": self.worst[0],
            "worst_chroma": self.worst[1],
            "beyond": self.beyond,
        }


class Batch:
    """Pictures, their wanted parts, and all arguments of a call."""

    def __init__(
        self,
        handle: library.Handle,
        pictures: list[Picture],
        form: str,
        regions: list[Region] | None = None,
        addresses: list[int] | None = None,
        hint: bool = True,
    ) -> None:
        self.handle, self.pictures, self.form = handle, pictures, form
        self.regions = [regions[i % len(regions)] if regions else None for i in range(len(pictures))]
        count = len(pictures)
        self.files = library.pointers(addresses or [library.address_of(p.file) for p in pictures])
        self.lengths = (c_size_t * count)(*[len(picture.file) for picture in pictures])
        self.params = [handle.params(form, region) for region in self.regions]
        self.raw_params = (c_void_p * count)(*[made.raw.value for made in self.params])
        wanted = [p.shapes(form, r) for p, r in zip(pictures, self.regions, strict=True)]
        self.targets = Targets(wanted)
        self.state = handle.state()
        if hint and handle.backend == "HARDWARE" and form == "YUV":
            # Foreload calls this, too; that older libraries refuse it is harmless.
            handle.preallocate(self.state, count, form)

    def initialise(self, threads: int = 1) -> int:
        count, form = c_int(len(self.pictures)), c_int(library.FORMATS[self.form])
        return library.status_of(
            "nvjpegDecodeBatchedInitialize", self.handle.raw, self.state.raw, count, c_int(threads), form
        )

    def decode(self, name: str, stream: int) -> int:
        """Call `nvjpegDecodeBatched` or `nvjpegDecodeBatchedEx`; return the status."""
        more = (self.raw_params,) if name == "nvjpegDecodeBatchedEx" else ()
        return library.status_of(
            name,
            self.handle.raw,
            self.state.raw,
            self.files,
            self.lengths,
            self.targets.images,
            *more,
            c_void_p(stream),
        )

    def try_once(self, name: str, stream: int, poison: int, threads: int = 1) -> dict:
        self.targets.poison(poison, stream)
        begin, end = Event(), Event()
        status = self.initialise(threads)
        if status:
            return {"initialise": library.name_of(status)}
        begin.record(stream)
        clock, cpu = time.perf_counter(), time.thread_time()
        status = self.decode(name, stream)
        host, cpu = time.perf_counter() - clock, time.thread_time() - cpu
        end.record(stream)
        result = {"status": library.name_of(status), "images": len(self.pictures)}
        try:
            end.wait()
        except driver.DriverError as error:
            return result | {"wait": str(error)}
        whole = time.perf_counter() - clock
        result |= {"host_ms": 1e3 * host, "host_cpu_ms": 1e3 * cpu, "until_done_ms": 1e3 * whole}
        result["device_ms"] = end.since(begin)
        return result | self.inspect(stream, poison)

    def inspect(self, stream: int, poison: int) -> dict:
        found, raw = Findings(), self.targets.read(stream)
        for index, (picture, region) in enumerate(zip(self.pictures, self.regions, strict=True)):
            found.look(self.targets, raw, index, picture.expected(self.form, region), poison)
        return found.told()

    def close(self) -> None:
        """Free everything; the stream must have completed."""
        self.state.close()
        for made in self.params:
            made.close()
        self.targets.close()
