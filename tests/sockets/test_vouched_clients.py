"""A client with a certificate that this node does not know: trusted neighbours are asked, over real links and TLS.

Node a asks, node b passes it on, node c knows Carol. What the nodes say to each other is tested in
`tests/scope/test_certificate_requests.py`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import Client, free_port
from processes import Served, from_file, on_uvloop, until
from tidegate import wire
from tidegate.cli import certificates
from tidegate.link import dialer

NODE = """
version: 1
node: {name: NAME, data: data, cert: ../NAME.pem, key: ../NAME.key, ca: ../ca.pem}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: NAME, anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS", scope: NAME, cert: ../NAME.pem, key: ../NAME.key, client_ca: ../ca.pem,
     client_cert: optional, anonymous: ANONYMOUS}
scopes: {NAME: {}}
trust:
  accept: ACCEPT
  ask_neighbours: true
  otherwise: OTHERWISE
  domains:
    a: {nodes: [a], through: [b]}
    b: {nodes: [b]}
    c: {nodes: [c], through: [b]}
LINKS
directory: {users: {carol: {password: "plain:other"}, dave: {password: "plain:dave"}}}
policies:
  - {id: links, subject: "scope:NAME", topic: "#", action: [read, write]}
  - {id: write, subject: "*", topic: "t/#", action: write}
  - {id: hers, subject: "user:carol@c", topic: "t/#", action: read, when: "s.level == 'trusted' && s.domain == 'c'"}
  - {id: watch, subject: "client:watch", topic: "t/#", action: read}
  - {id: no, subject: "user:carol", topic: "t/no", action: read}
sys: {interval: 0s}
"""
ACCEPTED = {"a": '["CN=a", "CN=b"]', "b": '["CN=a", "CN=b", "CN=c"]', "c": '["CN=b", "CN=c", "CN=carol"]'}


class Ring:
    """Three nodes in a row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: str(free_port()) for name in "abc"}
        self.nodes: dict[str, Served] = {}

    def text(self, name: str, **values: str) -> str:
        links = {
            "a": f'links: [{{from: a, to: b, via: ["mqtts://127.0.0.1:{self.ports["b"]}"], peer: CN=b}}]',
            "b": f'links: [{{from: a, to: b, peer: CN=a}}, {{from: b, to: c, via: ["mqtts://127.0.0.1:{self.ports["c"]}"],'
            " peer: CN=c}]",
            "c": "links: [{from: b, to: c, peer: CN=b}]",
        }
        said = {"OTHERWISE": "close", "ACCEPT": ACCEPTED[name], "ANONYMOUS": "false", "LINKS": links[name], **values}
        text = NODE
        for key, value in said.items():
            text = text.replace(key, value)
        return text.replace("NAME", name).replace("TLS", self.ports[name])

    async def dial(self, node: str, who: str, **fields: Any) -> Client:
        """Somebody with that certificate."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        context.load_cert_chain(self.folder / f"{who}.pem", self.folder / f"{who}.key")
        client = await self.nodes[node].dial(int(self.ports[node]), context)
        fields = {"clean_start": True, "keep_alive": 0, "client_id": who, **fields}
        await client.send(wire.Connect(version=wire.V5, **fields))
        client.connack = await client.expect(wire.Connack)
        return client

    def row(self, node: str) -> list[dict[str, Any]]:
        return self.nodes[node].node.links.rows()

    @contextlib.asynccontextmanager
    async def running(self, name: str, **values: str) -> AsyncIterator[Served]:
        """One of the nodes, as it was left by its last run."""
        place = self.folder / f"node-{name}"
        place.mkdir(exist_ok=True)
        async with from_file(place, self.text(name, **values)) as served:
            self.nodes[name] = served
            yield served

    async def connected(self, names: str = "abc") -> None:
        await until(lambda: all(row["state"] == "connected" for name in names for row in self.row(name)))


@contextlib.asynccontextmanager
async def ring(folder: Path, keys: Path, **values: str) -> AsyncIterator[Ring]:
    made = _files(folder, keys)
    async with contextlib.AsyncExitStack() as stack:
        for name in "cba":
            said = {"OTHERWISE": values.get("OTHERWISE", "close")} if name == "a" else {}
            said |= {"ANONYMOUS": values.get("ANONYMOUS", "false")}
            await stack.enter_async_context(made.running(name, **said))
        await made.connected()
        yield made


def _files(folder: Path, keys: Path) -> Ring:
    for file in keys.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return Ring(folder)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    certificates.make_ca(folder, "Test CA", days=2)
    for name in ("a", "b", "c", "carol", "eve"):
        certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)
    return folder


@on_uvloop
async def test_figure_2_7_a_mobile_subscriber_is_known_by_its_name_and_domain(keys: Path, tmp_path: Path) -> None:
    """Carol of c comes to a: she is `carol@c` there, and not Carol of a, who has a password."""
    async with ring(tmp_path, keys) as made:
        carol = await made.dial("a", "carol")
        assert carol.connack.reason == 0
        assert ("level", "trusted") in carol.connack.properties.user_properties
        assert (await carol.subscribe("t/#", qos=1)).reasons == (1,)
        other = await made.nodes["a"].connect("w")
        await other.publish("t/no", b"1", qos=1)
        assert (await carol.message()).payload == b"1"
        assert (await made.dial("a", "eve")).connack.reason == wire.Reason.NOT_AUTHORIZED  # nobody knows her
        taken = await made.dial("a", "carol", client_id="2", username="dave", password=b"dave")
        assert taken.connack.reason == 0  # a password still says who it is


@on_uvloop
async def test_what_she_publishes_is_hers_at_home_and_her_preferences_bind(keys: Path, tmp_path: Path) -> None:
    async with ring(tmp_path, keys) as made:
        wish = 'preferences: [{id: p, user: carol, topic: "t/#", when: "s.client == \'nobody\'"}]\n'
        watch = await made.nodes["a"].connect("watch")
        await watch.subscribe("t/#")
        carol = await made.dial("a", "carol")
        await carol.publish("t/1", b"1", qos=1)
        assert (await watch.message()).payload == b"1"  # she has no wishes
        await made.nodes["c"].reload(made.text("c") + wish)
        await until(lambda: made.nodes["a"].node.realm.foreign.get(_owner(made)) is not None)
        await carol.publish("t/1", b"2", qos=1)
        await watch.silent()


def _owner(made: Ring) -> tuple[str, str]:
    from tidegate.policy.identities import USER

    return "c", made.nodes["c"].node.identities.table.id(USER, "carol")


@pytest.mark.parametrize("how", ["list", "revoked"])
@on_uvloop
async def test_who_is_not_vouched_for_any_more_has_to_go(keys: Path, tmp_path: Path, how: str) -> None:
    async with ring(tmp_path, keys) as made:
        carol = await made.dial("a", "carol")
        assert carol.connack.reason == 0
        text = made.text("c", ACCEPT='["CN=b"]')
        if how == "revoked":
            text = made.text("c").replace("trust:\n", "trust:\n  by: subject\n  revoked: [../carol.pem]\n")
        await made.nodes["c"].reload(text)
        assert (await carol.expect(wire.Disconnect)).reason == wire.Reason.NOT_AUTHORIZED
        again = await made.dial("a", "carol")
        assert again.connack.reason == wire.Reason.NOT_AUTHORIZED


@pytest.mark.parametrize("restarted", ["voucher", "between"])
@on_uvloop
async def test_a_word_is_taken_back_after_a_restart(
    keys: Path, tmp_path: Path, restarted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node c has forgotten nothing of what it said, and node b nothing of what it passed on."""
    monkeypatch.setattr(dialer, "FIRST", 0.02)
    monkeypatch.setattr(dialer, "LONGEST", 0.1)
    made = _files(tmp_path, keys)
    async with contextlib.AsyncExitStack() as others:
        async with made.running("c") as c, contextlib.AsyncExitStack() as between:
            await between.enter_async_context(made.running("b"))
            await others.enter_async_context(made.running("a"))
            await made.connected()
            carol = await made.dial("a", "carol")
            assert carol.connack.reason == 0
            await between.aclose()
            await others.enter_async_context(made.running("b"))
            await made.connected()
            if restarted == "between":
                await c.reload(made.text("c", ACCEPT='["CN=b"]'))
                assert (await carol.expect(wire.Disconnect)).reason == wire.Reason.NOT_AUTHORIZED
        if restarted == "voucher":
            async with made.running("c", ACCEPT='["CN=b"]'):
                assert (await carol.expect(wire.Disconnect)).reason == wire.Reason.NOT_AUTHORIZED


