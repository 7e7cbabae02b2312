#!/usr/bin/env bash
# Makes .venv and installs Tidegate with everything for development into it. Safe to repeat.
# PYTHON chooses the interpreter; without it the first of python3, python3.13, 3.12, 3.11 that is new enough.
set -euo pipefail
cd "$(dirname "$0")/.."

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

choose() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  local found
  found=$("${PYTHON:-python3}" -V 2>/dev/null || echo "no ${PYTHON:-python3}")
  echo "Tidegate needs Python 3.11 or newer, and there is $found." >&2
  echo "Install one, or name it: make PYTHON=/path/to/python3.12 run" >&2
  return 1
}

# A folder that was moved or made by another interpreter is made again.
if [ -d .venv ] && ! { new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
  rm -rf .venv
fi

if [ ! -d .venv ]; then
  python=$(choose)
  echo "==> making .venv with $("$python" -V)"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian keeps these in a package of their own.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      echo "==> installing python$version-venv"
      apt-get update -qq
      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "python$version-venv" >/dev/null
    else
      echo "The module venv of $python is missing; as root: apt-get install python$version-venv" >&2
      exit 1
    fi
  fi
  "$python" -m venv .venv
fi

echo "==> installing dependencies into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
