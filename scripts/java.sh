#!/usr/bin/env bash
# Sees to it that there is a Java runtime for Spark, and prints its path: JAVA_HOME's, or the one on the path, or one
# from Debian's packages. Where there is none and none can be installed the pipeline does not run; with CI=true that is a
# failure.
set -euo pipefail

oldest=17

# The major version of a runtime; nothing if it is none.
version() {
  local said
  said=$("$1" -version 2>&1) || return 0
  sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' <<<"$said" | head -n 1
}

# The runtime that Spark would use: it takes JAVA_HOME without looking further.
chosen() {
  if [ -n "${JAVA_HOME:-}" ]; then
    echo "$JAVA_HOME/bin/java"
  else
    command -v java || true
  fi
}

works() {
  local found
  found=$(version "$1")
  [ -n "$found" ] && [ "$found" -ge "$oldest" ]
}

give_up() {
  echo "$1" >&2
  [ "${CI:-}" != true ] || exit 1
  echo "Without it everything but the pipeline runs." >&2
  exit 0
}

java=$(chosen)
if [ -n "$java" ] && works "$java"; then
  echo "$java"
  exit 0
fi
if [ -n "${JAVA_HOME:-}" ]; then
  give_up "JAVA_HOME is $JAVA_HOME, and there is no Java $oldest or newer in it: set it to one, or unset it."
fi
if [ -n "$java" ]; then
  why="$java is Java $(version "$java" || true), and Spark needs $oldest or newer"
else
  why="There is no Java here, and Spark needs $oldest or newer"
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  give_up "$why. As root: apt-get install openjdk-$oldest-jre-headless"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt-get update -qq >"$log" 2>&1 || true # what is already known may be enough
package=
for candidate in "openjdk-$oldest-jre-headless" default-jre-headless; do
  if apt-cache show "$candidate" >/dev/null 2>&1; then
    package=$candidate
    break
  fi
done
[ -n "$package" ] || give_up "$why, and apt-get knows no package with one: install one by hand."
echo "==> installing $package" >&2
if ! DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package" >>"$log" 2>&1; then
  tail -n 20 "$log" >&2
  give_up "$why, and $package could not be installed."
fi
java=$(chosen)
if [ -z "$java" ] || ! works "$java"; then
  give_up "$why, and what $package brought is none: set JAVA_HOME to one."
fi
echo "$java"
