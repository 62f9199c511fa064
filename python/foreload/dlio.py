"""Foreload as a data loader of DLIO, the benchmark behind MLPerf Storage.

In a workload's YAML:

    reader:
      data_loader_classname: foreload.dlio.ForeloadDataLoader
      data_loader_sampler: index      # DLIO requires one; the order is Foreload's
    foreload:                         # settings of foreload.FileLoader that DLIO does not have; optional
      cache_dir: /nvme/foreload
      cache_size: 800GB

DLIO's own PyTorch loader opens a sample's file, parses it in a worker process, drops the result, and hands over a
constant array. This one reads the same files to their last byte, in its own order with the same settings. It hands over
the bytes that were read, in `files` of a `foreload.Batch`, and parses nothing. Both make the same number of steps in an
epoch. DLIO's compute is a sleep: its accelerator utilisation measures how long a loader kept it waiting.

Results belong in MLPerf Storage's OPEN division, because the CLOSED one is for the benchmark's own loaders and
samplers. Foreload knows the order of the whole run, loads ahead, and keeps samples on another drive.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
from dlio_benchmark.common.enumerations import DatasetType, FormatType, Shuffle, StorageType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.utils.utility import DLIOMPI
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from foreload._core import Batch, Directory, FileLoader
from foreload._errors import config_error

LOG = logging.getLogger(__name__)

CACHE = {
    "cache_dir": "path",
    "cache_size": "size",
    "cache_fill": "fill",
    "stage_bandwidth": "stage_bandwidth",
}
"""The section's settings of the cache, with their names in `foreload.Directory`."""

SETTINGS = (
    *CACHE,
    "verify",
    "immutable",
    "local_world_size",
    "memory",
    "io",
    "direct",
    "queue_depth",
    "on_error",
    "max_errors",
    "index_dir",
    "rebuild_index",
    "changed",
    "bad_shards",
)
"""The settings that the section `foreload` of a workload may have; DLIO determines all others."""


class ForeloadDataLoader(BaseDataLoader):
    """Foreload as a data loader of DLIO. DLIO makes one for training and one for evaluation.

    DLIO calls `read` once, and `next` for each epoch.

    It uses these settings of DLIO: the folders, `batch_size`, `batch_size_eval`, `file_shuffle` and `sample_shuffle`
    (either one shuffles all samples), `seed` and `seed_change_epoch`. `read_threads` and `prefetch_size` have no
    effect. Next to DLIO's output it writes `RANK_foreload.json`: for each epoch the counters of `Batches.stats()`.
    """

    def __init__(self, format_type: FormatType, dataset_type: DatasetType, epoch: int) -> None:
        # The last argument names one of DLIO's own loaders, which this is not.
        super().__init__(format_type, dataset_type, epoch, None)
        self._loader: FileLoader | None = None
        self._epochs: list[dict[str, Any]] = []

    def read(self) -> None:
        """Open the dataset.

        Raises:
            ConfigError: A setting has an invalid value, or requires something that this loader does not do.
            DatasetError: There is no dataset, or it has more or fewer samples than DLIO's settings say.
        """
        _check(self._args, self.format_type)
        folder = Path(self._args.storage_root, self._args.data_folder, str(self.dataset_type))
        settings = {"local_world_size": DLIOMPI.get_instance().npernode()} | section()
        self._loader = self._open(folder, settings)
        if self._loader.samples > self.num_samples:
            # DLIO uses only its first files.
            self._loader = self._open(folder, settings | {"files": self._listed(folder)})
        steps = self.num_samples // (self.batch_size * self._args.comm_size)
        if len(self._loader) != steps:
            message = f"makes {steps} steps in DLIO, but the samples in {folder} make {len(self._loader)}"
            raise config_error(f"dataset.num_files_{self.dataset_type}", message)
        LOG.info("Foreload reads %s: %d samples, %s", folder, self.num_samples, settings)

    def next(self) -> Iterator[Batch]:
        """Yield one epoch; the next call yields the next one."""
        super().next()
        # DLIO stops after the last step of an epoch, so code after the loop would never run.
        epoch, self.epoch_number = self.epoch_number, self.epoch_number + 1
        self._loader.set_epoch(epoch if self._args.seed_change_epoch else 0)
        batches = iter(self._loader)
        try:
            yield from batches
        finally:
            self._epochs.append({"epoch": epoch, **batches.stats()})

    def finalize(self) -> None:
        """Write the counters of the epochs so far; DLIO calls this after each of them."""
        if self.dataset_type is DatasetType.TRAIN:
            path = Path(self._args.output_folder, f"{self._args.my_rank}_foreload.json")
            path.write_text(json.dumps(self._epochs, indent=1, default=str) + "\n")

    def _open(self, folder: Path, settings: dict[str, Any]) -> FileLoader:
        return FileLoader(
            folder,
            batch_size=self.batch_size,
            seed=_seed(self._args),
            shuffle=_shuffles(self._args),
            last_batch="drop",
            rank=self._args.my_rank,
            world_size=self._args.comm_size,
            progress=False,
            cache=_cache(settings),
            **{name: value for name, value in settings.items() if name not in CACHE},
        )

    def _listed(self, folder: Path) -> Path:
        """Write DLIO's list of files into a file, and return its path."""
        args = self._args
        files = args.file_list_train if self.dataset_type is DatasetType.TRAIN else args.file_list_eval
        path = Path(args.output_folder, f"{args.my_rank}_foreload_{self.dataset_type}.txt")
        path.write_text("".join(f"{os.path.relpath(file, folder)}\n" for file in sorted(files)))
        return path


