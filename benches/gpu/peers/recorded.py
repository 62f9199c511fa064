"""A loader that replays recorded answers of another one, so that the comparison can be tested without a GPU.

    recorded.py RECORDING NAME

    {"device": {"gpu": ...}, "peers": {NAME: {"tune": {...}, "feed": {...}, "train": {...}, "point": {...}}}}

An answer that is not in the recording is a failure, as with a loader that cannot run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Answer each line of stdin until it ends."""
    answers = json.loads(Path(sys.argv[1]).read_text())["peers"].get(sys.argv[2], {})
    for line in sys.stdin:
        asked = json.loads(line)["do"]
        reply = answers.get(asked) or {"failure": f"the recording has no answer of {sys.argv[2]} to {asked}"}
        print(json.dumps(reply), flush=True)
        if "failure" in reply:
            break


if __name__ == "__main__":
    main()
