"""Starts DLIO without two things that its results do not need.

- It imports TensorFlow for a profiler that is not used here.
- For each sample its reader makes a text of the whole list of files for a log that is not written: milliseconds, with
  thousands of files, and so the most its own loader does. `FORELOAD_DLIO_AS_IT_IS=1` leaves that as it is.
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
    """A list of files whose text is short."""

    def __repr__(self) -> str:
        return f"{len(self)} files"


def quiet(method):
    return lambda *arguments: Files(method(*arguments))


if "FORELOAD_DLIO_AS_IT_IS" not in os.environ:
    ConfigArguments.get_global_map_index = quiet(ConfigArguments.get_global_map_index)

main()
