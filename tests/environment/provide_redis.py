"""Provide the tests of streams with a Redis server.

Usage: `.venv/bin/python tests/environment/provide_redis.py`. It comes from Debian (2 MB) where this runs as root;
elsewhere the command that installs it is printed, and the tests that need it are skipped and say so. With
`FORELOAD_REQUIRE_REDIS=1` that is an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benches"))
from harness import environments


def main() -> int:
    """Return 0 when there is a server, or when none is required."""
    if shutil.which("redis-server"):
        return 0
    try:
        environments.ensure_libraries(("redis-server",))
    except environments.Unavailable as reason:
        print(f"no Redis: {reason}", file=sys.stderr)
        return int(os.environ.get("FORELOAD_REQUIRE_REDIS") == "1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
