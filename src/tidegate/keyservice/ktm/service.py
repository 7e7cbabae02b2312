"""The key service on the network: nodes connect with mutual TLS, put keys, ask for them, and are told of each other's.

Invariants
- Nobody is heard without a certificate of an authority in `client_ca` that is not revoked and, with `accept`, has a
  listed subject.
- The requests of a node are done one after the other, in their order. A node that does not read, or begins a frame and
  does not end it, is sent away after a while; whoever sends something else at once. Nobody else notices.
- Who waits for a TLS handshake takes none of the places of nodes that are connected, and one address only so many.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, OrderedDict
from dataclasses import asdict
from typing import Any, Final

import structlog
from cryptography import x509

from tidegate.addresses import network
from tidegate.config.ktm import Ktm, KtmConfig
from tidegate.errors import KeysError, ProtocolError, StoreError
from tidegate.keys import PublicKey, TopicKey
from tidegate.keyservice.ktm import frames
from tidegate.keyservice.ktm.frames import Op, Request, Wrong
from tidegate.keyservice.ktm.key_store import KeyStore
from tidegate.net import Tls, bound
from tidegate.net.crl import RevocationFile
from tidegate.policy import By, Close, Trust
from tidegate.session import Bucket

PEERS: Final = 1024
GREETING: Final = 256  # connections that have not said yet who they are,
FROM_ONE: Final = 64  # and those of them from one address
HANDSHAKE: Final = 10.0
HELLO: Final = 10.0
GOODBYE: Final = 5.0
IDLE: Final = 60.0  # seconds without a request; a node says something every 15
WHOLE: Final = 10.0  # seconds for a frame that has begun
SLOW: Final = 15.0  # seconds in which a node takes what it is sent
BACKLOG: Final = 256
LINES: Final = 10.0  # log lines a second about those who are refused

log = structlog.get_logger("tidegate.ktm")


def context(ktm: Ktm) -> ssl.SSLContext:
    """The certificates as they are now; ConfigError if they cannot be loaded."""
    return Tls(
        cert=ktm.cert, key=ktm.key or ktm.cert, client_ca=ktm.client_ca, client_cert="required", minimum="1.3"
    ).context()


def revocation(ktm: Ktm) -> RevocationFile:
    """The certificates that are revoked now; ConfigError if the lists cannot be relied on."""
    return RevocationFile(str(ktm.listen), ktm.crl, ktm.client_ca)


def trust(ktm: Ktm) -> Trust | None:
    return None if ktm.accept is None else Trust(By.SUBJECT, ktm.accept)


class Peer:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, address: str, subject: str, der: bytes
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.address = address
        self.subject = subject
        self.der = der
        self.watching = False
        self._keys: OrderedDict[str, TopicKey] = OrderedDict()  # that it has not been told yet
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._wake = asyncio.Event()

    def tell(self, keys: list[TopicKey], revoked: list[str]) -> None:
        for key in keys:
            if key.id not in self._revoked:
                self._keys[key.id] = key
        for id in revoked:
            self._keys.pop(id, None)
            self._revoked[id] = None
        self._wake.set()

    async def send(self, frame: bytes) -> None:
        self.writer.write(frame)
        async with asyncio.timeout(SLOW):
            await self.writer.drain()

    async def push(self) -> None:
        """Whatever it is to be told, until it is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._keys or self._revoked:
                await self.send(self._next())

    def _next(self) -> bytes:
        revoked = [self._revoked.popitem(last=False)[0] for _ in range(min(frames.IDS, len(self._revoked)))]
        keys: list[TopicKey] = []
        size = 0
        while self._keys and size < frames.PUSH:
            _, key = self._keys.popitem(last=False)
            size += sum(map(len, frames.packed(key)))
            if keys and size > frames.PUSH:
                self._keys[key.id] = key
                break
            keys.append(key)
        return frames.told(keys, revoked)


