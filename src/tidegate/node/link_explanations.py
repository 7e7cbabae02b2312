"""Explanations over a link: may a message cross it, and may somebody read it there? Both nodes say their part.

The node where the message is published says whether it may be, and may leave; only then the other one is asked, with
the message as it would cross. Each tells the other the verdict and the step; the rule only with `explain: true` in its
file, as it is with clients. A node answers whoever it has a link with, if `trust.domains` lists that node.

Nothing is published, kept or audited. The set of preferences of the owner goes to the other node as it would with the
message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.config import Config, Operation, parse_subject_name
from tidegate.errors import ConfigError, PacketError, Problem, ProtocolError, TidegateError
from tidegate.explain.question import QuestionThrough
from tidegate.gate import Deny
from tidegate.net.control_command import typed
from tidegate.net.control_socket import Command
from tidegate.policy.identities import USER
from tidegate.policy.preference_sets import Key, OwnerSet
from tidegate.scope.link_questions import Values
from tidegate.scope.node_links import LinkEnd
from tidegate.session import Message, NodeLinkEnd
from tidegate.wire import V5, Publish, decode, frame

if TYPE_CHECKING:
    from tidegate.explain.explanation import Explanation
    from tidegate.node.node import Node

PATIENCE: Final = 5.0  # seconds for the other node to answer
LEAVING: Final = "leaving"
ARRIVING: Final = "arriving"
LARGEST: Final = 2**20  # bytes of a message that is asked about
_UNNAMED: Final = "that cannot be asked of this node"
_KEPT: Final = ("verdict", "step", "part", "rule", "policy_version", "steps", "sees", "notes")


@dataclass(frozen=True, slots=True)
class KnownOwners:
    """What was known of some owners at one moment (gate.stages.read_preferences.ForeignOwners)."""

    sets: Mapping[tuple[Key, int], OwnerSet | None]
    revision: int = 0

    def of(self, owner: Key, number: int) -> OwnerSet | None:
        return self.sets.get((owner, number))


class LinkExplanations:
    """Asks the other nodes, and answers them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()

    def commands(self) -> dict[str, Command]:
        return dict((typed(QuestionThrough, self.explain),))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # -- asked here ------------------------------------------------------------------------------------------------

    async def explain(self, question: QuestionThrough) -> dict[str, Any]:
        """The verdicts of both ends, that of the publisher's first."""
        if question.action is Operation.SUBSCRIBE:
            raise Problem("nobody subscribes over a link; ask whether somebody may `read`", problem="invalid")
        end, out = self._asked_about(question)
        alone = end.link.broker is not None
        if alone and (not out or question.action is Operation.READ):
            text = f"{end.link.far} is a foreign broker, which says nothing of whom it sends what; ask whether"
            raise Problem(f"{text} somebody may `write` through it", problem="invalid")
        here: dict[str, Any] | None
        there: dict[str, Any] | None
        try:
            if out:
                here, there = await self._outward(end, question)
            else:
                here, there = await self._inward(end, question)
        except ConfigError as error:
            raise Problem(str(error), problem="invalid") from None
        parts = (here,) if alone else (here, there)
        allowed = all(each is not None and each["verdict"] == "allow" for each in parts)
        link, peer = end.link, end.peer
        return {
            "allowed": allowed,
            "verdict": "allow" if allowed else "deny",
            "action": question.action.value,
            "topic": question.topic,
            "link": link.name if out else f"{link.far}->{link.near}",
            "published": "here" if out else "there",
            "node": self._node.config.node.name,
            "other": link.far if peer is None else peer.name or peer.subject,
            "here": here,
            "there": there,
        }

    async def _outward(self, end: LinkEnd, question: QuestionThrough) -> tuple[dict[str, Any], dict[str, Any] | None]:
        reading = question.action is Operation.READ
        explained = await self._explained_leaving(end, _of_publisher(question))
        here, message = self._own(explained, question), explained.shown
        if message is None or end.link.broker is not None:
            return here, None
        values: dict[str, Any] = {"frame": self._framed(end, message)}
        if reading:
            values |= {"reader": question.subject, "terms": [list(pair) for pair in question.terms]}
        return here, await self._ask(end, ARRIVING, values, question.at)

    async def _inward(self, end: LinkEnd, question: QuestionThrough) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        assumed = question.overrides
        if question.action is Operation.READ:
            assumed = {path: value for path, value in assumed.items() if path.startswith("p.")}
        asked = _of_publisher(replace(question, overrides={}))
        if assumed:
            raise Problem("nothing can be assumed of whoever publishes at the other node", problem="invalid")
        there = await self._ask(
            end,
            LEAVING,
            {
                "subject": asked.subject,
                "topic": asked.topic,
                "payload": asked.payload,
                "qos": asked.qos,
                "retain": asked.retain,
                "properties": [list(pair) for pair in asked.properties],
            },
            question.at,
        )
        data = there.pop("frame", None)
        if there["verdict"] != "allow" or not isinstance(data, bytes):
            return None, there
        reader = question if question.action is Operation.READ else None
        try:
            found = await self._explained_arriving(end, data, reader)
        except PacketError as error:
            raise Problem(f"the other node sends what is no message: {error}", problem="unavailable") from error
        return (_refused(found) if isinstance(found, Deny) else self._own(found, question)), there

    def _asked_about(self, question: QuestionThrough) -> tuple[LinkEnd, bool]:
        """The end of a link that is meant, and whether the message leaves over it."""
        name, ends = question.through, self._node.realm.node_links.ends.values()
        for end in ends:
            if name in (end.link.name, f"{end.link.far}->{end.link.near}"):
                return end, name == end.link.name
        meant = [end for end in ends if name in _names(end)]
        if not meant:
            known = ", ".join(end.link.name for end in ends) or "none"
            raise Problem(f"there is no link with `{name[:200]}`; there is {known}", problem="unknown")
        if len(meant) > 1:
            known = ", ".join(end.link.name for end in meant)
            raise Problem(f"there are several links with `{name[:200]}`; write which: {known}", problem="invalid")
        (end,) = meant
        if (end.link.out is None) != (end.link.into is None):
            return end, end.link.out is not None
        domain = parse_subject_name(question.subject).domain
        theirs = bool(domain) and end.greeted is not None and domain == end.greeted.domain
        return end, theirs == (question.action is Operation.READ)

    async def _ask(self, end: LinkEnd, what: str, values: dict[str, Any], at: float | None) -> dict[str, Any]:
        """The answer of the other node; a Problem if there is none in time."""
        node, name = self._node, end.link.name
        answer: asyncio.Future[Values | None] = node.loop.create_future()

        def done(found: Values | None) -> None:
            if not answer.done():
                answer.set_result(found)

        node.site.open()
        number = end.control.questions.ask(what, values if at is None else values | {"at": at}, done)
        if isinstance(number, str):
            raise Problem(f"the other node of {name} cannot be asked: {number}", problem="unavailable")
        try:
            async with asyncio.timeout(PATIENCE):
                found = await answer
        except TimeoutError:
            text = f"the other node of {name} did not answer in {PATIENCE:g} s"
            raise Problem(text, problem="unavailable") from None
        finally:
            end.control.questions.forget(number)
        if found is None:
            raise Problem(f"the connection of {name} ended before the answer came", problem="unavailable")
        if isinstance(why := found.get("error"), str):
            raise Problem(f"the other node of {name} does not say: {why[:500]}", problem="unavailable")
        told = {key: value[:200] for key in ("step", "rule") if isinstance(value := found.get(key), str)}
        verdict = "allow" if found.get("allowed") is True else "deny"
        return {"step": None, "rule": None, **told, "verdict": verdict, "frame": found.get("frame")}

    # -- asked by other nodes --------------------------------------------------------------------------------------

    def answer(self, end: LinkEnd, what: str, values: Values, reply: Callable[[Values], None]) -> None:
        """The other end of a link asks something (scope.link_questions.Answerer)."""
        task = self._node.loop.create_task(self._answer(end, what, values, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, end: LinkEnd, what: str, values: Values, reply: Callable[[Values], None]) -> None:
        answer: Values = {"error": _UNNAMED}
        try:
            if end.plans.domains:  # else nothing that it says is believed, nor is it told anything
                answer = await self._answered(end, what, values)
        except ProtocolError:
            answer = {"error": "that is no message"}
        except TidegateError:
            pass  # who is known here, and what the rules name, is not its business
        finally:
            self._node.turns.guarded(reply, answer)

    async def _answered(self, end: LinkEnd, what: str, values: Values) -> Values:
        match what, values:
            case "leaving", {
                "subject": str(subject),
                "topic": str(topic),
                "payload": bytes(payload),
                "qos": int(qos),
                "retain": bool(retain),
            } if len(payload) <= LARGEST:
                question = QuestionThrough(
                    through=end.link.name,
                    subject=subject,
                    action=Operation.WRITE,
                    topic=topic,
                    payload=payload,
                    qos=min(max(qos, 0), 2),
                    retain=retain,
                    properties=_pairs(values.get("properties")),
                    at=_moment(values.get("at")),
                )
                explained = await self._explained_leaving(end, question)
                shown = explained.shown
                told = self._told(explained)
                return told if shown is None else {**told, "frame": self._framed(end, shown)}
            case "arriving", {"frame": bytes(data)} if len(data) <= LARGEST:
                reader = None
                if isinstance(who := values.get("reader"), str):
                    reader = QuestionThrough(
                        through=end.link.name,
                        subject=who,
                        action=Operation.READ,
                        topic="-",
                        terms=_pairs(values.get("terms")),
                        at=_moment(values.get("at")),
                    )
                found = await self._explained_arriving(end, data, reader)
                return self._denied(found.step.value, found.rule) if isinstance(found, Deny) else self._told(found)
        return {"error": _UNNAMED}

    def _told(self, explained: Explanation) -> dict[str, Any]:
        """What another node is told: the verdict, the step, and the rule if clients are told rules."""
        decided = explained.decided
        if explained.allowed or decided is None:
            return {"allowed": explained.allowed}
        return self._denied(decided.step.value, decided.rule)

    def _denied(self, step: str, rule: str) -> dict[str, Any]:
        return {"allowed": False, "step": step, **({"rule": rule} if self._node.config.explain else {})}

    # -- this node's part ------------------------------------------------------------------------------------------

    async def _explained_leaving(self, end: LinkEnd, question: QuestionThrough) -> Explanation:
        outward = end.session.outward
        assert isinstance(outward, NodeLinkEnd)
        return await self._node.run_query(partial(_leaving, self._node.config, question, outward))

    async def _explained_arriving(
        self, end: LinkEnd, data: bytes, reader: QuestionThrough | None
    ) -> Explanation | Deny:
        self._node.site.open()
        found = end.plans.supposed(_packet(data))
        if isinstance(found, Deny):
            return found
        inward = end.session.inward
        assert isinstance(inward, NodeLinkEnd)
        owners = self._owners(end, found)
        return await self._node.run_query(partial(_arriving, self._node.config, owners, found, inward, reader))

    def _owners(self, end: LinkEnd, message: Message) -> KnownOwners:
        """What this node knows now of the owners of a message."""
        context, foreign = end.scope.gate.attributes.context(message), self._node.realm.foreign
        sets: dict[tuple[Key, int], OwnerSet | None] = {}
        for each in (context, *(other.context for other in context.others)):
            if each.foreign is not None:
                key = (each.subject.domain, each.foreign[0])
                sets[key, each.foreign[1]] = foreign.of(key, each.foreign[1])
        return KnownOwners(sets)

    def _framed(self, end: LinkEnd, message: Message) -> bytes:
        """A message as it would be sent over a link, of whoever has the publisher's name now."""
        self._node.site.open()
        context = end.scope.gate.attributes.context(message)
        subject, people = context.subject, self._node.identities.table
        if subject.user is not None and subject.domain == end.scope.gate.rules.domain:
            owned = replace(context, subject=replace(subject, identity=people.id(USER, subject.user)))
            message = message.across(message.topic, message.qos, owned.encode(), message.link, message.properties)
        head, tail = end.session.exporter.parts(message, message.qos, message.retain, self._node.site.now)
        return head + (b"\0\1" if message.qos else b"") + tail

    def _own(self, explained: Explanation, question: QuestionThrough) -> dict[str, Any]:
        from tidegate.explain.as_json import document

        whole = document(explained, question, self._node.config)
        found = {name: whole[name] for name in _KEPT}
        for step in found["steps"]:
            del step["about"]
        if question.action is not Operation.READ or explained.subject.kind == "link":
            del found["sees"]
        return found


def _names(end: LinkEnd) -> set[str]:
    """By what somebody may call the node at the other end."""
    names = {end.link.far}
    if end.peer is not None:
        names.add(end.peer.name)
    if end.greeted is not None:
        names |= {end.greeted.domain, end.greeted.node}
    return names


def _of_publisher(question: QuestionThrough) -> QuestionThrough:
    """The part of a question that is about whoever publishes."""
    if question.action is Operation.WRITE:
        return question
    if question.publisher is None:
        raise Problem("it matters who published the message; say who with `from`", problem="invalid")
    overrides: dict[str, Any] = {}
    for path, value in question.overrides.items():
        if not path.startswith(("p.", "o.")) or path == "p.time":
            raise Problem(f"`{path}` is not of whoever publishes; leave it out", problem="invalid")
        turned = path.removeprefix("p.") if path.startswith("p.e.") else "s." + path.removeprefix("p.")
        overrides[path if path.startswith("o.") else turned] = value
    return replace(
        question,
        action=Operation.WRITE,
        subject=question.publisher,
        publisher=None,
        terms=(),
        overrides=overrides,
    )


def _leaving(config: Config, question: QuestionThrough, end: NodeLinkEnd) -> Explanation:
    """Runs in a thread, which also imports what explains."""
    from tidegate.explain.what_if import WhatIf

    return WhatIf(config).leaving(question, end)


def _arriving(
    config: Config, owners: KnownOwners, message: Message, end: NodeLinkEnd, reader: QuestionThrough | None
) -> Explanation:
    from tidegate.explain.what_if import WhatIf

    return WhatIf(config, owners).arriving(message, end, reader)


def _packet(data: bytes) -> Publish:
    """A message as it would have come over a link. ProtocolError if it is none."""
    whole = frame(data, 0, LARGEST)
    if whole is None or whole[2] != len(data):
        raise ProtocolError("not one packet")
    first, start, stop = whole
    packet = decode(first, data[start:stop], V5)
    if not isinstance(packet, Publish):
        raise ProtocolError("not a message")
    return packet


def _refused(why: Deny) -> dict[str, Any]:
    """What is not even looked at."""
    notes = [why.detail or why.error]
    return {"verdict": "deny", "step": why.step.value, "rule": why.rule, "steps": [], "notes": notes}


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not all(isinstance(each, list) and len(each) == 2 for each in value):
        return ()
    return tuple((str(name), str(text)) for name, text in value)


def _moment(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e11 else None
