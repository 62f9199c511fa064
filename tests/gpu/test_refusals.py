"""The behaviour of loaders when the driver refuses a call. Only a stand-in can be made to refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import driver
import foreload
import pytest

pytestmark = pytest.mark.usefixtures("gpu", "runtime")


REFUSED = """
import sys, warnings
sys.path.insert(0, sys.argv[2])
import driver, foreload
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    for batch in foreload.ImageLoader(sys.argv[1], batch_size=4, image_size=32, device="cuda", shared=True):
        print(driver.to_host(batch.images).tobytes().hex()[:4000])
print(*(warning.message for warning in heard), file=sys.stderr)
"""


def test_a_driver_that_does_not_lock_shared_memory_is_told_of(dataset: Path) -> None:
    loader = foreload.ImageLoader(dataset, batch_size=4, image_size=32, device="cpu")
    expected = [driver.to_host(batch.images).tobytes().hex()[:4000] for batch in loader]
    # The first call locks the memory for labels, the second call locks the shared memory of the producer.
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, dataset, Path(__file__).parent],
        env=os.environ | {"FORELOAD_STANDIN_FAIL": "cuMemHostRegister_v2:2:801"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == expected
    assert "cannot page-lock memory that another process shares" in done.stderr
    assert done.stderr.count("ulimit -l") >= 1
