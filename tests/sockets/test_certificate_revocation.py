"""A certificate that was revoked, by a list of its authority or one by one, ends what it opened and opens nothing.

Seen from the attacker, who has the key and the certificate of somebody and keeps trying.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from structlog.testing import capture_logs

from api.real import administering
from conformance.clock import Clock
from harness import PATIENCE, Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import PEOPLE, come, dismissed, go, inbox, secure, setting
from tidegate import wire
from tidegate.cli import certificates as cli
from tidegate.config import Config
from tidegate.errors import TidegateError
from tidegate.net.crl import RevocationFile
from tidegate.node.revocation import read_revocation
from tidegate.policy.revocation import Revocation
from tidegate.session import Session

REFUSED = 0x87


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A CA of its own, whose list is empty, with the certificates of some clients."""
    folder = tmp_path / "authority"
    cli.make_ca(folder, "Revoking CA", days=2)
    cli.issue(folder, "node", ["127.0.0.1"], client=False, days=2)
    for name in ("bob", "mary", "sensor"):
        cli.issue(folder, name, [], client=True, days=2)
    cli.revoke(folder, [], days=2)
    return folder


def with_list(authority: Path, crl: str | None = "ca.crl", **sections: Any) -> str:
    written = json.loads(setting(certificates=authority, directory={"users": PEOPLE}, **sections))
    if crl is not None:
        written["listeners"][1]["crl"] = str(authority / crl)
    return json.dumps(written)


async def enter(node: Served, authority: Path, name: str, expect: int = 0, **more: Any) -> Client:
    return await come(node, None, client=f"of-{name}", tls=secure(authority, name), expect=expect, **more)


def write_list(authority: Path, *, expires: datetime, signer: Path | None = None) -> None:
    """A list with nothing in it, that expires then."""
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key(((signer or authority) / "ca.key").read_bytes(), password=None)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(expires - timedelta(days=9)).next_update(expires)
    data = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
    (authority / "ca.crl").write_bytes(data)


def write_malformed(authority: Path) -> None:
    """A list that its authority has signed, with an extension (its number) that is none."""
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(now).next_update(now + timedelta(days=2))
    number = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.20"), b"\x0c\x01a")
    builder = builder.add_extension(number, critical=False)
    data = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]
    (authority / "ca.crl").write_bytes(data)


def by_list(authority: Path, node: Served) -> str | None:
    cli.revoke(authority, [authority / "bob.pem"], days=2)
    return None  # the file is watched


def by_reload(authority: Path, node: Served) -> str | None:
    cli.revoke(authority, [authority / "bob.pem"], days=2)
    return with_list(authority)


def by_fingerprint(authority: Path, node: Served) -> str | None:
    return with_list(authority, trust={"revoked": [cli.show(authority / "bob.pem")["fingerprint"]]})


def by_file(authority: Path, node: Served) -> str | None:
    return with_list(authority, crl=None, trust={"revoked": [str(authority / "bob.pem")]})


@pytest.mark.parametrize("revoke", [by_list, by_reload, by_fingerprint, by_file])
@on_uvloop
async def test_a_revoked_certificate(
    tmp_path: Path, authority: Path, revoke: Callable[[Path, Served], str | None]
) -> None:
    """Who is connected with it goes, without a will and without a session; nobody enters with it; others stay."""
    async with from_file(tmp_path, with_list(authority)) as node:
        mary = await enter(node, authority, "mary")
        await mary.subscribe("wills", qos=1)
        will = wire.Will(topic="wills", payload=b'"late"', qos=1, retain=False)
        bob = await enter(node, authority, "bob", stays=True, will=will)
        await bob.subscribe("t", qos=1)
        if (text := revoke(authority, node)) is not None:
            await node.reload(text)
        await dismissed(bob, REFUSED)
        await until(lambda: all(each.client != "of-bob" for each in node.node.scopes["main"].sessions.values()))
        await enter(node, authority, "bob", expect=REFUSED)
        # nor beside the password of somebody: whoever has the key may have that as well
        await come(node, "alice", tls=secure(authority, "bob"), expect=REFUSED)
        await come(node, "bob")  # the user is not revoked
        assert await inbox(mary) == []
        await enter(node, authority, "sensor")


async def leave_will(node: Served, authority: Path, delay: int = 60) -> None:
    """Bob comes with his certificate and is lost; his will fires when the clock is advanced."""
    properties = wire.Properties(will_delay_interval=delay)
    will = wire.Will(topic="wills", payload=b'"late"', qos=1, retain=True, properties=properties)
    await go(node, await enter(node, authority, "bob", stays=True, will=will))


