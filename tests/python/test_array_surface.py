"""What users of arrays trip over: wrong names and options, arrays called `label`, files as samples with a table."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import foreload
import numpy as np
import pytest
from foreload import fields as F
from numpy import from_dlpack as array

SETTINGS: dict[str, Any] = {"batch_size": 4, "shuffle": False, "device": "cpu"}
HDF5 = Path(__file__).parents[1] / "fixtures" / "hdf5"


def test_a_wrong_name_is_answered_with_the_names_that_exist() -> None:
    with pytest.raises(foreload.Error) as told:
        foreload.Loader(HDF5 / "climate" / "files", fields=[F.Array("/nothing")], **SETTINGS)
    message = str(told.value)
    assert 'has no dataset "/nothing"; there are "/' in message
    assert "change the name in fields=" in message
    assert "download" not in message


def test_options_of_another_type_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    for options, message in (
        ({"scale": "big"}, r'has "x\.npy" with scale="big", must be a finite number$'),
        ({"axis": 1.5}, r"axis=1\.5, must be a whole number$"),
        ({"missing": 2**70}, r'has "x\.npy" with missing=\d+, must be a number, or a list of numbers$'),
        ({"window": (0,)}, r"with a window that has no elements, or more than a batch can have$"),
    ):
        with pytest.raises(foreload.ConfigError, match=message):
            foreload.Loader(tmp_path, fields=[F.Array("x.npy", **options)], **SETTINGS)


def test_an_array_can_be_called_label(tmp_path: Path) -> None:
    x, label = np.zeros((4, 2)), np.arange(8).reshape(4, 2)
    for name, values in ("a", label), ("b", label[:, 0]):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "a.npz", x=x, label=values)
    for batch in foreload.Loader(
        tmp_path / "a", fields=[F.Array("x"), F.Array("label", name="y")], **SETTINGS
    ):
        assert (array(batch["y"]) == label).all()
    for source in (F.Array("label", name="y"), F.Integer("label", name="y")):
        for batch in foreload.Loader(tmp_path / "b", fields=[F.Array("x"), source], **SETTINGS):
            assert (array(batch["y"]) == label[:, 0]).all()


def test_a_table_names_files_that_are_samples(tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.full((2, 2), number))
    table = tmp_path / "ages.csv"
    table.write_text("file_name,age\n3.npy,30\n0.npy,0\n2,20\n1.npy,10\n")
    asked: list[F.Field] = [F.Array("npy", name="x"), F.Integer("age")]
    for batch in foreload.Loader(tmp_path, fields=asked, labels=table, sample_axis="file", **SETTINGS):
        assert (array(batch["age"]) == 10 * array(batch["x"])[:, 0, 0]).all()
    with pytest.raises(foreload.ConfigError, match="samples in shards have no files of their own"):
        foreload.Loader(tmp_path, fields=[F.Array("0.npy"), F.Integer("age")], labels=table, **SETTINGS)
    with pytest.raises(
        foreload.DatasetError, match=r'open the directory of the arrays with sample_axis="file"'
    ):
        foreload.Loader(table, fields=[F.Array("npy")], **SETTINGS)


def test_arrays_that_are_not_in_the_directory_are_found_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    np.save(tmp_path / "part" / "x.npy", np.zeros((4, 2)))
    with pytest.raises(foreload.DatasetError, match=r"such as part/x\.npy: open a directory of arrays"):
        foreload.Loader(tmp_path, fields=[F.Array("x.npy")], **SETTINGS)
    with pytest.raises(foreload.DatasetError, match="patterns are not expanded: name files by braces"):
        foreload.Loader(tmp_path / "part" / "*.npy", fields=[F.Array("x.npy")], **SETTINGS)


def test_numbers_without_a_header_are_refused_with_the_remedy(tmp_path: Path) -> None:
    raw = tmp_path / "x.dat"
    np.arange(8, dtype=np.float32).tofile(raw)
    with pytest.raises(foreload.DatasetError, match=r"write a \.npy file, with numpy\.save"):
        foreload.Loader(raw, fields=[F.Array("x")], **SETTINGS)


def test_an_optional_dataset_of_hdf5_is_absent(tmp_path: Path) -> None:
    for name in ("user.h5", "v108.h5"):
        (tmp_path / name).write_bytes(gzip.decompress((HDF5 / f"{name}.gz").read_bytes()))
    settings = SETTINGS | {"batch_size": 2, "sample_axis": "file"}
    with pytest.raises(foreload.DatasetError, match=r"user\.h5: .*has no dataset .*set its optional=True"):
        foreload.Loader(tmp_path, fields=[F.Array("/run"), F.Array("/links/target")], **settings)
    asked: list[F.Field] = [F.Array("/run"), F.Array("/links/target", name="y", optional=True)]
    for batch in foreload.Loader(tmp_path, fields=asked, **settings):
        assert array(batch.present("y")).tolist() == [False, True]
        assert array(batch["y"]).any(axis=1).tolist() == [False, True]
    asked[1] = F.Array("/none", name="y", optional=True)
    with pytest.warns(foreload.Warning, match="absent in every sample"):
        foreload.Loader(tmp_path, fields=asked, **settings)


def test_pools_are_those_of_windows(tmp_path: Path) -> None:
    root = tmp_path / "rows"
    root.mkdir()
    # The file is sparse: it takes no space.
    rows = np.lib.format.open_memmap(root / "x.npy", "w+", np.float32, (2, 4096, 65536))
    rows[:, 4000:, 60000:] = 1
    del rows
    asked = [F.Array("x.npy", name="x", window=(64, 64), at=(4000, 60000))]
    loader = foreload.Loader(root, fields=asked, memory="16MB", **SETTINGS | {"batch_size": 2})
    assert [array(batch["x"]).min() for batch in loader] == [1]


def test_samples_that_are_too_large_name_the_way_out(tmp_path: Path) -> None:
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (2, 65536, 65536))
    asked = [F.Array("npy", name="x", window=(1, 64, 64))]
    with pytest.raises(
        foreload.ConfigError, match=r'remove sample_axis="file", so that each row is a sample'
    ):
        foreload.Loader(tmp_path, fields=asked, sample_axis="file", **SETTINGS)
    with pytest.raises(foreload.ConfigError, match="or write more and smaller rows"):
        foreload.Loader(tmp_path, fields=[F.Array("x.npy", window=(64, 64))], **SETTINGS)


def index_of(root: Path, directory: Path, *words: str) -> str:
    """Return what `foreload index` says of a dataset."""
    command = [sys.executable, "-m", "foreload", "index", str(root), "--index-dir", str(directory), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_rows_of_one_array_are_the_samples_of_all_files(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    np.savez(root / "a.npz", x=np.zeros((6, 2)), y=np.zeros((2, 1)))
    np.savez(root / "b.npz", x=np.zeros((4, 2)), y=np.zeros((40, 9)))
    assert ": 10 samples" in index_of(root, tmp_path / "index"), "rows of the largest array of the first file"
    assert ": 10 samples" in index_of(root, tmp_path / "index", "--verify"), "each file is read again alike"


def test_the_command_line_makes_the_index_of_a_loader(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    for number in range(4):
        np.savez(root / f"{number}.npz", x=np.zeros((6, 2)), y=np.zeros((2, 9, 9)))

    def said(*words: str) -> str:
        return index_of(root, tmp_path / "index", *words)

    assert ": 8 samples" in said(), "without a choice, rows of the largest array are samples"
    assert ": 24 samples" in said("--fields", "x")
    assert ": 4 samples" in said("--fields", "x,y", "--sample-axis", "file")
    files = len(list((tmp_path / "index").iterdir()))
    for asked, axis in (([F.Array("x")], 0), ([F.Array("x"), F.Array("y")], "file")):
        foreload.Loader(root, fields=asked, sample_axis=axis, index_dir=tmp_path / "index", **SETTINGS)
    assert len(list((tmp_path / "index").iterdir())) == files


def test_the_summary_advises_arrays(tmp_path: Path) -> None:
    root = tmp_path / "rows"
    root.mkdir()
    np.save(root / "x.npy", np.zeros((8, 2)))
    said = index_of(root, tmp_path / "index")
    assert 'fields=["x.npy"] reads the samples without labels' in said
    loader = foreload.Loader(root, fields=["x.npy"], index_dir=tmp_path / "index", **SETTINGS)
    assert len(list(loader)) == 2


def test_the_bench_counts_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((8, 2)))
    command = [
        sys.executable,
        "-m",
        "foreload",
        "bench",
        str(tmp_path),
        "--fields",
        "x.npy",
        "--batch-size",
        "4",
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "8 samples in" in said
    assert "image" not in said