@on_uvloop
async def test_a_word_that_is_taken_back_while_the_node_that_asked_is_away(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "FIRST", 0.02)
    monkeypatch.setattr(dialer, "LONGEST", 0.1)
    made = _files(tmp_path, keys)
    async with made.running("c") as c, made.running("b"):
        async with made.running("a"):
            await made.connected()
            assert (await made.dial("a", "carol")).connack.reason == 0
        async with made.running("a"):  # it still believes what it was told
            (word,) = made.nodes["a"].node.realm.node_links.certificates._words.values()
            assert (word[0].vouched.name, word[0].vouched.domain) == ("carol", "c")
        await c.reload(made.text("c", ACCEPT='["CN=b"]'))
        async with made.running("a") as a:
            await made.connected()
            await until(lambda: not a.node.realm.node_links.certificates._words)
            assert (await made.dial("a", "carol")).connack.reason == wire.Reason.NOT_AUTHORIZED
            denials = [row async for piece in a.node.audit.stream(kinds=["deny"]) for row in piece]
            assert not any("which it has not given" in str(row) for row in denials)


@on_uvloop
async def test_otherwise_degrade_keeps_whom_nobody_knows_as_nobody(keys: Path, tmp_path: Path) -> None:
    async with ring(tmp_path, keys, OTHERWISE="degrade", ANONYMOUS="true") as made:
        eve = await made.dial("a", "eve")
        assert ("level", "tls") in eve.connack.properties.user_properties
        carol = await made.dial("a", "carol")
        assert ("level", "trusted") in carol.connack.properties.user_properties


@on_uvloop
async def test_whoever_is_vouched_for_is_no_node(keys: Path, tmp_path: Path) -> None:
    """A word for a certificate lets nobody open a link."""
    from sockets.test_links import greeting

    async with ring(tmp_path, keys) as made:
        assert (await made.dial("a", "carol")).connack.reason == 0
        refused = await made.dial("a", "carol", client_id="l", clean_start=False, properties=greeting("b->a"))
        assert refused.connack.reason == wire.Reason.NOT_AUTHORIZED
