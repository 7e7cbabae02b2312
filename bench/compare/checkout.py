"""The checkout that this tree is compared with: a folder, or a git revision that is unpacked for the run."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench import ROOT
from bench.harness.servers import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A tree that can be run. `name` is a revision or a word, never a path of this machine."""

    name: str
    source: Path
    """The folder that holds the package `tidegate`."""
    pure: bool = False
    """Compiled rooms are left alone."""

    @property
    def root(self) -> Path:
        return self.source.parent

    def environment(self, *more: Path) -> dict[str, str]:
        """How a process runs it."""
        path = os.pathsep.join(map(str, (self.source, *more)))
        return {"PYTHONPATH": path, **({"TIDEGATE_PURE": "1"} if self.pure else {})}


def this_tree() -> Checkout:
    root = Path(ROOT)
    return Checkout(name=_revision(root) or "this tree", source=root / "src")


@contextmanager
def opened(base: str) -> Iterator[Checkout]:
    """The checkout that `base` names: a `src` folder, the folder above it, a git revision of this repository, or
    `pure`: this tree without its compiled rooms."""
    if base == "pure":
        yield Checkout(name="pure", source=this_tree().source, pure=True)
        return
    folder = Path(base)
    for source in (folder, folder / "src"):
        if (source / "tidegate" / "__init__.py").is_file():
            whole = source.resolve()
            yield Checkout(name=_revision(whole.parent) or "base", source=whole)
            return
    packed = _git(Path(ROOT), "archive", "--format=tar", base)  # all of it: where `bench` is differs
    if packed is None:
        raise BenchError(f"{base} is neither a folder with the package tidegate nor a git revision")
    with tempfile.TemporaryDirectory(prefix="tidegate-base-") as name:
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(name, filter="data")
        revision = (_git(Path(ROOT), "rev-parse", "--short", base) or b"").decode().strip()
        yield Checkout(name=revision or base, source=Path(name) / "src")


def _revision(root: Path) -> str | None:
    """The short name of the commit that is checked out at `root`; with a plus sign if files have changed since."""
    revision = _git(root, "rev-parse", "--short", "HEAD")
    if revision is None:
        return None
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    return revision.decode().strip() + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