def bob_left(node: Served) -> list[Session]:
    return [each for each in node.node.scopes["main"].sessions.values() if each.client == "of-bob"]


@pytest.mark.parametrize("revoke", [by_list, by_reload, by_fingerprint, by_file])
@on_uvloop
async def test_a_certificate_that_is_revoked_while_its_client_is_away(
    tmp_path: Path, authority: Path, revoke: Callable[[Path, Served], str | None]
) -> None:
    """semantics.md, Time: its will is dropped; its session ends as if it were connected."""
    async with from_file(tmp_path, with_list(authority)) as node:
        mary = await enter(node, authority, "mary")
        await mary.subscribe("wills", qos=1)
        await leave_will(node, authority)
        assert bob_left(node)
        if (text := revoke(authority, node)) is not None:
            await node.reload(text)
        await until(lambda: not bob_left(node))
        await Clock(node).advance(61)
        assert await inbox(mary) == []


@pytest.mark.parametrize("otherwise", ["close", "degrade"])
@pytest.mark.parametrize("listed", [True, False])
@on_uvloop
async def test_a_certificate_that_is_taken_off_the_trust_list_while_its_client_is_away(
    tmp_path: Path, authority: Path, otherwise: str, listed: bool
) -> None:
    def trusting(*names: str) -> str:
        accept = [f"CN={name}" for name in names]
        return with_list(authority, trust={"by": "subject", "accept": accept, "otherwise": otherwise})

    async with from_file(tmp_path, trusting("mary", "bob")) as node:
        mary = await enter(node, authority, "mary")
        await mary.subscribe("wills", qos=1)
        await leave_will(node, authority)
        await node.reload(trusting("mary", "sensor", *(["bob"] if listed else [])))
        await Clock(node).advance(61)
        assert [each.payload for each in await inbox(mary)] == ([b'"late"'] if listed else [])


@on_uvloop
async def test_a_change_over_http_does_not_hide_a_new_list(tmp_path: Path, authority: Path) -> None:
    """Also a change that the owner of the revoked certificate makes before the node has looked at the files."""
    async with administering(tmp_path, with_list(authority, store="sqlite", data=True)) as api:
        token = (await api.make("/tokens", {"role": "user", "user": "bob"}))["token"]
        bob = await enter(api.served, authority, "bob", stays=True)
        cli.revoke(authority, [authority / "bob.pem"], days=2)
        await api.make("/me/preferences", {"topic": "x", "when": "true"}, token)
        await dismissed(bob, REFUSED)
        await enter(api.served, authority, "bob", expect=REFUSED)