class Service:
    """Listens, and serves nodes from a key_store that is open."""

    def __init__(self, config: KtmConfig, key_store: KeyStore) -> None:
        self.config = config
        self.peers: set[Peer] = set()
        self._key_store = key_store
        self._context = context(config.ktm)
        self._trust = trust(config.ktm)
        self._revocation = revocation(config.ktm)
        self._watching: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeting: Counter[str] = Counter()
        self._lines: Bucket | None = None
        self._unsaid = 0

    @property
    def port(self) -> int:
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """ConfigError if the address cannot be had."""
        url = self.config.ktm.listen
        listening = self._socket = bound(url, url.host, url.port, BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))
        self._watch()

    def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.get_running_loop().create_task(self._revocation.watch(self._dismiss_refused))

    async def close(self) -> None:
        tasks = [task for task in (self._accepting, self._watching, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._socket is not None:
            self._socket.close()

    def reload(self, config: KtmConfig, context: ssl.SSLContext, revocation: RevocationFile) -> None:
        """Other certificates for who comes from now on; those who are no longer accepted are sent away."""
        self.config, self._context, self._trust = config, context, trust(config.ktm)
        self._revocation = revocation
        self._watch()
        self._dismiss_refused()

    def _dismiss_refused(self) -> None:
        for peer in list(self.peers):
            if (refusal := self._refusal(peer.der)) is not None:
                self._refused(peer.address, refusal)
                peer.writer.transport.abort()

    # -- who comes -------------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, name = await loop.sock_accept(listening)
            except OSError as error:
                log.error("cannot accept connections", reason=error.strerror)
                await asyncio.sleep(0.2)
                continue
            address = str(name[0])
            if (
                self._greeting.total() >= GREETING
                or self._greeting[network(address)] >= FROM_ONE
                or len(self.peers) >= PEERS
            ):
                connection.close()
                self._refused(address, "there are too many connections already")
                continue
            self._greeting[network(address)] += 1
            task = loop.create_task(self._serve(connection, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, address: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer: Peer | None = None
        try:
            try:
                peer = await self._greet(connection, address)
            finally:
                self._greeting[network(address)] -= 1
                if not self._greeting[network(address)]:
                    del self._greeting[network(address)]
            self.peers.add(peer)
            log.info("a node is connected", node=peer.subject, address=address)
            await self._attend(peer)
        except (ProtocolError, ssl.SSLError, OSError, EOFError, TimeoutError) as error:
            if peer is None or peer not in self.peers:
                self._refused(address, _why(error))
            else:
                self._left(peer, error)
        except Exception:
            log.exception("bug", address=address)
        finally:
            if peer is not None:
                self.peers.discard(peer)
                peer.writer.transport.abort()

    async def _greet(self, connection: socket.socket, address: str) -> Peer:
        """Who it is; an error says why not."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE,
                ssl_shutdown_timeout=GOODBYE,
            )
        except BaseException:
            connection.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            if (refusal := self._refusal(der)) is not None:
                writer.write(frames.welcome(refusal))
                raise ProtocolError(refusal)
            subject = x509.load_der_x509_certificate(der).subject.rfc4514_string()
            peer = Peer(reader, writer, address=address, subject=subject, der=der)
            try:
                frames.read_hello(await frames.receive(reader, idle=HELLO, whole=HELLO))
            except ProtocolError as error:
                writer.write(frames.welcome(str(error)))
                raise
            await peer.send(frames.welcome())
        except BaseException:
            writer.close()  # what was written still goes out
            raise
        return peer

    def _refusal(self, der: bytes) -> str | None:
        if objection := self._revocation.objection(der):
            return f"its certificate was not accepted: {objection}"
        if self._trust is not None and isinstance(judged := self._trust.judge(der), Close):
            return judged.reason.replace("on the trust list", "listed in `accept` of the key service")
        return None

    # -- serving ---------------------------------------------------------------------------------------------------

    async def _attend(self, peer: Peer) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._answer(peer))
                group.create_task(peer.push())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the other task was ended because of it

    async def _answer(self, peer: Peer) -> None:
        while True:
            request = frames.read_request(await frames.receive(peer.reader, idle=IDLE, whole=WHOLE))
            try:
                value = await self._done(peer, request)
                frame = frames.answer(request.number, value)
            except KeysError as error:
                frame = frames.failure(request.number, Wrong.INVALID, str(error))
            except StoreError as error:
                log.error("a request could not be served", node=peer.subject, op=request.op.value, reason=str(error))
                frame = frames.failure(request.number, Wrong.UNAVAILABLE, str(error))
            await peer.send(frame)

    async def _done(self, peer: Peer, request: Request) -> object:
        """ProtocolError if the node says what no node says; that ends the connection."""
        key_store, said = self._key_store, request.said
        match request.op:
            case Op.PING:
                return None
            case Op.PUT:
                key = frames.unpacked(said.get("key"))
                if not await key_store.put(key):
                    return False
                self._tell(peer, [key], [])
                return True
            case Op.FIND:
                found = await key_store.find(frames.read_id(said.get("id")))
                return None if found is None else frames.packed(found)
            case Op.REVOKE:
                ids = frames.read_ids(said.get("ids"))
                await key_store.revoke(ids)
                self._tell(peer, [], ids)
                return None
            case Op.WATCH:
                peer.watching = True  # first: what comes while the others are read is told as well
                keys = await key_store.shared()
                peer.tell(keys, list(key_store.revoked))
                return None
            case Op.GRANT:
                answer, id = await key_store.grant(frames.read_group(said.get("group")), **_reader(said))
                return [answer, id]
            case Op.WRAP:
                return await key_store.wrap(frames.read_id(said.get("id")), **_reader(said))
            case Op.ROTATE:
                key_store.rotate()
                return None
            case Op.GROUP:
                group = await key_store.group(frames.read_id(said.get("id")))
                return None if group is None else asdict(group)

    def _tell(self, by: Peer, keys: list[TopicKey], revoked: list[str]) -> None:
        for peer in self.peers:
            if peer.watching and peer is not by:
                peer.tell(keys, revoked)

    # -- saying ----------------------------------------------------------------------------------------------------

    def _left(self, peer: Peer, error: BaseException) -> None:
        name = {"node": peer.subject, "address": peer.address, "reason": _why(error)}
        match error:
            case EOFError():
                log.info("a node has left", **name)
            case ProtocolError() | TimeoutError():
                log.warning("a node was sent away", **name)
            case _:
                log.warning("a node is lost", **name)

    def _refused(self, address: str, reason: str) -> None:
        """One line for each, but no more than can be read."""
        now = asyncio.get_running_loop().time()
        self._lines = self._lines or Bucket(LINES, LINES, now)
        if not self._lines.afford(now):
            self._unsaid += 1
            return
        log.warning("refused", address=address, reason=reason, unsaid=self._unsaid)
        self._unsaid = 0


def _reader(said: dict[str, Any]) -> dict[str, Any]:
    match said:
        case {"public": str(public), "reader": str(reader), "request": str(request)}:
            return {"public": PublicKey.parse(public), "reader": reader, "request": request}
        case _:
            raise ProtocolError("a request for a reader that does not say which")


def _why(error: BaseException) -> str:
    """What went wrong with a connection, in the words of whoever has to mend it."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate was not accepted: {error.verify_message}"
        case ssl.SSLError():
            known = {
                "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
                "WRONG_VERSION_NUMBER": "it does not speak TLS",
                "HTTP_REQUEST": "it speaks HTTP",
                "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
            }
            return known.get(error.reason or "", f"TLS failed: {error.reason or error}")
        case TimeoutError():
            return "it was too slow"
        case EOFError():
            return "it closed the connection"
        case _:
            return str(error) or type(error).__name__
