"""When rules of publishers expire: whose are looked at next, of a few publishers at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from tidegate.policy.publisher_rules import Rule
from tidegate.session import Site
from tidegate.session.timers import Timer

LAPSE = 100  # publishers whose rules expire that are looked at in one turn


class RuleExpiry:
    """The times at which rules of publishers expire, and the timer of the next one."""

    def __init__(
        self,
        site: Site,
        *,
        now: Callable[[], float],
        rules: Callable[[], Iterable[tuple[str, Rule]]],
        expired: Callable[[Iterable[str], float], None],
    ) -> None:
        """`now`: the clock that judges. `rules`: all there are, with their publishers. `expired` is called with
        publishers that have rules which expired by then."""
        self._site = site
        self._now = now
        self._rules = rules
        self._expired = expired
        self._expiring: list[tuple[float, str]] = []
        self._over: set[str] = set()  # publishers of rules that were seen to expire
        self._timer: Timer | None = None

    def seen(self, key: str) -> None:
        """A rule of this publisher was seen to expire."""
        self._over.add(key)
        self._arm()

    def wait(self, key: str, rules: Iterable[Rule], *, kept: int) -> None:
        """These have come; `kept` is how many rules there are in all."""
        for rule in rules:
            if rule.expires is not None:
                heappush(self._expiring, (rule.expires, key))
        if len(self._expiring) > 2 * kept + 1024:  # most of them were replaced since
            self._expiring = [(rule.expires, key) for key, rule in self._rules() if rule.expires is not None]
            heapify(self._expiring)
        self._arm()

    def _arm(self) -> None:
        timers = self._site.timers
        timers.cancel(self._timer)
        self._timer = None
        if self._over or self._expiring:
            wait = 0.0 if self._over else max(0.0, self._expiring[0][0] - self._now())
            self._timer = timers.at(self._site.now + wait, self._lapse)

    def _lapse(self) -> None:
        self._timer = None
        now = self._now()
        keys, self._over = self._over, set()
        for _ in range(LAPSE):
            if self._expiring and self._expiring[0][0] <= now:
                keys.add(heappop(self._expiring)[1])
        self._expired(keys, now)
        self._arm()
