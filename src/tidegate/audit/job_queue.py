"""Work that may take long, done in pieces so that the loop never waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tidegate.session import Site

PIECE = 2000  # units of effort between two pauses: less than a millisecond


class JobQueue:
    """Runs jobs one after the other, one piece in each turn of the loop. A job is an iterator that yields to pause."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._jobs: deque[Iterator[None]] = deque()
        self._working = False
        self._spent = 0  # of this piece

    def add(self, job: Iterator[None]) -> None:
        self._jobs.append(job)
        if not self._working:
            self._working = True
            self._site.unfinished.append(self._piece)

    def call(self, do: Callable[[], object]) -> None:
        """Calls a function once the jobs before it are done."""
        self.add(_once(do))

    def tired(self, effort: int = 1) -> bool:
        """Whether a job that has spent so much effort more must pause."""
        self._spent += effort
        if self._spent < PIECE:
            return False
        self._spent = 0
        return True

    def finish(self) -> None:
        """Runs everything now."""
        while self._jobs:
            deque(self._jobs.popleft(), maxlen=0)

    def _piece(self) -> bool:
        """Runs one piece of the first job; True if there is more to do."""
        self._working = False  # also if it fails
        if not self._jobs:
            return False
        job = self._jobs.popleft()
        if next(job, self) is None:
            self._jobs.appendleft(job)
        self._working = bool(self._jobs)
        return self._working


def _once(do: Callable[[], object]) -> Iterator[None]:
    do()
    yield from ()
