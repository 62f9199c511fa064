"""Manifests that are damaged are refused, or read as Python's own csv and json read them."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import fields

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "manifest"
COUNT = 600


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a text with a few bytes changed, left out, doubled or cut off."""
    text = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        match rng.randrange(5):
            case 0:
                text[at] = rng.randrange(256)
            case 1:
                text[at] = rng.choice(b'",\n\r\\{}[]:0-.\0\xff')
            case 2:
                del text[at : at + rng.randint(1, 20)]
            case 3:
                text[at:at] = text[at : at + rng.randint(1, 40)]
            case _:
                del text[at:]
        if not text:
            return b""
    return bytes(text)


def rows_of(kind: str, data: bytes) -> list[dict[str, Any]]:
    """Return the rows that Python reads."""
    text = data.decode("utf-8-sig")
    if kind == "csv":
        header, *rows = csv.reader(io.StringIO(text, newline=""))
        header = [name.strip() for name in header]
        return [dict(zip(header, row, strict=True)) for row in rows if row]
    return [json.loads(line) for line in text.split("\n") if line.strip()]


# A column whose name is damaged is told of.
@pytest.mark.filterwarnings("ignore::foreload.Warning")
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_damaged_manifest_is_refused_or_read_as_python_reads_it(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "files"
    shutil.copytree(FIXTURES / kind / "files", root)
    manifest = root / f"metadata.{kind}"
    whole = manifest.read_bytes()
    read = 0
    for seed in range(COUNT):
        print(f"seed {seed}")
        data = mutated(whole, random.Random(seed))
        manifest.write_bytes(data)
        refused = None
        try:
            loader = foreload.ImageLoader(
                manifest,
                batch_size=9,
                shuffle=False,
                train=False,
                last_batch="partial",
                rebuild_index=True,
                fields=[fields.Bytes("image"), fields.Text("caption", optional=True)],
            )
            batches = list(loader)
        except foreload.Error as error:
            refused = error
        if refused:
            assert not isinstance(refused, foreload.InternalError), refused
            assert str(manifest) in str(refused) or str(refused).startswith("config: fields"), refused
            continue
        rows = rows_of(kind, data)
        captions = [caption for batch in batches for caption in batch["caption"]]
        present = [flag for batch in batches for flag in np.from_dlpack(batch.present("caption")).tolist()]
        files = [file for batch in batches for file in batch["image"]]
        assert [caption if here else None for caption, here in zip(captions, present, strict=True)] == [
            row.get("caption") or None for row in rows
        ]
        assert files == [(root / row["file_name"]).read_bytes() for row in rows]
        read += 1
    assert COUNT / 20 < read < COUNT
