"""What is subscribed to here is told to other nodes, so that only that crosses (`forward: subscriptions`).

The end that forwards asks (`ASK`); the other one tells the filters that somebody at its side wants, and then each
change. Filters are told as topics are called between the nodes. What other nodes want is wanted here, too, and told to
the rest.

- A filter comes with the nodes that it has come through. None of them takes it again, so that what nobody wants any
  more does not go round for good.
- Held subscriptions are not told. One with a demand is told over links that meet it, with the demand.
- A filter that nobody wants any more is taken back after a moment, and not at all if somebody wants it again.
- Only trusted nodes are told. What monitors here listen to counts as wanted.
- What the other side wants stays known while it is away, and over a restart: it is owed the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from tidegate.errors import ProtocolError
from tidegate.monitor import Direction
from tidegate.policy import Demand
from tidegate.policy.demands import effective_demand, meets
from tidegate.policy.scopes import Forward, ScopeLink
from tidegate.session import Grant, LinkSession, Session
from tidegate.topics import valid_filter

if TYPE_CHECKING:
    from tidegate.scope.node_links import LinkEnd, NodeLinks
    from tidegate.scope.scope import Scope

WANTED: Final = "$tidegate/link/wanted"
ASK: Final = b""
ROOM: Final = "wanted"
"""In the store: link and filter as JSON."""
MOST: Final = 20_000  # filters of one link; with more, everything is wanted
FARTHEST: Final = 64  # nodes that a filter comes through
DEMANDS: Final = 8  # of one filter
PIECE: Final = 200  # filters of one packet, and that are looked at in one go
BYTES: Final = 16 * 1024  # of what one packet says
MOMENT: Final = 2.0  # seconds before a filter is taken back
_EVERYTHING: Final = "#"


@dataclass(frozen=True, slots=True)
class Want:
    """That somebody wants what matches a filter."""

    qos: int
    path: tuple[str, ...] = ()
    """The nodes that it has come through, the nearest first."""
    demands: tuple[str, ...] = ()
    """One of them has to be met by the links on the way; none: no matter how it comes."""

    @classmethod
    def read(cls, said: Any) -> Want:
        match said:
            case [int(qos), list(path), list(demands)] if 0 <= qos <= 2 and len(path) <= FARTHEST:
                texts = [*path, *demands]
                if len(demands) <= DEMANDS and all(isinstance(text, str) and len(text) <= 200 for text in texts):
                    return cls(qos, tuple(path), tuple(demands))
        raise ProtocolError("what somebody wants of a link cannot be read")

    @property
    def said(self) -> Any:
        return [self.qos, self.path, self.demands]


def united(wants: list[Want]) -> Want:
    """What several want together."""
    path = min((want.path for want in wants), key=len)
    free = any(not want.demands for want in wants)
    demands = sorted({demand for want in wants for demand in want.demands})
    return Want(max(want.qos for want in wants), path, () if free or len(demands) > DEMANDS else tuple(demands))


class WantedThere:
    """What the other side of one link wants of it."""

    def __init__(self, end: LinkEnd) -> None:
        self._end = end
        self._told: dict[str, Want] = {}
        self._coming: dict[str, Want] | None = None  # all of it, which comes in pieces
        self.here: dict[str, Want] = {}
        """The same under the names that topics have here."""

    def restore(self, filter: str, data: bytes) -> None:
        self._told[filter] = Want.read(orjson.loads(data))

    def arrange(self, link: ScopeLink | None) -> None:
        """What of that crosses, under the names that it has here."""
        by_name: dict[str, list[Want]] = {}
        for filter, want in self._told.items():
            for share in () if link is None else link.shares:
                own = share.asked_for(filter)
                if own is not None:
                    by_name.setdefault(own, []).append(Want(min(want.qos, share.qos), want.path, want.demands))
        before, self.here = self.here, {own: united(wants) for own, wants in by_name.items()}
        if self._end.links.subscriptions.active:
            for own in self.here.keys() | before.keys():
                if self.here.get(own) != before.get(own):
                    self._end.links.subscriptions.changed(self._end.link.near, own)

    def take(self, said: Any) -> None:
        """The other end tells it."""
        node = self._end.site.origin.node
        added = {}
        match said:
            case {"all": bool(first), "add": dict(add), "remove": list(remove), "more": bool(more)}:
                for filter, each in add.items():
                    want = Want.read(each)
                    if not valid_filter(filter) or filter.startswith("$"):
                        raise ProtocolError("what somebody wants of a link is no filter")
                    if node not in want.path:
                        added[filter] = want
            case _:
                raise ProtocolError("what somebody wants of a link cannot be read")
        if first:
            self._coming = {}
        if self._coming is not None:
            self._coming |= added
            if more:
                if len(self._coming) > MOST:
                    raise ProtocolError("more filters than one link may have")
                return
            coming, self._coming = self._coming, None
            self._keep({**dict.fromkeys(self._told.keys() - coming.keys()), **coming})
            self._end.told_what_is_wanted()
            return
        gone = [filter for filter in remove if isinstance(filter, str) and filter in self._told]
        # one that has come through this node, and is told anew, is not wanted by anybody else
        gone += [filter for filter in add if filter not in added and filter in self._told]
        self._keep({**dict.fromkeys(gone), **added})
        if len(self._told) > MOST:
            raise ProtocolError("more filters than one link may have")
        self._end.route()

    def _keep(self, changes: Mapping[str, Want | None]) -> None:
        store, link = self._end.site.store, self._end.link.name
        for filter, want in changes.items():
            if self._told.get(filter) == want:
                continue
            key = orjson.dumps((link, filter)).decode()
            if want is None:
                del self._told[filter]
                store.keep(ROOM, key, None, urgent=False)
            else:
                self._told[filter] = want
                store.keep(ROOM, key, orjson.dumps(want.said), urgent=False)

    def end(self) -> None:
        """The link is gone."""
        self._keep(dict.fromkeys(self._told))


class WantedHere:
    """What the other end of one link has been told that is wanted here."""

    def __init__(self, end: LinkEnd) -> None:
        self._end = end
        self.asked = False  # on this connection
        self._answered = False
        self._too_many = False
        self.told: dict[str, Want] = {}
        self._leaving: dict[str, float] = {}  # when a filter is taken back
        self._timer = False

    def opened(self) -> None:
        """There is a new connection, or none."""
        self.asked = self._answered = False
        self.told.clear()
        self._leaving.clear()

    def tell_all(self, wanted: Mapping[str, Want]) -> None:
        self._too_many = len(wanted) > MOST
        if self._too_many:
            wanted = {_EVERYTHING: Want(2, (self._end.site.origin.node,))}
        self.told = dict(wanted)
        self._answered = True
        self._leaving.clear()
        self._send(wanted, (), whole=True)

    def change(self, wanted: Mapping[str, Want | None]) -> None:
        """These filters are wanted otherwise, or by nobody any more."""
        if not self._answered or self._too_many:
            return  # all of it is told soon, or everything crosses until the link opens anew
        added = {}
        now = self._end.site.now
        for filter, want in wanted.items():
            if want is None:
                if filter in self.told:
                    self._leaving.setdefault(filter, now + MOMENT)
                continue
            self._leaving.pop(filter, None)
            if self.told.get(filter) != want:
                added[filter] = self.told[filter] = want
        if len(self.told) > MOST:
            self._end.links.subscriptions.tell(self._end)
        elif added:
            self._send(added, ())
        self._arm()

    def _arm(self) -> None:
        if self._leaving and not self._timer:
            self._timer = True
            self._end.site.timers.at(min(self._leaving.values()), self._take_back)

    def _take_back(self) -> None:
        self._timer = False
        now = self._end.site.now
        gone = [filter for filter, due in self._leaving.items() if due <= now]
        for filter in gone:
            del self._leaving[filter], self.told[filter]
        if gone and self.asked:
            self._send({}, gone)
            # later: something may be on its way
            self._end.site.timers.at(now + MOMENT, self._end.control.forget_retained, gone, self.told)
        self._arm()

    def _send(self, added: Mapping[str, Want], gone: Iterable[str], *, whole: bool = False) -> None:
        """In pieces that every packet has room for."""
        pieces: list[tuple[dict[str, Any], list[str]]] = [({}, [])]
        size = 0
        for filter, want in (*added.items(), *dict.fromkeys(gone).items()):
            size += len(filter) + (0 if want is None else sum(map(len, want.path)))
            if size > BYTES or len(pieces[-1][0]) + len(pieces[-1][1]) >= PIECE:
                pieces.append(({}, []))
                size = 0
            if want is None:
                pieces[-1][1].append(filter)
            else:
                pieces[-1][0][filter] = want.said
        for number, (add, remove) in enumerate(pieces, 1):
            more = whole and number < len(pieces)
            said = {"all": whole and number == 1, "add": add, "remove": remove, "more": more}
            self._end.control.tell(WANTED, orjson.dumps(said))


class SpreadingSubscriptions:
    """Between what is subscribed to in the scopes of a node and its links."""

    def __init__(self, scopes: Mapping[str, Scope], links: NodeLinks) -> None:
        self._scopes = scopes
        self._links = links
        self.active = False
        """Whether any link has asked: nothing is looked at before."""
        self._wants: dict[tuple[str, str], dict[str, Want]] = {}  # by scope and filter: who wants it, links by name
        self._called: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """By scope and filter: which of those match what is called so there, over links between scopes."""
        self._changed: dict[tuple[str, str], None] = {}
        self._looking = False
        self._heard: frozenset[tuple[str, str]] = frozenset()  # scope and filter of what monitors listen to

    # -- what has changed ------------------------------------------------------------------------------------------

    def changed(self, scope: str, filter: str) -> None:
        """Somebody has subscribed to this, or does not any more, or may have it now."""
        if filter.startswith("$"):
            return
        self._changed[scope, filter] = None
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            next(iter(self._scopes.values())).site.unfinished.append(self._look().__next__)

    def _look(self) -> Iterator[bool]:
        while self._changed:
            affected: dict[tuple[str, str], None] = {}
            for key in list(self._changed)[:PIECE]:
                del self._changed[key]
                affected |= dict.fromkeys(self._note(*key))
            self._tell(affected)
            yield True
        self._looking = False
        yield False

    def rearranged(self) -> None:
        """Scopes, links or monitors are others."""
        asked = [end for end in self._links.ends.values() if end.wanted_here.asked]
        self.active = bool(asked)
        self._wants.clear()
        self._called.clear()
        if not self.active:
            self._changed.clear()
            return
        for scope in self._scopes.values():
            for session in scope.sessions.values():
                for filter in session.subscriptions or ():
                    self.changed(scope.name, filter.split("/", 2)[2] if filter.startswith("$share/") else filter)
            self.changed(scope.name, _EVERYTHING)  # also of who is no client, such as the broker behind a scope
        self._heard = self._monitored()
        for scope_name, filter in self._heard:
            self.changed(scope_name, filter)
        self._look_soon()
        next(iter(self._scopes.values())).site.unfinished.append(self._all_told(asked).__next__)

    def _all_told(self, asked: list[LinkEnd]) -> Iterator[bool]:
        while self._changed or self._looking:
            yield True
        for end in asked:
            if end.wanted_here.asked and end.session.connection is not None:
                wanted = self._wanted_of(end)
                known = end.wanted_here.told
                end.wanted_here.change({**dict.fromkeys(known.keys() - wanted.keys()), **wanted})
        yield False

    # -- what is told ----------------------------------------------------------------------------------------------

    def take(self, end: LinkEnd, data: bytes) -> None:
        """The other end of a link asks, or tells what is wanted there."""
        if not end.trusted:
            end.refused("subscriptions: it is not trusted")
            return
        if data == ASK:
            first = not self.active
            end.wanted_here.asked = True
            self.active = True
            if first:
                self.rearranged()
            end.site.unfinished.append(self._answered(end).__next__)
            return
        try:
            said = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ProtocolError("what somebody wants of a link cannot be read") from error
        end.site.effort += 100 + len(data) // 16
        if end.link.forward is Forward.SUBSCRIPTIONS:
            end.wanted_there.take(said)

    def _answered(self, end: LinkEnd) -> Iterator[bool]:
        connection = end.session.connection
        while self._changed or self._looking:
            yield True
        if end.session.connection is connection is not None:
            self.tell(end)
        yield False

    def tell(self, end: LinkEnd) -> None:
        """Everything that is wanted of one link."""
        end.wanted_here.tell_all(self._wanted_of(end))

    def _wanted_of(self, end: LinkEnd) -> dict[str, Want]:
        scope = end.link.near
        return {
            filter: want
            for near, filter in self._called
            if near == scope and (want := self._want(end, filter)) is not None
        }

    def _tell(self, affected: Iterable[tuple[str, str]]) -> None:
        by_scope: dict[str, list[str]] = {}
        for scope, filter in affected:
            by_scope.setdefault(scope, []).append(filter)
        for end in self._links.ends.values():
            filters = by_scope.get(end.link.near)
            if filters and end.wanted_here.asked and end.session.connection is not None:
                end.wanted_here.change({filter: self._want(end, filter) for filter in filters})

    def _want(self, end: LinkEnd, filter: str) -> Want | None:
        """What is wanted of a link that is called so in its scope."""
        link, subject, levels = end.link.into, end.session.inward.subject, end.scope.gate.rules.levels
        if link is None or not any(share.before(filter) is not None for share in link.shares):
            return None
        there = None if end.greeted is None else end.greeted.node
        found = []
        for place in self._called.get((end.link.near, filter), ()):
            for source, want in self._wants.get(place, {}).items():
                if source == end.link.name or there in want.path or len(want.path) >= FARTHEST:
                    continue
                met = [each for each in want.demands if meets(levels, subject.level, Demand.of(each), subject.facts)]
                if not want.demands or met:
                    found.append(Want(want.qos, want.path, tuple(met)))
        if not found:
            return None
        best = united(found)
        return Want(best.qos, (end.site.origin.node, *best.path), best.demands)

    # -- who wants what --------------------------------------------------------------------------------------------

    def _note(self, scope_name: str, filter: str) -> Iterable[tuple[str, str]]:
        """Looks who wants it now; what that is called in which scopes, if it is another answer than before."""
        scope, key = self._scopes.get(scope_name), (scope_name, filter)
        wants = {} if scope is None else self._subscribed(scope, filter)
        if key in self._heard:
            wants[""] = Want(2)
        before = self._wants.get(key)
        if wants == (before or {}):
            return ()
        space = next(iter(self._scopes.values())).rules.space
        called = space.called_before(scope_name, filter)
        if before is None:
            for name in called:
                self._called.setdefault(name, set()).add(key)
        if wants:
            self._wants[key] = wants
        else:
            del self._wants[key]
            for name in called:
                places = self._called.get(name)
                if places is not None:
                    places.discard(key)
                    if not places:
                        del self._called[name]
        return called

    def _subscribed(self, scope: Scope, filter: str) -> dict[str, Want]:
        found: dict[str, list[Want]] = {}
        shared = (pair for group in scope.shares.over(filter) for pair in group.members.items())
        for session, grant in (*scope.subscriptions.over(filter), *shared):
            if grant.held:
                continue
            source, want = self._of(session, grant)
            found.setdefault(source, []).append(want)
            if not source and not want.demands and want.qos == 2:
                break  # nobody can want more
        return {source: united(wants) for source, wants in found.items()}

    def _of(self, session: Session, grant: Grant) -> tuple[str, Want]:
        """Who wants what by a subscription."""
        end = self._links.ends.get(session.client) if isinstance(session, LinkSession) else None
        if end is not None and end.session is session:
            if end.link.forward is Forward.SUBSCRIPTIONS:
                return end.link.name, end.wanted_there.here.get(grant.filter, Want(grant.qos))
            return end.link.name, Want(grant.qos, () if end.greeted is None else (end.greeted.node,))
        levels = next(iter(self._scopes.values())).rules.levels
        demand = effective_demand(levels, session.subject.level, grant.terms.demand, session.outward.demand)
        return "", Want(grant.qos, (), (demand.text,) if demand.names else ())

    def _monitored(self) -> frozenset[tuple[str, str]]:
        """What monitors listen to that hear what nobody has subscribed to, by their scope."""
        rules = next(iter(self._scopes.values())).rules
        return frozenset(
            (place, filter)
            for each in rules.monitors
            if each.monitor.overhears and each.direction is not Direction.IM_PUB
            for place in ([each.place] if each.place else self._scopes)
            for filter in each.monitor.heard
        )
