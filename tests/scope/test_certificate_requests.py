"""Certificates that a node does not know are asked about among trusted neighbours: SEC-REDS, 2.4, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from scope.nodes import Cable, Node, node_link
from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.certificate_packets import (
    MOST_NODES,
    CertificateReply,
    CertificateRequest,
    Vouched,
    decode_withdrawal,
    encode_withdrawal,
)
from tidegate.policy.domains import Domain
from tidegate.policy.trust_list import fingerprint
from tidegate.scope import certificate_requests
from tidegate.scope.certificate_requests import REPLY, REQUEST, TOPICS, UNKNOWN, WITHDRAWAL
from tidegate.wire import cbor

CERTIFICATE: Final = b"a certificate"
NAME: Final = fingerprint(CERTIFICATE)
FIGURE_2_8: Final = (("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"), ("e", "f"))


class Network:
    """Nodes that are each a domain of their own, and believe each other about all of them."""

    def __init__(self, *links: tuple[str, str], level: str = "trusted", **believes: dict[str, Domain]) -> None:
        names = sorted({name for link in links for name in link})
        every = {name: Domain(nodes=(name,), through=tuple(names)) for name in names}
        self.nodes: dict[str, Node] = {}
        self.refused: list[str] = []
        self.sent: list[tuple[str, str, str]] = []
        """What was said: by whom, to whom, on which topic."""
        for name in names:
            ends = [node_link(f"{name}-{far}", f"{far}-{name}") for far in _around(name, links)]
            node = self.nodes[name] = Node(name, *ends, domain=name, believes=believes.get(name, every))
            for end in node.realm.node_links.ends.values():
                end.refused = self.refused.append  # type: ignore[method-assign]
                far = end.link.far.partition("-")[0]
                end.control.tell = self._listening(name, far, end.control.tell)  # type: ignore[method-assign]
            node.realm.node_links.certificates.lifetime = 30.0
        self.cables = {(one, far): self._cable(one, far, level) for one, far in links}

    def _cable(self, one: str, far: str, level: str) -> Cable:
        return Cable(self.nodes[one], self.nodes[far], f"{one}-{far}->{far}-{one}", level=level)

    def _listening(self, name: str, far: str, tell: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
        def heard(topic: str, data: bytes) -> None:
            if topic in TOPICS:
                self.sent.append((name, far, topic.rpartition("/")[2]))
            tell(topic, data)

        return heard

    def requests(self, name: str) -> Any:
        return self.nodes[name].realm.node_links.certificates

    def end(self, name: str, far: str) -> Any:
        return self.nodes[name].realm.node_links.ends[f"{name}-{far}->{far}-{name}"]

    def knows(self, name: str, whom: str = "carol") -> None:
        said = Vouched(domain="", name=whom, seconds=0.0, owner=(f"user:{whom}", 0))
        self.requests(name).judge = lambda certificate: said if certificate == CERTIFICATE else None

    def forgets(self, name: str) -> None:
        self.requests(name).judge = lambda certificate: None
        self.requests(name).review()
        self.run()

    def ask(self, name: str = "a") -> list[Vouched | None]:
        """What has been answered, once everybody has said everything."""
        answers: list[Vouched | None] = []
        requests = self.requests(name)
        self.nodes[name].site.open()
        requests.ask(CERTIFICATE, lambda: answers.append(requests.vouched(CERTIFICATE)))
        self.run()
        return answers

    def run(self, seconds: float = 0.0) -> None:
        for node in self.nodes.values():
            node.turn(seconds)
        for _ in range(6):
            for cable in self.cables.values():
                cable.run()


def _around(name: str, links: tuple[tuple[str, str], ...]) -> list[str]:
    return [far if one == name else one for one, far in links if name in (one, far)]


def test_figure_2_8_a_request_is_flooded_and_each_node_passes_it_on_once() -> None:
    network = Network(*FIGURE_2_8)
    network.knows("f")
    [found] = network.ask()
    assert found is not None
    assert (found.name, found.domain, found.seconds) == ("carol", "f", 30.0)
    requests = [(one, far) for one, far, what in network.sent if what == "request"]
    assert len(requests) == len(set(requests))
    assert {far for _, far in requests} == set("bcdef")
    for name in "abcde":  # to all but where it has been
        assert len([one for one, _ in requests if one == name]) <= len(_around(name, FIGURE_2_8))
    replies = [(one, far) for one, far, what in network.sent if what == "reply"]
    assert replies[0] == ("f", "e")
    assert replies[-1][1] == "a"
    assert len(replies) == 3  # f, e, b or c, a
    assert network.refused == []


def test_figure_2_9_the_reply_goes_back_along_the_stack() -> None:
    network = Network(*pairwise("abcd"))
    network.knows("d")
    stacks: list[tuple[str, ...]] = []
    for one, far in (("d", "c"), ("c", "b"), ("b", "a")):
        end = network.end(one, far)

        def tell(topic: str, data: bytes, said: Callable[[str, bytes], None] = end.control.tell) -> None:
            if topic == REPLY:
                stacks.append(CertificateReply.decode(data).stack)
            said(topic, data)

        end.control.tell = tell
    assert network.ask() == [Vouched(domain="d", name="carol", seconds=30.0, owner=("user:carol", 0))]
    a, b, c = (network.nodes[name].site.origin.node for name in "abc")
    assert stacks == [(a, b, c), (a, b), (a,)]


def test_nobody_knows_it_and_it_is_not_asked_about_again_for_a_while() -> None:
    network = Network(*FIGURE_2_8)
    answers = network.ask()
    assert answers == []
    network.run(certificate_requests.PATIENCE)
    assert answers == [None]
    sent = len(network.sent)
    assert network.ask() == [None]
    assert len(network.sent) == sent
    network.run(UNKNOWN)
    network.knows("b")
    assert network.ask() != [None]


def test_two_who_come_at_once_ask_once() -> None:
    network = Network(("a", "b"))
    network.knows("b")
    requests = network.requests("a")
    answers: list[bool] = []
    for _ in range(3):
        requests.ask(CERTIFICATE, lambda: answers.append(requests.vouched(CERTIFICATE) is not None))
    network.run()
    assert answers == [True] * 3
    assert [what for _, _, what in network.sent] == ["request", "reply"]


def test_a_word_counts_for_a_while_and_ends_when_it_is_withdrawn() -> None:
    network = Network(*pairwise("abc"))
    network.knows("c")
    ended: list[str] = []
    network.requests("a").on_end = ended.append
    network.ask()
    network.run(20.0)
    assert network.requests("a").vouched(CERTIFICATE) is not None
    network.run(11.0)
    assert network.requests("a").vouched(CERTIFICATE) is None
    assert ended == [NAME]
    network.run(certificate_requests.REMEMBERED)
    for (one, far), cable in network.cables.items():
        if cable.mine.closed:  # nobody sends PINGREQ here
            network.cables[one, far] = network._cable(one, far, "trusted")
    assert network.ask() != [None]
    network.forgets("c")
    assert network.requests("a").vouched(CERTIFICATE) is None
    assert ended == [NAME, NAME]
    assert network.refused == []


def test_what_is_withdrawn_while_a_neighbour_is_away_is_told_when_it_is_back() -> None:
    network = Network(("a", "b"))
    network.knows("b")
    network.ask()
    cable = network.cables["a", "b"]
    cable.cut()
    network.forgets("b")
    assert network.requests("a").vouched(CERTIFICATE) is not None
    cable.plug()
    network.run()
    assert network.requests("a").vouched(CERTIFICATE) is None


def test_two_who_vouch_for_the_same_certificate_are_both_remembered() -> None:
    """`a` asks while `d` alone knows it, and `b` while `e` is the quicker one: both have to hear of it."""
    network = Network(("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"))
    network.knows("d")
    assert network.ask("a")[0] is not None
    network.knows("e")
    network.cables["c", "d"].cut()
    assert network.ask("b")[0] is not None
    network.cables["c", "d"].plug()
    network.run()
    network.forgets("d")
    assert network.requests("a").vouched(CERTIFICATE) is None
    assert network.requests("b").vouched(CERTIFICATE) is not None
    network.forgets("e")
    assert network.requests("b").vouched(CERTIFICATE) is None
    assert not network.refused


def test_of_two_answers_to_one_question_the_first_is_passed_on() -> None:
    network = Network(("a", "c"), ("c", "d"), ("c", "e"))
    network.knows("d")
    network.knows("e")
    assert network.ask("a")[0] is not None
    assert network.sent.count(("c", "a", "reply")) == 1
    assert not network.refused


def test_without_trusted_neighbours_nobody_is_asked() -> None:
    network = Network(("a", "b"), level="tls")
    network.knows("b")
    assert network.ask() == [None]
    assert network.sent == []


def test_the_shorter_of_both_times_counts() -> None:
    for here, there in ((5.0, 30.0), (30.0, 5.0)):
        network = Network(("a", "b"))
        network.knows("b")
        network.requests("a").lifetime, network.requests("b").lifetime = here, there
        assert network.ask() != [None]
        network.run(4.9)
        assert network.requests("a").vouched(CERTIFICATE) is not None
        network.run(0.2)
        assert network.requests("a").vouched(CERTIFICATE) is None


# -- a neighbour that lies -----------------------------------------------------------------------------------------


def asked(network: Network, *, id: bytes = b"i" * 16) -> CertificateRequest:
    """What node a has heard of: a request that b has sent."""
    return CertificateRequest(id=id, certificate=CERTIFICATE, stack=(network.nodes["b"].site.origin.node,))


def pending(network: Network) -> CertificateReply:
    """The reply that node a waits for, which b has not given."""
    network.requests("a").ask(CERTIFICATE, lambda: None)
    [(id, passed)] = network.requests("a")._passed.items()
    return CertificateReply(id=id, vouched=Vouched(domain="b", name="eve", seconds=60.0), stack=passed.stack)


def say(network: Network, topic: str, data: bytes, one: str = "b", far: str = "a") -> None:
    network.end(one, far).control.tell(topic, data)
    network.run()


@pytest.mark.parametrize("domain", ["a", "c", "nowhere"])
def test_vouching_for_our_own_names_or_for_a_domain_it_does_not_speak_for(domain: str) -> None:
    believes = {"b": Domain(nodes=("b",)), "c": Domain(nodes=("c",))}
    network = Network(("a", "b"), a=believes)
    reply = pending(network)
    say(network, REPLY, replace(reply, vouched=replace(reply.vouched, domain=domain)).encode())
    assert network.requests("a").vouched(CERTIFICATE) is None
    why = "nobody else vouches for" if domain == "a" else "does not speak for that domain"
    assert why in network.refused[0]


def test_on_its_way_a_word_is_believed_by_every_node_or_goes_no_further() -> None:
    every = {name: Domain(nodes=(name,), through=("b",)) for name in "abc"}
    network = Network(*pairwise("abc"), b={"a": Domain(nodes=("a",))}, a=every, c=every)
    network.knows("c")
    assert network.ask() == []
    assert network.refused == ["a word for carol@c: this link does not speak for that domain"]


def test_a_word_that_nobody_has_asked_for_or_that_is_repeated() -> None:
    network = Network(*pairwise("abc"))
    reply = pending(network)
    for wrong in (replace(reply, id=b"x" * 16), replace(reply, stack=("ab" * 8,))):
        say(network, REPLY, wrong.encode())
    assert network.requests("a").vouched(CERTIFICATE) is None
    say(network, REPLY, reply.encode())
    assert network.requests("a").vouched(CERTIFICATE) is not None
    say(network, REPLY, reply.encode())
    say(network, REPLY, reply.encode(), "c", "b")  # b did not send it there
    assert [each.partition(": ")[2] for each in network.refused] == [
        "nobody has asked",
        "nobody has asked",
        "it has been said before",
        "nobody has asked",
    ]


def test_a_word_that_is_kept_and_repeated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_requests, "REMEMBERED", 5.0)
    network = Network(("a", "b"))
    reply = pending(network)
    network.run(5.0)
    say(network, REPLY, reply.encode())
    assert network.requests("a").vouched(CERTIFICATE) is None
    assert "nobody has asked" in network.refused[0]


def test_withdrawing_what_it_never_gave() -> None:
    network = Network(("a", "b"), ("a", "c"))
    network.knows("b")
    network.ask()
    say(network, WITHDRAWAL, encode_withdrawal(NAME), "c", "a")
    say(network, WITHDRAWAL, encode_withdrawal(fingerprint(b"other")))
    assert network.requests("a").vouched(CERTIFICATE) is not None
    assert len(network.refused) == 2
    say(network, WITHDRAWAL, encode_withdrawal(NAME))
    assert network.requests("a").vouched(CERTIFICATE) is None


def test_requests_without_end_are_bounded_and_reach_nobody_else() -> None:
    network = Network(*pairwise("bac"))
    for number in range(500):
        network.end("b", "a").control.tell(REQUEST, asked(network, id=number.to_bytes(16, "big")).encode())
    network.run()
    passed = [what for one, _, what in network.sent if one == "a"]
    assert len(passed) == certificate_requests.BURST
    assert len(network.refused) == 500 - certificate_requests.BURST
    assert len(network.requests("a")._passed) <= certificate_requests.BURST
    network.knows("c")
    assert network.ask() != [None]  # others are answered


def test_requests_that_go_round_in_circles() -> None:
    network = Network(*pairwise("bac"))
    request, here = asked(network), network.nodes["a"].site.origin.node
    for stack in ((*request.stack, here), (here, *request.stack), (here,), ("ab" * 8,)):
        say(network, REQUEST, replace(request, stack=stack).encode())
    assert len(network.refused) == 4
    assert [each for each in network.sent if each[0] == "a"] == []
    for _ in range(3):  # the same one is passed on once
        say(network, REQUEST, request.encode())
    assert [each for each in network.sent if each[0] == "a"] == [("a", "c", "request")]
    long = tuple(f"{number:016x}" for number in range(MOST_NODES - 1))
    say(network, REQUEST, replace(request, id=b"l" * 16, stack=(*long, *request.stack)).encode())
    assert len([each for each in network.sent if each[0] == "a"]) == 1


@pytest.mark.parametrize("topic", [REQUEST, REPLY, WITHDRAWAL])
def test_what_cannot_be_read_ends_the_connection(topic: str) -> None:
    network = Network(("a", "b"))
    end = network.end("a", "b")
    for said in (b"", b"garbage", cbor.canonical([2]), cbor.canonical([1, 2, 3])):
        with pytest.raises(ProtocolError):
            end.control.take(topic, said)


def test_forms() -> None:
    request = CertificateRequest(id=b"i" * 16, certificate=b"c", stack=("ab" * 8,))
    assert CertificateRequest.decode(request.encode()) == request
    said = Vouched(domain="d", name="n", seconds=1.5, owner=("o", 3))
    for vouched in (said, replace(said, owner=None)):
        reply = CertificateReply(id=b"i" * 16, vouched=vouched, stack=("ab" * 8, "cd" * 8))
        assert CertificateReply.decode(reply.encode()) == reply
    assert decode_withdrawal(encode_withdrawal(NAME)) == NAME
    node, id = ["ab" * 8], b"i" * 16
    for wrong in (
        [1, id, b"", node],
        [1, b"i", b"c", node],
        [1, id, b"c" * 20000, node],
        [1, id, b"c", []],
        [1, id, b"c", node * 2],
        [1, id, b"c", ["x"]],
        [1, id, b"c", [7]],
        [1, id, b"c", [f"{number:016x}" for number in range(MOST_NODES + 1)]],
    ):
        with pytest.raises(MalformedPacket):
            CertificateRequest.decode(cbor.canonical(wrong))
    for wrong in (
        [1, id, "", "n", 1.0, None, node],
        [1, id, "d", "", 1.0, None, node],
        [1, id, "d", "n" * 2000, 1.0, None, node],
        [1, id, "d", "n", -1.0, None, node],
        [1, id, "d", "n", 1e9, None, node],
        [1, id, "d", "n", 1.0, ["o", -1], node],
        [1, id, "d", "n", 1.0, ["", 1], node],
        [1, id, "d", "n", 1.0, ["o"], node],
    ):
        with pytest.raises(MalformedPacket):
            CertificateReply.decode(cbor.canonical(wrong))
    with pytest.raises(MalformedPacket):
        decode_withdrawal(cbor.canonical([1, "x"]))
