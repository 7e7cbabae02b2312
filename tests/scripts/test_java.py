"""`scripts/java.sh`, with everything that it would find replaced: nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "java.sh"
TOOLS = ("bash", "cp", "head", "mktemp", "rm", "sed", "tail")
VERSIONS = {
    17: 'openjdk version "17.0.15" 2025-04-15',
    21: 'openjdk version "21" 2023-09-19',
    11: 'java version "11.0.2" 2019-01-15 LTS',
    8: 'java version "1.8.0_392"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is on the path."""

    bin: Path

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path

    def java(self, version: int, name: str = "java") -> Path:
        return self.program(name, f"echo '{VERSIONS[version]}' >&2")

    def user(self, number: int) -> None:
        self.program("id", f"echo {number}")

    def packages(self, *known: str, brings: int | None = 17) -> None:
        """Debian's, of which each brings this Java; None: none can be installed."""
        listed = "|".join(known) or "nothing"
        self.program("apt-cache", f"case $2 in {listed}) exit 0;; *) exit 100;; esac")
        installed = "" if brings is None else f"cp {self.java(brings, '../ready')} {self.bin}/java; exit 0"
        install = (
            f'if [ "$1" = install ]; then echo "$*" >>{self.bin}/installed; {installed}\necho no network; exit 100; fi'
        )
        self.program("apt-get", install)

    @property
    def installed(self) -> str:
        found = self.bin / "installed"
        return found.read_text() if found.exists() else ""

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), **variables}
        return subprocess.run([SCRIPT], capture_output=True, text=True, env=environment, timeout=30)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(bin=tmp_path / "bin")
    made.bin.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (made.bin / name).symlink_to(found)
    made.user(1000)
    return made


@pytest.mark.parametrize("version", [17, 21])
def test_one_that_is_there_is_taken(machine: Machine, version: int) -> None:
    java = machine.java(version)
    done = machine.run(CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{java}\n", "")


def test_java_home_comes_first(machine: Machine, tmp_path: Path) -> None:
    machine.java(11)
    home = machine.java(17, "../home/bin/java").resolve()
    assert machine.run(JAVA_HOME=str(tmp_path / "home")).stdout == f"{home}\n"
    machine.java(17)
    machine.java(8, "../home/bin/java")
    for home in (tmp_path / "home", tmp_path / "nowhere"):
        done = machine.run(JAVA_HOME=str(home))
        assert (done.returncode, done.stdout) == (0, "")
        assert f"JAVA_HOME is {home}, and there is no Java 17 or newer in it" in done.stderr


@pytest.mark.parametrize(("version", "why"), [(None, "There is no Java here"), (11, "is Java 11"), (8, "is Java 8")])
def test_nobody_else_may_install(machine: Machine, version: int | None, why: str) -> None:
    if version is not None:
        machine.java(version)
    machine.packages("openjdk-17-jre-headless")
    done = machine.run()
    assert (done.returncode, done.stdout, machine.installed) == (0, "", "")
    assert why in done.stderr
    assert "As root: apt-get install openjdk-17-jre-headless" in done.stderr
    assert "everything but the pipeline runs" in done.stderr
    assert machine.run(CI="true").returncode == 1


def test_no_packages_here(machine: Machine) -> None:
    machine.user(0)
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, "")
    assert "There is no Java here" in done.stderr


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        (("openjdk-17-jre-headless", "default-jre-headless"), "openjdk-17-jre-headless"),
        (("default-jre-headless",), "default-jre-headless"),
    ],
)
def test_root_installs_what_exists(machine: Machine, known: tuple[str, ...], chosen: str) -> None:
    machine.user(0)
    machine.packages(*known)
    done = machine.run(CI="true")
    assert (done.returncode, done.stdout) == (0, f"{machine.bin}/java\n"), done
    assert machine.installed.split()[-1] == chosen


@pytest.mark.parametrize(
    ("known", "brings", "said"),
    [
        ((), 17, "apt-get knows no package with one"),
        (("default-jre-headless",), None, "no network"),
        (("default-jre-headless",), 11, "what default-jre-headless brought is none"),
    ],
)
def test_what_cannot_be_installed(machine: Machine, known: tuple[str, ...], brings: int | None, said: str) -> None:
    machine.user(0)
    machine.packages(*known, brings=brings)
    done = machine.run()
    assert (done.returncode, done.stdout) == (0, ""), done
    assert said in done.stderr
    (machine.bin / "java").unlink(missing_ok=True)
    assert machine.run(CI="true").returncode == 1