@on_uvloop
async def test_a_list_is_taken_up_though_the_configuration_changes_while_it_is_read(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with administering(tmp_path, with_list(authority, store="sqlite", data=True)) as api:
        token = (await api.make("/tokens", {"role": "user", "user": "bob"}))["token"]
        bob = await enter(api.served, authority, "bob", stays=True)
        reading = asyncio.Event()
        go_on = threading.Event()
        loop = asyncio.get_running_loop()

        def slowly(config: Config) -> Revocation:
            found = read_revocation(config)
            loop.call_soon_threadsafe(reading.set)
            go_on.wait(5)
            return found

        monkeypatch.setattr("tidegate.node.revocation.read_revocation", slowly)
        cli.revoke(authority, [authority / "bob.pem"], days=2)
        await asyncio.wait_for(reading.wait(), PATIENCE)
        change = asyncio.create_task(api.make("/me/preferences", {"topic": "x", "when": "true"}, token))
        await asyncio.wait([change], timeout=0.5)  # in force by then, unless it waits for the list
        go_on.set()
        await change
        await dismissed(bob, REFUSED)


@on_uvloop
async def test_a_list_that_has_expired_lets_nobody_in(tmp_path: Path, authority: Path) -> None:
    """Whether a certificate was revoked is not known then; the log says so, and what to do."""
    write_list(authority, expires=datetime.now(UTC) - timedelta(seconds=1))
    with capture_logs() as logs:
        async with from_file(tmp_path, with_list(authority)) as node:
            assert [each for each in logs if "has expired" in each["event"] and "crl" in each["remedy"]]
            await enter(node, authority, "bob", expect=REFUSED)
            await come(node, "bob", tls=secure(authority))  # without a certificate
            cli.revoke(authority, [], days=2)
            await until(lambda: any("refreshed" in each["event"] for each in logs))
            await enter(node, authority, "bob")


@on_uvloop
async def test_a_list_expires_while_somebody_is_connected(
    tmp_path: Path, authority: Path, clock: Callable[[str], None]
) -> None:
    write_list(authority, expires=datetime(2026, 2, 12, tzinfo=UTC))
    async with from_file(tmp_path, with_list(authority)) as node:
        bob = await enter(node, authority, "bob")
        clock("2026-02-12T00:00:01")
        await dismissed(bob, REFUSED)


@on_uvloop
async def test_a_certificate_expires_while_its_client_is_connected(
    tmp_path: Path, authority: Path, clock: Callable[[str], None]
) -> None:
    """Whatever else its client came with: the level of the connection is the certificate's."""
    async with from_file(tmp_path, with_list(authority, crl=None)) as node:
        reader = await come(node, "mary")
        await reader.subscribe("wills", qos=1)
        will = wire.Will(topic="wills", payload=b'"late"', qos=1, retain=False)
        bob = await enter(node, authority, "bob", will=will)
        named = await come(node, "mary", client="named", tls=secure(authority, "sensor"))
        plain = await come(node, "mary", client="plain", tls=secure(authority))
        clock("2036-01-01T00:00:00")
        await dismissed(bob, REFUSED)
        await dismissed(named, REFUSED)
        assert await inbox(plain) == []
        assert await inbox(reader) == []


@on_uvloop
async def test_a_certificate_expires_while_its_client_is_away(
    tmp_path: Path, authority: Path, clock: Callable[[str], None]
) -> None:
    async with from_file(tmp_path, with_list(authority, crl=None)) as node:
        mary = await come(node, "mary")
        await mary.subscribe("wills", qos=1)
        await leave_will(node, authority, delay=1)
        clock("2036-01-01T00:00:00")
        await until(lambda: bob_left(node)[0].will is None)
        assert await inbox(mary) == []


@pytest.mark.parametrize("away", [False, True])
@on_uvloop
async def test_an_authority_is_not_trusted_any_more(tmp_path: Path, authority: Path, away: bool) -> None:
    """Who was verified by it goes on a reload of the file; who was verified by another one stays."""
    other = tmp_path / "other"
    cli.make_ca(other, "Other CA", days=2)
    cli.issue(other, "mary", [], client=True, days=2)
    trusted, remaining = authority / "ca.pem", (other / "ca.pem").read_bytes()
    trusted.write_bytes(trusted.read_bytes() + remaining)
    async with from_file(tmp_path, with_list(authority, crl=None)) as node:
        context = secure(authority)
        context.load_cert_chain(other / "mary.pem", other / "mary.key")
        mary = await come(node, None, client="of-mary", tls=context)
        await mary.subscribe("wills", qos=1)
        will = wire.Will(topic="wills", payload=b'"late"', qos=1, retain=False)
        if away:
            await leave_will(node, authority)
        else:
            bob = await enter(node, authority, "bob", stays=True, will=will)
        trusted.write_bytes(remaining)
        await node.reload(with_list(authority, crl=None))
        if away:
            await until(lambda: bob_left(node)[0].will is None)
        else:
            await dismissed(bob, REFUSED)
        assert await inbox(mary) == []


def expiring(authority: Path, clock: Callable[[str], None]) -> str:
    clock("2036-01-01T00:00:00")
    return with_list(authority, crl=None, data=True)


def revoked(authority: Path, clock: Callable[[str], None]) -> str:
    return with_list(authority, crl=None, data=True, trust={"revoked": [str(authority / "bob.pem")]})


def distrusted(authority: Path, clock: Callable[[str], None]) -> str:
    cli.make_ca(authority / "other", "Other CA", days=2)
    (authority / "ca.pem").write_bytes((authority / "other" / "ca.pem").read_bytes())
    return with_list(authority, crl=None, data=True)


def degraded(authority: Path, clock: Callable[[str], None]) -> str:
    trust = {"by": "subject", "accept": ["CN=mary"], "otherwise": "degrade"}
    return with_list(authority, crl=None, data=True, trust=trust)


def nothing(authority: Path, clock: Callable[[str], None]) -> str:
    return with_list(authority, crl=None, data=True)


@pytest.mark.parametrize("meanwhile", [nothing, expiring, revoked, distrusted, degraded])
@on_uvloop
async def test_a_certificate_that_ends_while_the_node_is_down(
    tmp_path: Path,
    authority: Path,
    clock: Callable[[str], None],
    meanwhile: Callable[[Path, Callable[[str], None]], str],
) -> None:
    """semantics.md, Time: "a revoked or expired subject's will is dropped", also that of a session from the store."""
    async with from_file(tmp_path, with_list(authority, crl=None, data=True)) as node:
        will = wire.Will(topic="wills", payload=b'"late"', qos=1, retain=True)
        await enter(node, authority, "bob", stays=True, will=will)
    async with from_file(tmp_path, meanwhile(authority, clock)) as node:
        await until(lambda: all(each.will is None for each in bob_left(node)))
        mary = await come(node, "mary")
        await mary.subscribe("wills", qos=1)
        assert [each.payload for each in await inbox(mary)] == ([b'"late"'] if meanwhile is nothing else [])


@on_uvloop
async def test_a_file_that_becomes_useless_changes_nothing(tmp_path: Path, authority: Path) -> None:
    with capture_logs() as logs:
        async with from_file(tmp_path, with_list(authority)) as node:
            bob = await enter(node, authority, "bob")
            (authority / "ca.crl").write_text("half a li")
            await until(lambda: any("the last good one stays" in each["event"] for each in logs))
            await bob.silent()
            await enter(node, authority, "sensor")


@on_uvloop
async def test_a_malformed_list_does_not_end_the_watch(tmp_path: Path, authority: Path) -> None:
    with capture_logs() as logs:
        async with from_file(tmp_path, with_list(authority)) as node:
            bob = await enter(node, authority, "bob")
            write_malformed(authority)
            await until(lambda: any("the last good one stays" in each["event"] for each in logs))
            await bob.silent()
            cli.revoke(authority, [authority / "bob.pem"], days=2)
            await dismissed(bob, REFUSED)


@on_uvloop
async def test_a_failure_does_not_end_the_watch(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was: it is logged, and the same list is tried again."""
    failures = [RuntimeError("of a bug"), MemoryError()]

    def failing(config: Config) -> Revocation:
        if failures:
            raise failures.pop()
        return read_revocation(config)

    with capture_logs() as logs:
        async with from_file(tmp_path, with_list(authority)) as node:
            bob = await enter(node, authority, "bob")
            monkeypatch.setattr("tidegate.node.revocation.read_revocation", failing)
            cli.revoke(authority, [authority / "bob.pem"], days=2)
            await dismissed(bob, REFUSED)
            assert len([each for each in logs if "revoked certificates failed" in each["event"]]) == 2


@on_uvloop
async def test_neither_ends_that_of_other_services(authority: Path) -> None:
    """HTTP and the key service."""
    der = x509.load_pem_x509_certificate((authority / "bob.pem").read_bytes()).public_bytes(serialization.Encoding.DER)
    file = RevocationFile("https://test", authority / "ca.crl", authority / "ca.pem")
    failures = [RuntimeError("of a bug")]

    def changed() -> None:
        if failures:
            raise failures.pop()

    with capture_logs() as logs:
        watch = asyncio.create_task(file.watch(changed))
        write_malformed(authority)
        await until(lambda: any("the last good one stays" in each["event"] for each in logs))
        cli.revoke(authority, [], days=2)
        await until(lambda: any("revoked certificates failed" in each["event"] for each in logs))
        assert not file.objection(der)
        cli.revoke(authority, [authority / "bob.pem"], days=2)
        await until(lambda: bool(file.objection(der)))
        watch.cancel()


@pytest.mark.parametrize("wrong", ["nonsense", "forged", "malformed", "of another"])
@on_uvloop
async def test_a_list_that_cannot_be_relied_on_is_refused(tmp_path: Path, authority: Path, wrong: str) -> None:
    other = tmp_path / "other"
    cli.make_ca(other, "Revoking CA" if wrong == "forged" else "Other CA", days=2)
    if wrong == "nonsense":
        (authority / "ca.crl").write_text("nonsense")
    elif wrong == "malformed":
        write_malformed(authority)
    elif wrong == "forged":
        write_list(authority, expires=datetime.now(UTC) + timedelta(days=1), signer=other)
    else:
        (authority / "ca.crl").write_bytes(cli.revoke(other, [], days=2).read_bytes())
    with pytest.raises(TidegateError, match="crl"):
        async with from_file(tmp_path, with_list(authority)):
            pass
