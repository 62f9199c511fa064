"""Provide the tests of streams with a Redis server.

Usage: `.venv/bin/python tests/environment/provide_redis.py`. The server comes from Debian (2 MB) if this runs as root.
Otherwise this script prints the command that installs it, and the tests that need it are skipped and say so. With
`FORELOAD_REQUIRE_REDIS=1`, a missing server is an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benches"))
from harness import environments


def main() -> int:
    """Return 0 if there is a server, or if none is required."""
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
