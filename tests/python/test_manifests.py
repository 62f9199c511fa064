"""Manifests that are damaged are refused, or read as Python's own csv and json read them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import foreload
import numpy as np
import pytest
from damaged_fixtures import damaged_text, manifest_rows
from foreload import fields

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "manifest"
COUNT = 600


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
        data = damaged_text(whole, random.Random(seed))
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
        rows = list(manifest_rows(kind, data))
        captions = [caption for batch in batches for caption in batch["caption"]]
        present = [flag for batch in batches for flag in np.from_dlpack(batch.present("caption")).tolist()]
        files = [file for batch in batches for file in batch["image"]]
        assert [caption if here else None for caption, here in zip(captions, present, strict=True)] == [
            row.get("caption") or None for row in rows
        ]
        assert files == [(root / row["file_name"]).read_bytes() for row in rows]
        read += 1
    assert COUNT / 20 < read < COUNT
