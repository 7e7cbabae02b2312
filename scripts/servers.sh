#!/usr/bin/env bash
# Sees to it that the servers and clients that tests use are installed, from Debian's packages: Mosquitto, NATS, RabbitMQ,
# HAProxy, PostgreSQL, OpenLDAP's slapd, Node.js, Chromium, and what cuts networks and moves clocks.
# Where they cannot be installed their tests are skipped with the reason; with CI=true that is a failure.
set -euo pipefail

has() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

missing=()
has mosquitto || missing+=(mosquitto)
has mosquitto_pub || missing+=(mosquitto-clients)
has nats-server || missing+=(nats-server)
has rabbitmq-server || missing+=(rabbitmq-server)
has haproxy || missing+=(haproxy)
has slapd || missing+=(slapd)
has node || missing+=(nodejs)
has npm || missing+=(npm)
has ip || missing+=(iproute2)
has chromium || missing+=(chromium)
compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(libfaketime)
# Debian keeps PostgreSQL's server outside the path.
has postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Not installed: ${missing[*]}. As root: apt-get install ${missing[*]}" >&2
  [ "${CI:-}" != true ] || exit 1
  echo "Tests that need them are skipped." >&2
  exit 0
fi

echo "==> installing ${missing[*]}"
# Debian starts a server when it installs one; a Mosquitto on port 1883 would be in the way of `make run`. Tests start
# their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
log=$(mktemp)
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  rm -f "$log"
  echo "Could not install ${missing[*]}." >&2
  [ "${CI:-}" != true ] || exit 1
  echo "Tests that need them are skipped." >&2
  exit 0
fi
rm -f "$log"
