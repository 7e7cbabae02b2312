"""Loads the compiled rooms in place of their source, where there are any and they are of exactly this source.

`scripts/compile_rooms.py` makes one shared library beside this file; wheels for a platform have it too. It is asked
for with the first import of a room that may be in it. `TIDEGATE_PURE=1` leaves it alone. A library of other sources is
never used: whoever edits a file sees the edit run, and `running` says why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

__all__ = ["LIBRARY", "ROOMS", "digest", "install", "open_library", "pure_wanted", "running"]

PACKAGE = Path(__file__).resolve().parent
LIBRARY = f"rooms{EXTENSION_SUFFIXES[0]}"

ROOMS = frozenset(("routing", "session", "topics", "wire"))
"""Folders and modules of the package of which something is compiled."""


class Library(Protocol):
    """What the shared library says of itself, and how a module of it is loaded."""

    digest: str
    """Of the sources that it depends on."""
    maker: str
    """What has compiled it."""
    modules: str
    sources: str
    """Files, from the package on."""

    def load(self, name: str, /) -> ModuleType: ...


def pure_wanted() -> bool:
    """Whether the environment says that nothing is to be compiled, and nothing compiled is to run."""
    return os.environ.get("TIDEGATE_PURE", "") not in ("", "0")


def digest(package: Path, sources: Iterable[str]) -> str:
    """Of the content of these files."""
    import hashlib

    found = hashlib.sha256()
    for name in sources:
        content = (package / name).read_bytes()
        found.update(b"%s %d\n%s" % (name.encode(), len(content), content))
    return found.hexdigest()


def open_library(file: Path) -> Library:
    """Raises `ImportError` if it is not one of this Python."""
    name = "tidegate_rooms__mypyc"
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        module = module_from_spec(spec)
        # modules in it take their place from here, as if each were a file beside its source
        module.__file__ = str(file.parent.parent / file.name)
        sys.modules[name] = module
    rooms: Any = _extension("tidegate.rooms", file)
    return rooms  # type: ignore[no-any-return]


def _extension(name: str, file: Path) -> ModuleType:
    return module_from_spec(ModuleSpec(name, ExtensionFileLoader(name, str(file)), origin=str(file)))


class CompiledRooms(MetaPathFinder, Loader):
    """Finds what is compiled."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._library: Library | None = None
        self._modules: frozenset[str] = frozenset()
        self._asked = False
        self.why_not = ""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("tidegate.") or name.split(".", 2)[1] not in ROOMS:
            return None
        self._ask()
        if name not in self._modules:
            return None
        return ModuleSpec(name, self, origin=str(self._package / LIBRARY))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert self._library is not None
        return self._library.load(spec.name)  # it has run then

    def exec_module(self, module: ModuleType) -> None:
        pass

    def running(self) -> str:
        """`compiled`, or `pure` and why."""
        self._ask()
        return "compiled" if self._library is not None else f"pure ({self.why_not})"

    def _ask(self) -> None:
        if self._asked:
            return
        self._asked = True
        if pure_wanted():
            self.why_not = "TIDEGATE_PURE is set"
            return
        file = self._package / LIBRARY
        if not file.exists():
            self.why_not = "not compiled"
            return
        try:
            library = open_library(file)
            fresh = digest(self._package, library.sources.split()) == library.digest
        except (ImportError, OSError) as error:
            self.why_not = f"the compiled rooms cannot be loaded: {error}"
            return
        if not fresh:
            self.why_not = "the source has changed since it was compiled"
            return
        self._library = library
        self._modules = frozenset(library.modules.split())


_rooms = CompiledRooms()


def install() -> None:
    """Before the first room is imported."""
    if _rooms not in sys.meta_path:
        sys.meta_path.insert(0, _rooms)


def running() -> str:
    """Which kind of rooms this process runs: `compiled`, or `pure` and why."""
    return _rooms.running()
