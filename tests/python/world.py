"""A dataset, its index and its cache, and runs over them in separate processes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SAMPLES = 24
CLASSES = ("ant", "bee", "cat")


def jpeg(number: int, size: int = 3000) -> bytes:
    """Return a JPEG file of exactly `size` bytes; it is padded after the image's end."""
    out = io.BytesIO()
    level = 37 * number % 256
    Image.new("RGB", (16 + number % 8, 16), (level, 255 - level, 99)).save(out, "JPEG")
    bytes_ = out.getvalue()
    filler = hashlib.sha256(str(number).encode()).digest() * (size // 32 + 1)
    return bytes_ + filler[: size - len(bytes_)]


def masked_crc(data: bytes) -> bytes:
    """Return TFRecord's masked checksum (tensorflow/core/lib/hash/crc32c.h)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """Return a TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    """Return a tar archive made by Python's own library."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def shard(first: int, label: int = 0, salt: int = 0, size: int = 3000) -> bytes:
    """Return eight images and their classes, from number `first` on."""
    members = []
    for number in range(first, first + 8):
        members.append((f"{number:04}.cls", str((number + label) % 3).encode()))
        members.append((f"{number:04}.jpg", jpeg(number + salt, size)))
    return tar_of(members)


@dataclass
class World:
    """A dataset of one layout, its index and its cache, in one directory."""

    base: Path
    layout: str
    cached: bool

    @property
    def root(self) -> Path:
        """The path of the dataset."""
        return self.base / "data"

    def make(self, root: Path | None = None, salt: int = 0) -> None:
        """Write the dataset; another `salt` gives other contents of the same sizes."""
        root = root or self.root
        root.mkdir(parents=True)
        if self.layout == "tar":
            for number in range(3):
                (root / f"s{number}.tar").write_bytes(shard(8 * number, salt=salt))
        elif self.layout == "tfrecord":
            for number in range(3):
                records = (record(jpeg(8 * number + i + salt)) for i in range(8))
                (root / f"s{number}.tfrecord").write_bytes(b"".join(records))
        else:
            for number in range(SAMPLES):
                folder = root / CLASSES[3 * number // SAMPLES]
                folder.mkdir(exist_ok=True)
                suffix = "jpg" if self.layout == "images" else "bin"
                (folder / f"{number:04}.{suffix}").write_bytes(jpeg(number + salt))

    def files(self) -> list[Path]:
        """Return all files of the dataset, in order."""
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def run(
        self, root: Path | None = None, between: Callable[[], None] | None = None, **settings: Any
    ) -> Run:
        """Run one epoch in another process; with `between`, run two epochs and call it in this process between them."""
        told, tell = os.pipe()
        go, gone = os.pipe()
        with warnings.catch_warnings():
            # The warning is about a fork in a process with threads: the child does not need any of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os.close(told)
            os.close(gone)
            with open(tell, "w") as out, open(go) as wait:
                try:
                    iterate(self, root or self.root, settings, 1 if between is None else 2, out, wait)
                except BaseException:
                    out.write(json.dumps({"defect": traceback.format_exc()}) + "\n")
                out.flush()
                os._exit(0)
        os.close(tell)
        os.close(go)
        reports = []
        with open(told) as lines, open(gone, "w") as start:
            reports.append(json.loads(lines.readline()))
            if between is not None:
                between()
                start.write("go\n")
                start.flush()
                reports.append(json.loads(lines.readline()))
        os.waitpid(child, 0)
        for report in reports:
            assert "defect" not in report, report["defect"]
        return Run(self, reports[-1])


def iterate(world: World, root: Path, settings: dict, epochs: int, out: Any, wait: Any) -> None:
    """Iterate and report the samples; runs in the child."""
    import foreload

    kind = foreload.ImageLoader if world.layout in ("images", "tar") else foreload.FileLoader
    if kind is foreload.ImageLoader:
        settings = {"decoded": False, **settings}
    if world.cached:
        settings = {"cache": foreload.Directory(world.base / "cache", "64MB"), **settings}
    loader = None
    for epoch in range(epochs):
        report: dict[str, Any] = {"samples": [], "error": None, "cache": {}}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                if loader is None:
                    index = world.base / "index"
                    loader = kind(root, batch_size=4, last_batch="partial", index_dir=index, **settings)
                loader.set_epoch(epoch)
                batches = iter(loader)
                for batch in batches:
                    labels = (
                        np.from_dlpack(batch.labels) if kind is foreload.ImageLoader else [0] * len(batch)
                    )
                    for sample, file, label in zip(
                        np.from_dlpack(batch.sample_ids), batch.files, labels, strict=True
                    ):
                        path, offset, length = loader.locate(int(sample))
                        digest = hashlib.sha256(np.from_dlpack(file).tobytes()).hexdigest()
                        report["samples"].append([str(path), offset, length, digest, int(label)])
                report["cache"] = batches.stats().get("cache", {})
            except foreload.Error as error:
                report["error"] = f"{type(error).__name__}: {error}"
        report["warnings"] = [str(warning.message) for warning in said]
        if epoch + 1 == epochs:
            # Samples that were read are stored when the loader ends.
            del loader
        out.write(json.dumps(report) + "\n")
        out.flush()
        if epoch + 1 < epochs:
            wait.readline()


@dataclass
class Run:
    """The samples and the report of a run."""

    world: World
    report: dict[str, Any]

    def wrong(self, truth: Callable[[str, int, int], tuple[str, int] | None] | None = None) -> list[str]:
        """Return the samples that differ from the current contents of the drive."""
        truth = truth or Truth(self.world)
        wrong = []
        for path, offset, length, digest, label in self.report["samples"]:
            if truth(path, offset, length) != (digest, label):
                wrong.append(f"{path} {offset}+{length} label {label}")
        return wrong

    def says(self, *names: str) -> bool:
        """Whether an error or a warning names one of these."""
        said = [self.report["error"] or "", *self.report["warnings"]]
        return any(name in message for message in said for name in names)

    @property
    def hits(self) -> int:
        """The number of samples from the cache."""
        tiers = self.report["cache"].get("tiers", {})
        return sum(tier["hits"] for tier in tiers.values())


class Truth:
    """The current contents of the drive, read by other programs: the digest of a sample's bytes, and its class."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shards: dict[str, dict[int, tuple[str, int]]] = {}

    def __call__(self, path: str, offset: int, length: int) -> tuple[str, int] | None:
        """Return the digest and class of one sample; None if there is no sample."""
        if self.world.layout == "tar":
            return self.members(path).get(offset)
        data = Path(path).read_bytes()
        if self.world.layout == "tfrecord":
            return hashlib.sha256(data[offset : offset + length]).hexdigest(), 0
        label = 0
        if self.world.layout == "images":
            root = Path(path).parents[1]
            label = sorted(entry.name for entry in root.iterdir() if entry.is_dir()).index(
                Path(path).parent.name
            )
        return hashlib.sha256(data).hexdigest(), label

    def members(self, path: str) -> dict[int, tuple[str, int]]:
        """Return the images of a shard by their offsets."""
        if path not in self.shards:
            with tarfile.open(path) as archive:
                all_ = {member.name: member for member in archive}
                self.shards[path] = {
                    member.offset_data: (
                        hashlib.sha256(archive.extractfile(member).read()).hexdigest(),
                        int(archive.extractfile(all_[name[:-3] + "cls"]).read()),
                    )
                    for name, member in all_.items()
                    if name.endswith("jpg")
                }
        return self.shards[path]
