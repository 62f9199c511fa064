#!/usr/bin/env bash
# Provides the tests with servers of object stores: s3s-fs, which checks Amazon's signatures, and Azure's emulator. What
# cannot be had is left out, and said; the tests that want it say so, too.
set -uo pipefail
cd "$(dirname "$0")/../.."

if [ ! -x .envs/s3s-fs/bin/s3s-fs ]; then
    cargo install --quiet --locked --version 0.14.1 --features binary --root .envs/s3s-fs s3s-fs ||
        echo "no s3s-fs: the tests of s3:// are left out" >&2
fi
if [ ! -d .envs/azurite/node_modules/azurite ]; then
    if command -v node npm >/dev/null; then
        npm install --silent --no-audit --no-fund --omit=optional --prefix .envs/azurite azurite@3.35.0 ||
            echo "no Azurite: the tests of az:// are left out" >&2
    else
        echo "no node and npm: the tests of az://, by Azurite, are left out" >&2
    fi
fi
