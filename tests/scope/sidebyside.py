"""The engine and the walk side by side: whatever is done to the one is done to the other, and they are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pure import Anybody, End, World
from scope.settings import FILTERS, LEVELS, PAYLOADS, TOPICS, USERS, Pick, drawn, rules
from scope.walk import Key, Outcome, Sent, Session, Setting, Subscription, Walk
from tidegate import wire
from tidegate.scope import Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.session import Connection
from tidegate.session import Session as Real

VERSIONS = {"c1": wire.V5, "c2": wire.V5, "c3": wire.V311}
FOREVER = 0xFFFFFFFF
GROUPS = tuple(f"g/{filter}" for filter in FILTERS)


class Levelled(Anybody):
    """Everybody has the level that goes with the name."""

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self._known(packet.username))

    def reauthorize(self, session: Real) -> Identity | Refused:
        return self._known(session.subject.user)

    def _known(self, user: str | None) -> Identity:
        return Identity(principal=user or "anonymous", user=user, level=LEVELS[user])


class Engine:
    """The real one, and the ends of its connections."""

    def __init__(self, setting: Setting, bound: int | None) -> None:
        self.bound = bound
        self.world = World(rules=rules(setting), authenticator=Levelled())
        self.ends: dict[Key, End] = {}
        self._bounded()

    def _bounded(self) -> None:
        if self.bound is not None:
            for scope in self.world.realm.scopes.values():
                scope.gate.cache.bound = self.bound

    def change(self, setting: Setting) -> None:
        self.world.realm.change(rules(setting))
        self._bounded()
        for _ in range(3):
            self.world.turn()

    def connect(self, key: Key, persistent: bool) -> None:
        version, user = VERSIONS[key[1]], USERS[key[1]]
        fields: dict[str, Any] = {}
        if version == wire.V5:
            fields["properties"] = wire.Properties(session_expiry_interval=FOREVER if persistent else 0)
        self.ends[key] = self.world.peer(
            key[1], version=version, scope=key[0], username=user, clean_start=not persistent, **fields
        )

    def taken(self, key: Key) -> list[tuple[tuple[int, ...], Sent]]:
        """What somebody was sent, acknowledged, and by which groups."""
        end = self.ends[key]
        found: list[tuple[tuple[int, ...], Sent]] = []
        while more := [one for one in end.take() if isinstance(one, wire.Publish)]:
            for one in more:
                if one.qos == 1:
                    end.send(wire.Puback(packet_id=one.packet_id))
                elif one.qos == 2:
                    end.send(wire.Pubrec(packet_id=one.packet_id), wire.Pubcomp(packet_id=one.packet_id))
                sent = Sent(topic=one.topic, payload=one.payload, qos=one.qos, retain=one.retain)
                found.append((one.properties.subscription_identifiers, sent))
        return found


class Both:
    """What somebody does, chosen by `pick`. `draw` chooses settings."""

    def __init__(self, pick: Pick, draw: Callable[[Pick], Setting] = drawn) -> None:
        self.draw = draw
        setting = draw(pick)
        self.walk, self.engine = Walk(setting), Engine(setting, pick((None, None, 1, 6)))
        self.delivered = 0
        self._pid = 0
        for client in sorted(USERS):
            for scope in dict.fromkeys(pick(setting.scopes) for _ in range(pick((1, 2, 3)))):
                self._come((scope, client), pick((False, True)))
                subscription = Subscription(filter=pick(("#", *FILTERS)), qos=pick((0, 1, 2)))
                self._subscribe((scope, client), subscription)

    # -- coming and going ----------------------------------------------------------------------------------------

    def come(self, pick: Pick) -> None:
        key = (pick(self.walk.setting.scopes), pick(sorted(USERS)))
        known = self.walk.sessions.get(key)
        if known is None:
            self._come(key, pick((False, True)))
        elif not known.there:
            expected = self.walk.back(key)
            self.engine.connect(key, persistent=True)
            self._same({key: expected})

    def _come(self, key: Key, persistent: bool) -> None:
        user = USERS[key[1]]
        self.walk.sessions[key] = Session(
            scope=key[0], client=key[1], user=user, level=LEVELS[user], persistent=persistent
        )
        self.engine.connect(key, persistent)
        self._same({})

    def go(self, pick: Pick) -> None:
        key = self._somebody(pick)
        if key is not None:
            self.walk.lose(key)
            self.engine.ends.pop(key).lose()
            self._same({})

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, pick: Pick) -> None:
        key = self._somebody(pick)
        if key is None:
            return
        one = Subscription(filter=pick(FILTERS), qos=pick((0, 1, 2)))
        if VERSIONS[key[1]] == wire.V5:
            if pick((False, False, False, True)) and not self.walk.sessions[key].persistent:
                one = replace(one, group="g")
            else:
                where = pick(("", "", "", "o.size < 12", "has(o.payload)"))
                one = replace(one, no_local=pick((False, False, True)), where=where)
        self._subscribe(key, one)

    def _subscribe(self, key: Key, subscription: Subscription) -> None:
        name = f"$share/g/{subscription.filter}" if subscription.group else subscription.filter
        expected = self.walk.subscribe(key, subscription, name)
        properties = wire.Properties(
            user_properties=(("where", subscription.where),) if subscription.where else (),
            subscription_identifiers=(_number(f"g/{subscription.filter}"),) if subscription.group else (),
        )
        one = wire.Subscription(filter=name, qos=subscription.qos, no_local=subscription.no_local)
        self.engine.ends[key].send(wire.Subscribe(packet_id=1, subscriptions=(one,), properties=properties))
        self._same({key: expected}, ordered=False)

    def unsubscribe(self, pick: Pick) -> None:
        key = self._somebody(pick)
        if key is not None and self.walk.sessions[key].subscriptions:
            name = pick(sorted(self.walk.sessions[key].subscriptions))
            del self.walk.sessions[key].subscriptions[name]
            self.engine.ends[key].send(wire.Unsubscribe(packet_id=2, filters=(name,)))
            self._same({})

    # -- messages ------------------------------------------------------------------------------------------------

    def publish(self, pick: Pick) -> None:
        """Up to three times: the second one takes what was compiled for the first."""
        key = self._somebody(pick)
        if key is None:
            return
        topic, payload, qos = pick(TOPICS), pick(PAYLOADS), pick((0, 0, 1, 2))
        retain = pick((False, False, False, True))
        require = pick((None, None, None, None, "tls")) if VERSIONS[key[1]] == wire.V5 else None
        asked = wire.NONE if require is None else wire.Properties(user_properties=(("require", require),))
        for _ in range(pick((1, 2, 3))):
            self._pid += 1
            pid = self._pid if qos else 0
            packet = wire.Publish(topic=topic, payload=payload, qos=qos, retain=retain, packet_id=pid, properties=asked)
            copy = self.walk.publish(key, topic, payload, qos, retain, require)
            end = self.engine.ends[key]
            if qos == 2:
                end.send(packet)
                self._same({})
                if pick((False, False, True)):
                    self.change(pick)  # QoS 2 is decided again when it is released
                    if self.engine.ends.get(key) is not end:
                        return
                last: wire.Packet = wire.Pubrel(packet_id=pid)
            else:
                last = packet
            outcome = self.walk.release(key, self.walk.enter(key, copy))
            end.send(last)
            self._same(outcome.sent, outcome)

    # -- the rules -----------------------------------------------------------------------------------------------

    def change(self, pick: Pick) -> None:
        """Everything, or some of it: a link less, another order of links, a monitor less, other monitors."""
        before = self.walk.setting
        match pick(("all", "link", "order", "monitor", "monitors")):
            case "all":
                setting = self.draw(pick)
            case "link" if before.links:
                gone = pick(before.links)
                setting = replace(before, links=tuple(one for one in before.links if one is not gone))
            case "monitor" if before.monitors:
                gone = pick(before.monitors)
                setting = replace(before, monitors=tuple(one for one in before.monitors if one is not gone))
            case "monitors":
                setting = replace(before, monitors=self.draw(pick).monitors)
            case _:
                setting = replace(before, links=before.links[::-1])
        closed = self.walk.change(setting)
        self.engine.change(setting)
        for key in closed:
            assert self.engine.ends.pop(key).closed
        expected = self.walk.tried_again()
        outcome = self.walk.opened(before)
        for key, sent in outcome.sent.items():
            expected.setdefault(key, []).extend(sent)
        self._same(expected, outcome)

    # -- compared ------------------------------------------------------------------------------------------------

    def _somebody(self, pick: Pick) -> Key | None:
        there = sorted(key for key, session in self.walk.sessions.items() if session.there)
        return pick(there) if there else None

    def _same(self, expected: dict[Key, list[Sent]], outcome: Outcome | None = None, *, ordered: bool = True) -> None:
        turns: list[tuple[Key, int, tuple[Any, ...]]] = []
        for key in self.engine.ends:
            found = self.engine.taken(key)
            self.delivered += len(found)
            got = [_plain(sent) for ids, sent in found if not ids]
            turns += [(key, ids[0], _plain(sent)) for ids, sent in found if ids]
            wanted = [_plain(sent) for sent in expected.get(key, ())]
            if not ordered:
                got, wanted = sorted(got, key=repr), sorted(wanted, key=repr)
            assert got == wanted, f"{key} got {got}, and should get {wanted}"
        for turn in outcome.turns if outcome is not None else ():
            choices = [(key, _number(turn.group), _plain(sent)) for key, sent in turn.members.items() if sent]
            chosen = next((one for one in choices if one in turns), None)
            if chosen is not None:
                turns.remove(chosen)
            else:
                assert None in turn.members.values(), f"nobody got any of {choices}"
        assert not turns, f"{turns}, and it was nobody's turn"
        assert not self.engine.world.bugs


def _number(group: str) -> int:
    """The subscription identifier by which messages of a group are known."""
    return 1 + GROUPS.index(group)


def _plain(sent: Sent) -> tuple[Any, ...]:
    """JSON is compared by what it says: a view may write it anew."""
    try:
        content = json.loads(sent.payload)
    except ValueError:
        content = sent.payload
    return sent.topic, content, sent.qos, sent.retain
