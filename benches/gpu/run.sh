#!/usr/bin/env bash
# Runs the kit on a machine with a GPU: run.sh all --minutes 9 --out results. `run.sh --help` has the rest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# The script lies at the top of a packed kit, or in its place in the repository.
[ -d "$here/benches" ] || here=$here/../..
exec "${PYTHON:-python3}" "$here/benches/gpu/kit.py" "$@"
