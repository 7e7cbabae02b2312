"""Taking back a change: which documents have to become what they were before it."""

from __future__ import annotations

from tidegate.admin.documents import FENCE, RequestedChange, content, place
from tidegate.errors import Problem
from tidegate.store.registry import Registry


def changes_to_revert(registry: Registry, sequence: int) -> list[RequestedChange]:
    """The changes that take back everything that was changed together as `sequence`; blocks. Problem if they cannot."""
    entries = registry.since(sequence - 1) if sequence > 0 else []
    incomplete = f"the history of change {sequence} is not complete any more; restore what you want from the history"
    if entries is None:
        raise Problem(incomplete, problem="invalid")
    changed = {(each.kind, each.id): each for each in entries if each.sequence == sequence}
    if not changed:
        raise Problem(f"there is no change {sequence} of documents; look into the history", problem="unknown")
    fence = changed.pop(FENCE, None)
    names = [] if fence is None or fence.body is None else [tuple(each) for each in fence.body["changed"]]
    if set(names) != changed.keys():
        raise Problem(incomplete, problem="invalid")
    return [_previous_version(registry, kind, id, sequence) for kind, id in changed]


def _previous_version(registry: Registry, kind: str, id: str, sequence: int) -> RequestedChange:
    *earlier, last = registry.history(kind, id)
    if last.sequence != sequence:
        text = f"{kind}/{id} was changed again since (version {last.sequence}); take that back first"
        raise Problem(text, problem="conflict", details=[{"at": f"{kind}/{id}", "version": last.sequence}])
    was = earlier[-1].body if earlier else None
    expected = None if last.body is None else sequence
    if was is None:
        return RequestedChange(kind=kind, id=id, body=None, expected=expected)
    return RequestedChange(kind=kind, id=id, body=content(was), expected=expected, place=place(was))