def _cache(settings: dict[str, Any]) -> Directory | None:
    """Return the cache that the section asks for."""
    given = {member: settings[name] for name, member in CACHE.items() if name in settings}
    return Directory(**given) if given else None


def section() -> dict[str, Any]:
    """Return the section `foreload` of the workload's YAML and of the command line, which DLIO itself ignores.

    Raises:
        ConfigError: It has a name that is not a setting, or that DLIO determines.
    """
    if not HydraConfig.initialized():
        return {}
    running = HydraConfig.get()
    whole = hydra.compose(running.job.config_name, overrides=list(running.overrides.task))
    given = OmegaConf.to_container(whole.workload.get("foreload") or OmegaConf.create(), resolve=True)
    if not isinstance(given, dict):
        raise config_error("foreload", f"is {given!r}, must be a section with settings")
    for name in given:
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise config_error(f"foreload.{name}", f"is not a setting of this section, which has {known}")
    return given


def _check(args: Any, format_type: FormatType) -> None:
    """Raise an error for settings with which this loader would do less than DLIO's own."""
    if args.storage_type is not StorageType.LOCAL_FS:
        message = (
            f"is {args.storage_type}, must be {StorageType.LOCAL_FS}: Foreload reads mounted file systems"
        )
        raise config_error("storage.storage_type", message)
    if args.num_samples_per_file != 1 and format_type is not FormatType.TFRECORD:
        message = f"is {args.num_samples_per_file}, must be 1 in {format_type} files: there, a sample is a whole file"
        raise config_error("dataset.num_samples_per_file", message)
    if args.preprocess_time:
        message = f"is {args.preprocess_time}, must be 0: Foreload returns bytes and preprocesses nothing"
        raise config_error("reader.preprocess_time", message)


def _shuffles(args: Any) -> bool:
    """Return whether DLIO shuffles files or samples, which is the same if a file is a sample."""
    # DLIO 2.0.0 passes `file_shuffle` on from the YAML, where a bare `off` means False.
    return any(str(asked) not in ("off", "False") for asked in (args.file_shuffle, args.sample_shuffle))


def _seed(args: Any) -> int:
    """Return DLIO's seed, or with `random` one that all ranks share."""
    if Shuffle.RANDOM.value in (str(args.file_shuffle), str(args.sample_shuffle)):
        return DLIOMPI.get_instance().comm().bcast(random.SystemRandom().getrandbits(63))
    return args.seed
