#!/usr/bin/env bash
# Names every missing prerequisite with the command that installs it; silent when all are there.
# Usage: prerequisites.sh PYTHON
set -u
python=${1:-python3}
missing=0

need() { # what it is for, then the command that installs it
    printf 'missing: %s\n    install it with: %s\n' "$1" "$2" >&2
    missing=1
}

# Prints the command that installs packages here: names for apt, dnf, pacman, zypper, apk.
package() {
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo "
    if command -v apt-get >/dev/null; then echo "${sudo}apt-get update && ${sudo}apt-get install -y $1"
    elif command -v dnf >/dev/null; then echo "${sudo}dnf install -y $2"
    elif command -v pacman >/dev/null; then echo "${sudo}pacman -S --needed $3"
    elif command -v zypper >/dev/null; then echo "${sudo}zypper install -y $4"
    elif command -v apk >/dev/null; then echo "${sudo}apk add $5"
    else echo "your system's package manager ($1)"; fi
}

command -v cargo >/dev/null ||
    need "cargo (Rust)" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
command -v cc >/dev/null ||
    need "cc (a C compiler)" "$(package build-essential 'gcc glibc-devel' base-devel 'gcc glibc-devel' build-base)"
if ! command -v "$python" >/dev/null; then
    need "$python (Python 3.10 or newer)" "$(package 'python3 python3-venv' python3 python python3 python3)"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    need "Python 3.10 or newer ($python is $("$python" -V 2>&1))" \
        "$(package 'python3 python3-venv' python3.12 python python312 python3), then: make setup PYTHON=python3.12"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    need "the venv module of $python" "$(package python3-venv python3-pip python python3-venv py3-pip)"
fi

if [ $missing = 0 ] && ! said=$(cargo --version 2>&1); then
    printf 'cargo does not run:\n%s\n' "$said" >&2
    missing=1
elif [ $missing = 0 ]; then
    # With rustup the toolchain file decides, and rustup fetches the toolchain; a cargo of the system must be new
    # enough.
    version=$(echo "$said" | sed 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/')
    # shellcheck disable=SC2086
    set -- $version
    if [ "$1" -eq 1 ] && [ "$2" -lt 89 ]; then
        need "Rust 1.89 or newer ($said)" "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
    fi
fi
exit $missing
