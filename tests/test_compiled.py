"""What is compiled runs: only while it is of the source that is there, and nowhere that it is not wanted.

A small package stands for the whole one, whose compilation takes minutes; it takes the same way through mypyc, the C
compiler, the library and the finder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate import compiled

ROOT = Path(__file__).parents[1]
PROGRAM = """
from tidegate import compiled, topics
from tidegate.session import answer
print(type(topics.double).__name__, topics.double(21), answer.Answer(2).doubled(), compiled.running(), sep="|")
"""
SOURCES = {
    "topics.py": '"""One room."""\n\ndef double(number: int) -> int:\n    return 2 * number\n',
    "session/__init__.py": '"""Another."""\n',
    "session/answer.py": """
from __future__ import annotations
from tidegate.topics import double

class Answer:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def doubled(self) -> int:
        return double(self.number)
""",
}

HOOK = {"path": "scripts/wheel_hook.py"}
PROJECT = f"""
[project]
name = "tidegate"
version = "1"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel]
packages = ["src/tidegate"]
[tool.hatch.build.targets.wheel.hooks.custom]
path = "{HOOK["path"]}"
"""


class Tree:
    """A package with two rooms, and how it is compiled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "src" / "tidegate"
        self.script = root / "scripts" / "compile_rooms.py"
        self.script.parent.mkdir(parents=True)
        self.package.mkdir(parents=True)
        for name in ("compile_rooms.py", "wheel_hook.py"):
            shutil.copy(ROOT / "scripts" / name, self.script.parent)
        (root / "pyproject.toml").write_text(PROJECT)
        shutil.copy(ROOT / ".gitignore", root)  # what it names is in no wheel by itself
        for name in ("__init__.py", "compiled.py"):
            shutil.copy(Path(compiled.__file__).parent / name, self.package)
        for name, source in SOURCES.items():
            (self.package / name).parent.mkdir(exist_ok=True)
            (self.package / name).write_text(source)

    def _python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != "TIDEGATE_PURE"}
        variables = {**clean, "PYTHONPATH": str(self.package.parent), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=self.root)

    def compile(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self._python(str(self.script), *arguments, **environment)

    def run(self, **environment: str) -> list[str]:
        """Of what kind the function is, what it and the method say, and what is said to run."""
        done = self._python("-c", PROGRAM, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split("|")

    def wheel(self, **environment: str) -> Path | str:
        """A wheel, or why there is none."""
        shutil.rmtree(self.root / "dist", ignore_errors=True)
        done = self._python("-m", "hatchling", "build", "-t", "wheel", **environment)
        return next(self.root.glob("dist/*.whl")) if done.returncode == 0 else done.stderr

    @property
    def library(self) -> Path:
        return self.package / compiled.LIBRARY


@pytest.fixture(scope="module")
def compiled_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    done = tree.compile("--must")
    assert done.returncode == 0, done.stderr
    return tree


@pytest.fixture
def tree(compiled_tree: Tree) -> Iterator[Tree]:
    """It is as it was when the test is over."""
    topics, library = compiled_tree.package / "topics.py", compiled_tree.library.read_bytes()
    source = topics.read_text()
    yield compiled_tree
    topics.write_text(source)
    compiled_tree.library.write_bytes(library)


def test_what_is_compiled_runs(tree: Tree) -> None:
    kind, *answers, running = tree.run()
    assert (kind, answers, running) == ("builtin_function_or_method", ["42", "4"], "compiled")


def test_the_environment_says_no(tree: Tree) -> None:
    assert tree.run(TIDEGATE_PURE="1") == ["function", "42", "4", "pure (TIDEGATE_PURE is set)"]
    assert tree.run(TIDEGATE_PURE="0")[-1] == "compiled"


def test_an_edited_file_runs_as_it_stands(tree: Tree) -> None:
    topics = tree.package / "topics.py"
    topics.write_text(topics.read_text().replace("2 *", "3 *"))
    assert tree.run() == ["function", "63", "6", "pure (the source has changed since it was compiled)"]
    topics.write_text(topics.read_text().replace("3 *", "2 *"))
    assert tree.run()[-1] == "compiled"


def test_a_library_that_cannot_be_loaded(tree: Tree) -> None:
    tree.library.unlink()
    assert tree.run()[-1] == "pure (not compiled)"
    tree.library.write_bytes(b"no library")
    kind, *answers, running = tree.run()
    assert (kind, answers) == ("function", ["42", "4"])
    assert running.startswith("pure (the compiled rooms cannot be loaded: ")


def test_nothing_is_compiled_twice(tree: Tree) -> None:
    before = tree.library.stat().st_mtime_ns
    done = tree.compile("--must")
    assert (done.returncode, done.stdout, tree.library.stat().st_mtime_ns) == (0, "", before)


def test_without_a_compiler_the_source_runs(tree: Tree) -> None:
    tree.library.unlink()
    done = tree.compile(CC="no-such-compiler")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Tidegate runs from its source: there is no C compiler (no-such-compiler)\n"
    assert tree.compile("--must", CC="no-such-compiler").returncode == 1
    assert tree.compile(TIDEGATE_PURE="1").stderr == "Tidegate runs from its source: TIDEGATE_PURE is set\n"
    assert tree.run()[:3] == ["function", "42", "4"]


def test_what_mypyc_refuses_is_told(tree: Tree) -> None:
    tree.library.unlink()
    topics = tree.package / "topics.py"
    topics.write_text(topics.read_text() + "\nclass Names(list[str]):\n    pass\n")
    done = tree.compile()
    assert done.returncode == 0
    assert "tidegate/topics.py:6: error: Inheriting from most builtin types is unimplemented" in done.stderr
    assert tree.run()[:3] == ["function", "42", "4"]


def test_a_library_that_is_not_wanted_is_removed(tree: Tree) -> None:
    assert tree.compile("--remove").returncode == 0
    assert tree.run()[-1] == "pure (not compiled)"


# -- wheels ----------------------------------------------------------------------------------------------------------


def test_a_wheel_has_the_library_and_it_loads(tree: Tree, tmp_path: Path) -> None:
    wheel = tree.wheel(TIDEGATE_COMPILE="1")
    assert isinstance(wheel, Path), wheel
    assert not wheel.name.endswith("-none-any.whl")
    with zipfile.ZipFile(wheel) as files:
        assert f"tidegate/{compiled.LIBRARY}" in files.namelist()
        files.extractall(tmp_path)
    kind, *answers, running = tree.run(PYTHONPATH=str(tmp_path))
    assert (kind, answers, running) == ("builtin_function_or_method", ["42", "4"], "compiled")


def test_a_wheel_without_the_library_is_for_any_platform(tree: Tree) -> None:
    wheel = tree.wheel(TIDEGATE_COMPILE="0")
    assert isinstance(wheel, Path), wheel
    assert wheel.name.endswith("-none-any.whl")
    with zipfile.ZipFile(wheel) as files:
        assert not [name for name in files.namelist() if name.endswith(".so")]


def test_a_wheel_that_cannot_be_compiled_is_not_made(tree: Tree) -> None:
    tree.library.unlink()
    assert "there is no C compiler (no-such-compiler)" in str(tree.wheel(TIDEGATE_COMPILE="1", CC="no-such-compiler"))


def test_tidegate_is_built_so() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["hooks"]["custom"] == HOOK
