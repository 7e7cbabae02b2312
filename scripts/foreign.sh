#!/usr/bin/env bash
# Installs the JavaScript clients that tests drive, as pinned in package-lock.json, below the folder given; and beside
# them the tests of paho-mqtt, which only its source distribution has. PIP is the command that gets it.
set -euo pipefail
cd "$1"

PAHO=2.2.0
if [ ! -d ".paho-mqtt/paho_mqtt-$PAHO" ]; then
  echo "==> getting the tests of paho-mqtt"
  mkdir -p .paho-mqtt
  if ${PIP:-python3 -m pip} download -q --no-deps --no-binary :all: -d .paho-mqtt "paho-mqtt==$PAHO" &&
    tar -xzf ".paho-mqtt/paho_mqtt-$PAHO.tar.gz" -C .paho-mqtt; then :; else
    echo "The tests of paho-mqtt could not be had." >&2
    [ "${CI:-}" != true ] || exit 1
    echo "Tests that run them are skipped." >&2
  fi
fi

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
