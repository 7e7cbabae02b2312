#!/usr/bin/env bash
# Installs the JavaScript clients that tests drive, as pinned in package-lock.json, below the folder given.
set -euo pipefail
cd "$1"

if ! command -v npm >/dev/null; then
  echo "npm is not installed: tests with JavaScript clients are skipped." >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
fi
echo "==> installing JavaScript clients"
if ! npm ci --silent --no-audit --no-fund --ignore-scripts; then
  echo "npm could not install the JavaScript clients." >&2
  [ "${CI:-}" != true ] || exit 1
  echo "Tests that need them are skipped." >&2
  exit 0
fi
touch node_modules/.installed
