"""Examples of several nodes: each is a process, its file the one of the example, with other ports and certificates."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.pages import ROOT
from harness import PATIENCE, Client, free_port
from processes import File, Process
from tidegate import wire
from tidegate.cli import certificates
from tidegate.net.control_socket import follow
from tidegate.store.journal.rows import AuditRow

PORTS = ("1883", "1884", "1885", "1886", "8883", "8884", "8885")
KEEP = wire.Properties(session_expiry_interval=600)


class Nodes:
    """The nodes of an example, by their names, and clients that are called like their users."""

    def __init__(self, folder: Path, example: str, *names: str) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        self.running: dict[str, Process] = {}
        self.clients: list[Client] = []
        self.files = {name: self._file(example, name) for name in names}
        certificates.make_ca(folder / "certs", "Test CA", days=2)
        for name in names:
            certificates.issue(folder / "certs", name, ["127.0.0.1"], client=True, days=2)

    def _file(self, example: str, name: str) -> File:
        text = (ROOT / "examples" / example / f"{name}.yaml").read_text().partition("\ntests:")[0]
        text = re.sub(rf":({'|'.join(PORTS)})\b", lambda found: f":{self.ports[found[1]]}", text)
        place = self.folder / name
        place.mkdir()
        for made in ("certs", "keys"):
            text = text.replace(f"var/{made}", str(self.folder / made))
        return File(place, text)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            self.running[name] = Process(self.files[name])
        for name in names:
            self.running[name].wait_until_it_accepts()

    def stop(self) -> None:
        """All that still run, and nothing was logged that should not have been."""
        codes = {name: process.stop() for name, process in self.running.items()}
        assert not any(codes.values()), codes
        for process in self.running.values():
            process.check()

    def kill(self, *names: str) -> None:
        for name in names or tuple(self.running):
            self.running.pop(name).kill()

    def link(self, node: str, link: str) -> dict[str, Any]:
        """The state of a link as a node tells it."""
        found: dict[str, Any] = self.running[node].ask("link_show", link=link)
        return found

    def until(self, node: str, link: str, **wanted: object) -> None:
        """Waits until a link is as it should be. Who found nobody at first tries again after seconds."""
        deadline = time.monotonic() + 6 * PATIENCE
        while not wanted.items() <= (found := self.link(node, link)).items():
            assert time.monotonic() < deadline, found
            time.sleep(0.01)

    @contextlib.contextmanager
    def changed(self, node: str, *changes: tuple[str, str]) -> Iterator[None]:
        """Runs by a file that has been edited, and at the end by the one from before."""
        before = self.files[node].path.read_text()
        text = before
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        try:
            self.reload(node, text)
            yield
        finally:
            self.reload(node, before)

    def reload(self, node: str, text: str) -> None:
        self.files[node].path.write_text(text)
        self.running[node].ask("reload")

    def denials(self, node: str, **wanted: object) -> list[dict[str, Any]]:
        """What a node says that it has denied."""
        pieces = follow(self.running[node].control, "audit", kinds=["deny"])
        rows = [AuditRow(*row)._asdict() for piece in pieces for row in piece]
        return [row for row in rows if wanted.items() <= row.items()]

    # -- clients ---------------------------------------------------------------------------------------------------

    async def come(self, user: str, port: str, *filters: str, **fields: Any) -> Client:
        """Somebody who connects to a port of the example, with a password that is the name, and subscribes."""
        client = Client(*await asyncio.open_connection("127.0.0.1", int(self.ports[port])))
        self.clients.append(client)
        fields = {"client_id": user, "clean_start": True, "keep_alive": 0, **fields}
        await client.send(wire.Connect(version=wire.V5, username=user, password=user.encode(), **fields))
        client.connack = await client.expect(wire.Connack)
        assert client.connack.reason == 0, client.connack
        for filter in filters:
            assert (await client.subscribe(filter, qos=1)).reasons == (1,), (user, filter)
        return client

    async def leave(self) -> None:
        """All clients."""
        while self.clients:
            writer = self.clients.pop().writer
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.contextmanager
def nodes(folder: Path, example: str, *names: str) -> Iterator[Nodes]:
    """The nodes of an example; they run until the end of the block."""
    made = Nodes(folder, example, *names)
    try:
        made.start(*names)
        yield made
    except BaseException:
        made.kill()
        raise
    made.stop()
