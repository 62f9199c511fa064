"""Starts DLIO without two costs that do not affect its results.

- It imports TensorFlow for a profiler that is not used here.
- For each sample its reader formats the whole list of files for a log message that is not written. With thousands of
  files this takes milliseconds, most of its own loader's work. `FORELOAD_DLIO_AS_IT_IS=1` leaves this unchanged.
"""

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

if importlib.util.find_spec("tensorflow") is None:
    sys.modules["tensorflow"] = absent = ModuleType("tensorflow")
    absent.__spec__ = ModuleSpec("tensorflow", None)

from dlio_benchmark.main import main
from dlio_benchmark.utils.config import ConfigArguments


class Files(dict):
    """A list of files with a short text form."""

    def __repr__(self) -> str:
        return f"{len(self)} files"


def quiet(method):
    return lambda *arguments: Files(method(*arguments))


if "FORELOAD_DLIO_AS_IT_IS" not in os.environ:
    ConfigArguments.get_global_map_index = quiet(ConfigArguments.get_global_map_index)

main()
