"""Files of the lake change places in one step, whatever crashes in between; and nobody steps on another's feet.

A change of the lake is a swap: some files come in, some go. The new ones are written aside, in a staging folder that no
reader looks into. Then the swap is written down; from there on it happens, if need be later: whoever next changes the
lake finishes what a crash has left. New files come in before old ones go, so that a reader in between misses
nothing; it may find a row in both, and `tables.read` takes each once.

Three locks, all of which end with the process that holds them, however it ends:
- `writer-<journal>`: the job of a journal. Two of them would write the same rows, so the second is refused; jobs of
  other journals write beside it;
- `maintenance`: compaction, retention, erasure and the daily quality, one at a time, next to a running job;
- `swap`: for the moment of a swap. This one is waited for.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias
from weakref import finalize

from tidegate.errors import PipelineError
from tidegate.pipeline.lake.tables import Place, replace, trouble
from tidegate.store.disk import sync_path

Step: TypeAlias = Callable[[str], None]
"""Is told each step of a change once it is done; a test dies there."""

_WRITER: Final = "writer-"
MAINTENANCE: Final = "maintenance"
_SWAP: Final = "swap"


def writer(journal: str) -> str:
    return f"{_WRITER}{journal}"


def unwatched(_: str) -> None:
    """Nobody wants to know of the steps."""


class Claim:
    """The right to work in a lake, in one role, and a place to write files aside."""

    def __init__(self, lake: Place, role: str) -> None:
        """PipelineError if somebody else has it."""
        self.lake = lake
        self.role = role
        with trouble(lake.path):
            self._release = finalize(self, os.close, _locked(lake, role, wait=False))
        try:
            with swapping(lake):
                pass  # what a crash has left is finished first: it may still need what was staged
            shutil.rmtree(self._staging, ignore_errors=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._release()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """A new folder for files that come into the lake by a swap; gone afterwards unless one still waits for it."""
        folder = self._staging / uuid.uuid4().hex
        with trouble(self.lake.path):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            if not any(folder.name in _text(path) for path in _swaps(self.lake)):
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _staging(self) -> Path:
        return self.lake.own / "staging" / self.role


@contextmanager
def swapping(lake: Place) -> Iterator[None]:
    """While this lasts nobody else changes the lake, and no change is half done."""
    with trouble(lake.path):
        file = _locked(lake, _SWAP, wait=True)
        try:
            for path in _swaps(lake):
                _carry_out(lake, path, unwatched)
            yield
        finally:
            os.close(file)


def swap(lake: Place, *, add: Sequence[tuple[Path, Path]], remove: Sequence[Path], step: Step = unwatched) -> None:
    """Within `swapping`: staged files come in, (where they are, where they go), and others go."""
    if not add and not remove:
        return
    for staged, _ in add:
        sync_path(staged)
    step("staged")
    swaps = lake.own / "swaps"
    swaps.mkdir(parents=True, exist_ok=True)
    path = swaps / f"{uuid.uuid4().hex}.json"
    content = {
        "tidegate": 1,
        "add": [[_relative(lake, staged), _relative(lake, final)] for staged, final in add],
        "remove": [_relative(lake, old) for old in remove],
    }
    replace(path, json.dumps(content))
    step("intended")
    _carry_out(lake, path, step)


def _carry_out(lake: Place, path: Path, step: Step) -> None:
    """Do what was written down; as often as it takes."""
    try:
        content = json.loads(path.read_text())
        added = [(lake.path / staged, lake.path / final) for staged, final in content["add"]]
        removed = [lake.path / old for old in content["remove"]]
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path} is damaged; compare the files it names with the journal, then remove it"
        ) from error
    touched = set()
    for staged, final in added:
        if staged.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(final)
        elif not final.exists():
            raise PipelineError(f"{path} needs {staged}, which is gone; remove {path}, and the old files stay")
        touched.add(final.parent)
        step("added")
    for folder in touched:
        for changed in (folder, folder.parent, folder.parent.parent):
            sync_path(changed)
    for old in removed:
        old.unlink(missing_ok=True)
        step("removed")
    for folder in {old.parent for old in removed} - touched:
        _tidy(folder)
    path.unlink()
    step("done")


def _tidy(folder: Path) -> None:
    """Remove the folder of a batch, and of its day, if nothing is left in it; not even of somebody else."""
    for empty in (folder, folder.parent):
        try:
            empty.rmdir()
        except OSError:
            return


def remove_day(files: Sequence[Path], step: Step = unwatched) -> None:
    """Within `swapping`: these files go. If a crash interrupts it, it is asked for again."""
    for file in files:
        file.unlink(missing_ok=True)
        step("removed")
    for folder in {file.parent for file in files}:
        _tidy(folder)


def _swaps(lake: Place) -> list[Path]:
    return sorted((lake.own / "swaps").glob("*.json"))


def _text(path: Path) -> str:
    """What a swap says; nothing if somebody else has just carried it out."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _relative(lake: Place, path: Path) -> str:
    return str(path.relative_to(lake.path))


def _locked(lake: Place, name: str, *, wait: bool) -> int:
    folder = lake.own / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(file)
        work = "another job of this journal writes to"
        if not name.startswith(_WRITER):
            work = "compaction, erasure, retention or quality is at work in"
        raise PipelineError(f"{work} {lake.path} (process {holder}); wait until it is done, or stop it") from error
    except BaseException:
        os.close(file)
        raise
    if not wait:
        os.pwrite(file, str(os.getpid()).encode().ljust(32), 0)
    return file
