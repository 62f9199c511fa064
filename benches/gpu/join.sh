#!/usr/bin/env bash
# Joins DALI's pieces and installs it into FOLDER/dali-site: join.sh FOLDER, then run.sh all --dali FOLDER/dali-site.
# Pieces may come one by one: each call takes those that lie beside this script, and says what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: join.sh FOLDER" >&2; exit 2; }
kept=$1/dali-pieces
site=$1/dali-site
mkdir -p "$kept"
cp "$here/SHA256SUMS" "$kept/"
for piece in "$here"/piece-*; do
    [ ! -e "$piece" ] || cp "$piece" "$kept/"
done
cd "$kept"
missing=$(while read -r _ name; do [ -e "$name" ] || echo "$name"; done <SHA256SUMS)
if [ -n "$missing" ]; then
    echo "still missing:" $missing
    exit 0
fi
sha256sum --quiet --check SHA256SUMS
mkdir -p wheels
cat piece-* | tar x -C wheels
"${PYTHON:-python3}" -m pip install --quiet --no-index --no-deps --upgrade --target "$site" wheels/*.whl
PYTHONPATH=$site "${PYTHON:-python3}" -c 'import nvidia.dali; print("DALI", nvidia.dali.__version__, "stands")'
rm -rf wheels
