#!/usr/bin/env bash
# Writes cuda/nvjpeg-sys/src/sys.rs from the headers in PyPI's wheels, or with --check compares it with the file that is
# there. Usage: run.sh PYTHON [--check]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 check=${2:-}
place=.envs/bindings
wanted=cuda/nvjpeg-bindings/requirements.txt
if ! cmp -s "$wanted" "$place/installed"; then
    rm -rf "$place"
    if ! "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$place" -r "$wanted"; then
        rm -rf "$place"
        [ -n "$check" ] && [ -z "${FORELOAD_REQUIRE_BINDINGS:-}" ] || exit 1
        echo "skipped: whether nvJPEG's bindings are up to date: its headers cannot be had from PyPI now" >&2
        exit 0
    fi
    cp "$wanted" "$place/installed"
fi
export LIBCLANG_PATH=$PWD/$place/clang/native
# The wheel has libclang alone; the headers that belong to a compiler come from the compiler of this machine.
export BINDGEN_EXTRA_CLANG_ARGS="-isystem $(cc -print-file-name=include)"
include=$place/nvidia/cu13/include
target=cuda/nvjpeg-sys/src/sys.rs
fresh=$place/sys.rs
cargo run --locked -q -p nvjpeg-bindings -- "$include/nvjpeg.h" "$fresh" "$include"
rustfmt --edition 2024 --config-path . "$fresh"
if [ -z "$check" ]; then
    cp "$fresh" "$target"
elif ! diff -u "$target" "$fresh"; then
    echo "$target is not what NVIDIA's header gives: make bindings" >&2
    exit 1
fi
