"""Who did what, as the audit has it: the rows that `tidegate learn` learns from where no traffic was recorded.

The audit has what was received and subscribed to with `record: decisions`, and with every configuration what was
denied. Who published what is known by those who received it, so what nobody received is missing.

Roles and attributes are those that the directory has now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import orjson

from tidegate.learn.table import PERSON, READ, SUBSCRIBE, WRITE, Row, Who
from tidegate.policy import DEFAULT, Directory
from tidegate.store.journal import AUDIT, Reader
from tidegate.store.journal.rows import Kind
from tidegate.store.journal.selection import Selection
from tidegate.topics import share

_LEARNED: Final = {READ, WRITE, SUBSCRIBE}
_KINDS: Final = {Kind.ALLOWED.value, Kind.DENY.value}


def uses_of_audit(
    data: Path,
    directory: Directory,
    *,
    policies: Iterable[str],
    since: float,
    until: float,
    zone: ZoneInfo,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """`policies`: the ids of those in force; what anything else denied is not for policies to decide."""
    rules = {DEFAULT, *policies}
    people: set[Who] = set()
    with Reader(data, AUDIT, select=Selection(since=since, until=until)) as reader:
        first, end = reader.bounds()
        for row in reader.rows():
            if progress is not None and row["offset"] % 1000 == 0:
                progress(row["offset"] - first, max(1, end - first))
            for use in _uses(row, rules, zone):
                who = use[0], use[1]
                if who not in people:
                    people.add(who)
                    yield (*who, PERSON, "", 0, "", described(directory, *who), 1, use[8], use[9])
                yield use


def described(directory: Directory, user: str | None, client: str) -> str:
    """What the directory says of somebody, as conditions see it; JSON."""
    known = directory.known(user=user, client=client)
    said: dict[str, Any] = dict(known.attributes) | {"roles": known.roles, "groups": known.groups}
    if not known.impostor:
        said["client"] = client
    return orjson.dumps(said, default=str, option=orjson.OPT_SORT_KEYS).decode()


def _uses(row: dict[str, Any], rules: set[str], zone: ZoneInfo) -> Iterator[Row]:
    action, topic, kind = row["action"], row["topic"], row["kind"]
    if action not in _LEARNED or kind not in _KINDS or not topic or topic.startswith("$SYS") or not _client(row):
        return
    at = row["at"].timestamp() if isinstance(row["at"], datetime) else float(row["at"])
    rule = "" if kind == Kind.ALLOWED.value else row["rule"] or DEFAULT
    if rule and rule not in rules:
        return
    if "held" in (row["detail"] or "") and action == SUBSCRIBE:
        rule = DEFAULT
    hour = datetime.fromtimestamp(at, zone).hour
    topic = share(topic)[1] if action == SUBSCRIBE else topic
    if topic.startswith("$"):
        return
    count = row["count"] or 1
    yield row["user"], row["client"] or "", action, topic, hour, rule, "", count, at, at
    if action == READ and not rule:
        for name in (row["publisher"] or "").split(","):
            if (who := _who(name.strip())) is not None:
                yield *who, WRITE, topic, hour, "", "", count, at, at


def _client(row: dict[str, Any]) -> bool:
    return "client:" in (row["link"] or "")


def _who(name: str) -> Who | None:
    """A publisher as the audit writes it: `user:mary/client:tr1`. None if it is no client of this node."""
    if name.startswith("client:"):
        return None, name.removeprefix("client:")
    user, slash, client = name.partition("/client:")
    if not user.startswith("user:") or not slash or "@" in user:
        return None
    return user.removeprefix("user:"), client
