"""The broker behind a Unix socket, and behind TLS: whom the guard believes to be the broker, and who it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.guarded import HERE, guarded, restartable
from processes import Served, on_uvloop, until
from sockets.acts import BOTH, come
from tidegate import wire
from tidegate.cli import certificates as cli
from tidegate.guard import GuardedScope

TLS = "cafile {0}/ca.pem\ncertfile {0}/{1}.pem\nkeyfile {0}/{1}.key\nrequire_certificate true\n"


async def says_something(node: Served, version: int = wire.V5) -> None:
    mary = await come(node, "mary", version=version)
    await mary.subscribe("open/#", qos=2)
    for qos in (0, 1, 2):
        await mary.send(wire.Publish(topic="open/a", payload=b"x", qos=qos, packet_id=qos))
    seen = []
    while len(seen) < 3:
        match packet := await mary.receive():
            case wire.Publish():
                seen.append(packet.qos)
            case wire.Pubrec():
                await mary.send(wire.Pubrel(packet_id=packet.packet_id))
            case _:
                pass
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_broker_behind_a_unix_socket(tmp_path: Path, version: int) -> None:
    """It counts as a part of the node, as one on loopback does."""
    path = tmp_path / "b.sock"
    with restartable(tmp_path, f"listener 0 {path}\nallow_anonymous true\n") as broker:
        scope = {**HERE, "backend": f"unix://{path}"}
        async with guarded(tmp_path, broker.port, scope=scope) as node:
            await says_something(node, version)
            legacy = node.node.scopes["legacy"]
            assert isinstance(legacy, GuardedScope)
            assert legacy.target.subject.level == "trusted"
            row = node.node.status()["guards"][0]
            assert (row["backend"], row["state"]) == (f"unix://{path}", "connected")
            broker.stop()
            await until(lambda: node.node.status()["guards"][0]["state"] == "gone")
            await come(node, "mary", version=version, expect=0x88 if version == wire.V5 else 3)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the broker, of one with another name and of the guard; and another authority."""
    folder = tmp_path_factory.mktemp("papers")
    cli.make_ca(folder, "Test CA", days=2)
    cli.issue(folder, "broker", ["127.0.0.1"], client=False, days=2)
    cli.issue(folder, "elsewhere", ["broker.example"], client=False, days=2)
    cli.issue(folder, "guard", [], client=True, days=2)
    (folder / "other").mkdir()
    cli.make_ca(folder / "other", "Other CA", days=2)
    return folder


def showing(papers: Path, ca: str = "ca.pem", own: str | None = "guard") -> dict[str, Any]:
    """The section `node` of a guard."""
    files = {} if own is None else {"cert": str(papers / f"{own}.pem"), "key": str(papers / f"{own}.key")}
    return {"name": "test", "ca": str(papers / ca), **files}


@on_uvloop
async def test_a_broker_behind_tls(tmp_path: Path, papers: Path) -> None:
    """Both show a certificate; a guard without one, and one that does not know the authority, do not get in."""
    with restartable(tmp_path, TLS.format(papers, "broker")) as broker:
        scope = {**HERE, "backend": f"mqtts://127.0.0.1:{broker.port}"}
        async with guarded(tmp_path, broker.port, scope=scope, node=showing(papers)) as node:
            await says_something(node)
        for wrong in (showing(papers, own=None), showing(papers, ca="other/ca.pem")):
            async with guarded(tmp_path, broker.port, scope=scope, node=wrong) as node:
                await come(node, "mary", expect=0x88)
                await until(lambda: bool(node.node.status()["guards"][0]["error"]))
                row = node.node.status()["guards"][0]
                assert row["state"] == "gone"
                if wrong["ca"].endswith("other/ca.pem"):
                    assert "certificate" in row["error"]


@on_uvloop
async def test_a_broker_with_the_certificate_of_another_is_none(tmp_path: Path, papers: Path) -> None:
    with restartable(tmp_path, TLS.format(papers, "elsewhere")) as broker:
        scope = {**HERE, "backend": f"mqtts://127.0.0.1:{broker.port}"}
        async with guarded(tmp_path, broker.port, scope=scope, node=showing(papers)) as node:
            await come(node, "mary", expect=0x88)
            await until(lambda: "certificate" in (node.node.status()["guards"][0]["error"] or ""))
