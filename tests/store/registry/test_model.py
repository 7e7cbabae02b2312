"""Random changes, conflicts and reverts, by several nodes in turn, against a model that is a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.registry.places import NOW, Place, revert
from tidegate.store.registry import Answer, Applied, Change, Conflict, Limits, Reason, Refused

LIMITS = Limits(history=3, deleted=1, documents=2)
NAMES = [("policy", "1"), ("policy", "2"), ("user", "1")]

Name = tuple[str, str]
Body = dict[str, Any] | None


@dataclass
class Model:
    """All that a registry knows, in the plainest way."""

    sequence: int = 0
    forgotten: int = 0
    versions: dict[Name, list[tuple[int, Body]]] = field(default_factory=dict)
    made: dict[int, list[Name]] = field(default_factory=dict)

    def version(self, name: Name) -> int | None:
        number, body = self.versions.get(name, [(0, None)])[-1]
        return None if body is None else number

    def documents(self) -> dict[Name, tuple[int, Body]]:
        return {name: all[-1] for name, all in self.versions.items() if all[-1][1] is not None}

    def apply(self, changes: list[Change]) -> Answer:
        for change in changes:
            version = self.version((change.kind, change.id))
            if version is None and (change.body is None or change.expected is not None):
                return Conflict(kind=change.kind, id=change.id, reason=Reason.MISSING, version=None)
            if version is not None and change.expected is None and change.body is not None:
                return Conflict(kind=change.kind, id=change.id, reason=Reason.EXISTS, version=version)
            if version is not None and change.expected not in (None, version):
                return Conflict(kind=change.kind, id=change.id, reason=Reason.CHANGED, version=version)
        after = set(self.documents()) | {(c.kind, c.id) for c in changes if c.body is not None}
        after -= {(c.kind, c.id) for c in changes if c.body is None}
        if len(after) > LIMITS.documents and len(after) > len(self.documents()):
            return Refused(what="")
        self.sequence += 1
        self.made[self.sequence] = [(change.kind, change.id) for change in changes]
        for change in changes:
            kept = self.versions.setdefault((change.kind, change.id), [])
            kept.append((self.sequence, None if change.body is None else dict(change.body)))
            del kept[: -LIMITS.history]
        deleted = sorted((all[-1][0], name) for name, all in self.versions.items() if all[-1][1] is None)
        for number, name in deleted[: max(0, len(deleted) - LIMITS.deleted)]:
            del self.versions[name]
            self.forgotten = max(self.forgotten, number)
        return Applied(sequence=self.sequence, id="")

    def revert(self, sequence: int) -> Answer:
        names = self.made.get(sequence, [])
        if not names or any(all(n != sequence for n, _ in self.versions.get(name, [])) for name in names):
            return Refused(what="")
        changes = []
        for name in sorted(names):
            *_, (newest, body) = kept = self.versions[name]
            if newest != sequence:
                reason = Reason.MISSING if body is None else Reason.CHANGED
                return Conflict(kind=name[0], id=name[1], reason=reason, version=self.version(name))
            before = kept[-2][1] if len(kept) > 1 else None
            changes.append(Change(kind=name[0], id=name[1], body=before, expected=None if body is None else newest))
        return self.apply(changes)

    def since(self, sequence: int) -> list[tuple[int, Name, Body]] | None:
        if not self.forgotten <= sequence <= self.sequence:
            return None
        return sorted(
            ((number, name, body) for name, all in self.versions.items() for number, body in all if number > sequence),
            key=lambda each: each[:2],
        )


@dataclass(frozen=True)
class Wish:
    """A change whose expected version is chosen when its turn comes: the right one, none, or another."""

    name: Name
    body: Body
    expecting: str

    def change(self, model: Model) -> Change:
        version = model.version(self.name)
        expected = {"right": version, "none": None, "wrong": (version or 0) + 1}[self.expecting]
        return Change(kind=self.name[0], id=self.name[1], body=self.body, expected=expected)


names = st.sampled_from(NAMES)
some = st.fixed_dictionaries({"n": st.integers(0, 99)})
contents = st.one_of(some, some, some, st.none())
expecting = st.sampled_from(["right", "right", "right", "right", "none", "wrong"])
wishes = st.lists(st.builds(Wish, names, contents, expecting), min_size=1, max_size=3, unique_by=lambda w: w.name)
reverts = st.integers(-1, 6)
"""From the newest change back; a negative one has not been made yet."""
steps = st.lists(st.one_of(wishes, wishes, wishes, reverts), min_size=12, max_size=30)


def alike(answer: Answer, expected: Answer) -> bool:
    if isinstance(answer, Applied) and isinstance(expected, Applied):
        return answer.sequence == expected.sequence
    if isinstance(answer, Refused):
        return isinstance(expected, Refused)
    return answer == expected


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_like_the_model(place: Place, steps: list[list[Wish] | int]) -> None:
    here = place.empty()
    model = Model()
    try:
        nodes = [here.registry(limits=LIMITS) for _ in range(2)]
        for number, step in enumerate(steps):
            node = nodes[number % 2]
            if isinstance(step, int):
                sequence = model.sequence - step
                answer, expected = revert(node, sequence, by="ann", why="back", at=NOW), model.revert(sequence)
            else:
                changes = [wish.change(model) for wish in step]
                answer, expected = node.apply(changes, by="ann", why="on", at=NOW), model.apply(changes)
            assert alike(answer, expected), (step, answer, expected)
        reader = nodes[1]
        loaded = reader.load()
        assert loaded.sequence == model.sequence
        assert {(d.kind, d.id): (d.sequence, d.body) for d in loaded.documents} == model.documents()
        for sequence in range(model.sequence + 2):
            told = reader.since(sequence)
            assert (None if told is None else [(e.sequence, (e.kind, e.id), e.body) for e in told]) == model.since(
                sequence
            )
        for name in NAMES:
            assert [(e.sequence, e.body) for e in reader.history(*name)] == model.versions.get(name, [])
        here.check()
    finally:
        here.close()
