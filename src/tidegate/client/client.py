"""An MQTT client for applications: it knows levels, capabilities and topic keys.

    async with Client("broker.example", user="mary", password=…, private_key=Path("mary.key"), tls=True) as client:
        await client.subscribe("campodenno/#")
        async for message in client.messages:
            print(message.topic, message.payload)

A client can be entered again after it was left, or after the connection broke, and keeps its keys; when to connect
again is for the application to decide. Messages that were not read before are there again. With `backups` it connects
again by itself, and subscribes again to what it was subscribed to.

Invariants
- Whatever the broker delivered is in `messages`, opened or with the reason why not. Only what the data pipeline had
  to publish again is there once.
- Private keys, and what is sealed here, never leave in clear.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiomqtt
import orjson
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.client.capability_holder import CapabilityHolder, name_of, subject_of
from tidegate.client.decryption import Decrypter, Deduplicator, Message
from tidegate.client.exceptions import Refused, Unreachable
from tidegate.client.failover import Failover, Place, place
from tidegate.client.http_service import HttpService
from tidegate.client.key_requests import AskKey, HttpKeyRequester, MqttKeyRequester
from tidegate.client.keyring import Keyring
from tidegate.client.mqtt_connection import MqttConnection, empty, proven
from tidegate.errors import KeysError, TidegateError
from tidegate.keys import PrivateKey
from tidegate.policy.capability import METHOD, PROPERTY
from tidegate.policy.capability import PrivateKey as ProofKey
from tidegate.policy.capability.jwk import private_key as parse_proof_key
from tidegate.policy.capability.proof import WRITE
from tidegate.policy.control_topics import ANSWER

V5: Final = 5
V311: Final = 311
DEDUPE: Final = 10_000  # messages of the pipeline
_OUTSIDE: Final = "not connected: use `async with` on the client"


class Client:
    """Publishes and subscribes; made once, entered for each connection.

    `user`, `password`, `identifier`: as whom. `capability`: the text of a token, `proof_key`: the key that confirms it.
    `tls`: True or a context; `ca`: a file of authorities, instead of the system's. `require`: the level that every
    connection on the way must have. `backups`: further addresses, which are used while the first does not answer;
    `attempts`, `interval`, `restore`: see `client.failover`. `private_key`: whose public key is registered for
    `reader`, which is `user:…` by itself. `keys` and `token`: ask for keys there, over HTTP. `patience`: for how long a
    message waits for its key. `dedupe`: of how many messages of the data pipeline it is remembered that they came, so
    that they are delivered once (MQTT 5); 0: as often as they come.
    """

    def __init__(
        self,
        host: str,
        *,
        port: int | None = None,
        backups: Sequence[str] = (),
        attempts: int = 2,
        interval: float = 1.0,
        restore: float | None = 30.0,
        user: str | None = None,
        password: str | None = None,
        identifier: str | None = None,
        version: int = V5,
        tls: bool | ssl.SSLContext = False,
        ca: str | os.PathLike[str] | None = None,
        websocket: str | None = None,
        require: str | None = None,
        capability: str | None = None,
        proof_key: ProofKey | str | os.PathLike[str] | None = None,
        private_key: PrivateKey | str | os.PathLike[str] | None = None,
        reader: str | None = None,
        keys: str | None = None,
        token: str | None = None,
        patience: float = 10.0,
        timeout: float = 10.0,
        keepalive: int = 60,
        clean: bool = True,
        session_expiry: int | None = None,
        will: aiomqtt.Will | None = None,
        dedupe: int = DEDUPE,
    ) -> None:
        if version not in (V5, V311):
            raise ValueError(f"there is no MQTT version {version} here: say 5 or 311")
        if version == V311 and (require is not None or proof_key is not None or session_expiry is not None):
            raise ValueError("`require`, `proof_key` and `session_expiry` need MQTT 5")
        if proof_key is not None and capability is None:
            raise ValueError("`proof_key` confirms a capability: give that, too")
        if dedupe < 0:
            raise ValueError("`dedupe` is a number of messages, or 0")
        self._v5 = version == V5
        self._context = _context(tls, ca)
        usual = port or (1883 if self._context is None else 8883)
        places = [(host, usual), *(place(each, usual) for each in backups)]
        self._failover = Failover(places, attempts=attempts, interval=interval, restore=restore)
        self._task: asyncio.Task[None] | None = None  # connects again, or looks for the default
        self._again = asyncio.Event()  # clear while it connects again
        self._subscribed: dict[str, tuple[SubscribeOptions, Properties | None]] = {}
        self._token = None if capability is None else capability.strip()
        self._holder = None
        if self._token is not None and proof_key is not None:
            self._holder = CapabilityHolder(self._token, _proof_key(proof_key))
        if self._token is not None and not self._v5:
            user, password = user or name_of(subject_of(self._token)), self._token
        self._private = None if private_key is None else _private_key(private_key)
        self._reader = reader or (None if user is None else f"user:{user}")
        if self._token is not None and not reader:
            self._reader = subject_of(self._token).partition("/client:")[0]
        self._service = None
        if keys is not None:
            self._service = HttpService(url=keys, token=token or "", context=self._context, timeout=timeout)
        self._require = require
        self._session_expiry = session_expiry
        self._will = will
        self._options: dict[str, Any] = {
            "username": user if user is not None else "" if password is not None else None,
            "password": password,
            "identifier": identifier,
            "protocol": aiomqtt.ProtocolVersion.V5 if self._v5 else aiomqtt.ProtocolVersion.V311,
            "clean_session": None if self._v5 else clean,
            "clean_start": clean if self._v5 else MQTT_CLEAN_START_FIRST_ONLY,
            "transport": "tcp" if websocket is None else "websockets",
            "websocket_path": websocket or None,
            "timeout": timeout,
            "keepalive": keepalive,
            "tls_context": self._context,
        }
        self._keyring = None if self._private is None else Keyring(self._private, patience=patience)
        self._patience = patience
        self._deduplicator = Deduplicator(dedupe)
        self._inbox: asyncio.Queue[Message | TidegateError] = asyncio.Queue()
        self._connection: MqttConnection | None = None
        self._open = False
        self._key_requester: MqttKeyRequester | None = None
        self._decrypter: Decrypter | None = None

    async def __aenter__(self) -> Self:
        if self._connection is not None:
            raise Unreachable("this client is connected already: make another one, or leave it first")
        before, self._inbox = self._inbox, asyncio.Queue()  # of the loop that runs now
        while not before.empty():
            if isinstance(item := before.get_nowait(), Message):
                self._inbox.put_nowait(item)
        self._subscribed.clear()
        self._again = asyncio.Event()
        self._again.set()
        connection = await self._failover.connect(self._opened)
        self._open = True
        if connection.lost.done():  # already
            self._ended(connection.lost.result())
        self._watch()
        return self

    async def _opened(self, one: Place) -> MqttConnection:
        connection = self._connection = self._new_connection(one)
        try:
            await connection.open()
        except BaseException:
            self._connection = None
            raise
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._again.set()
        connection = self._connection
        if connection is not None:
            try:
                await connection.close()
            finally:
                self._connection, self._open = None, False

    @property
    def identifier(self) -> str:
        """The client identifier, also one that the broker made up."""
        connection = self._connected()
        return str(getattr(connection.connack, "AssignedClientIdentifier", "")) or connection.identifier

    @property
    def level(self) -> str | None:
        """The level of the connection, then its facts, as the node tells them: `tls,inside`. None if it does not."""
        pairs = getattr(self._connected().connack, "UserProperty", None) or ()
        return next((value for name, value in pairs if name == "level"), None)

    @property
    def public_key(self) -> str:
        if self._private is None:
            raise KeysError("this client has no private key")
        return str(self._private.public)

    @property
    def messages(self) -> AsyncIterator[Message]:
        """Messages as they arrive, until the connection ends: then `Refused` or `Unreachable`."""
        return _Messages(self)

    async def publish(
        self,
        topic: str,
        payload: bytes | str | None = None,
        *,
        qos: int = 1,
        retain: bool = False,
        encrypt: bool = False,
        require: str | None = None,
        view: Mapping[str, Any] | None = None,
        properties: Properties | None = None,
    ) -> ReasonCode | None:
        """Publishes, and waits for the answer that the QoS promises.

        `encrypt`: sealed here, end to end. `require`: what is demanded for this message. `view`: who may see what of
        it. Refused if the broker says no; KeysError, or Denied with the rule, if no key to seal with is given.
        """
        connection = await self._current()
        table = None if view is None else orjson.dumps(view).decode()
        about = self._about(PacketTypes.PUBLISH, properties, require=require, view=table)
        content = payload.encode() if isinstance(payload, str) else payload
        if not encrypt or (retain and not content):  # [MQTT-3.3.1-10] nothing clears what was kept, sealed nothing not
            return await connection.send(topic, content, qos=qos, retain=retain, properties=about)
        if self._keyring is None:
            raise KeysError("to encrypt, a client needs the private key whose public key is registered: `private_key`")
        while True:
            sealed, used_before = await self._keyring.seal(content or b"", topic)
            try:
                return await connection.send(topic, sealed, qos=qos, retain=retain, properties=about)
            except Refused:
                self._keyring.forget_sealing(topic)
                if not used_before:
                    raise
                # the key may have been revoked since: once more, with another one

    async def subscribe(
        self,
        *filters: str,
        qos: int = 1,
        where: str | None = None,
        require: str | None = None,
        options: SubscribeOptions | None = None,
        properties: Properties | None = None,
    ) -> list[str]:
        """Subscribes; a refusal of any filter is a refusal. The filters that are held until somebody allows them.

        `where`: a condition that messages have to meet. `require`: the floor that they must have.
        """
        connection = await self._current()
        about = self._about(PacketTypes.SUBSCRIBE, properties, require=require, where=where)
        wanted = options or SubscribeOptions(qos=qos)
        held = await connection.listen(filters, options=wanted, properties=about)
        self._subscribed |= dict.fromkeys(filters, (wanted, about))
        return held

    async def unsubscribe(self, filter: str) -> None:
        self._subscribed.pop(filter, None)
        connection = await self._current()
        await connection.leave(filter)

    async def register_key(self, url: str, token: str) -> None:
        """Registers the public key over HTTP for the user whose token it is. No connection is needed for that."""
        service = HttpService(url=url, token=token, context=self._context, timeout=self._options["timeout"])
        await service.request("PUT", "/me/key", {"public_key": self.public_key})

    # -- another address -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """While a backup is used, the default is looked for."""
        if self._open and self._failover.used != self._failover.places[0]:
            self._task = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        await self._failover.default_is_back()
        connection = self._connection
        if connection is not None:
            self._open = False  # nobody has to know
            self._again.clear()
            await connection.answered()
            await connection.close()
            self._stop_keys("another one is opened")
            await self._connect_again()

    async def _connect_again(self) -> None:
        try:
            connection = await self._failover.connect_somehow(self._opened)
            self._open = True
            for filter, (options, properties) in tuple(self._subscribed.items()):
                await connection.listen((filter,), options=options, properties=properties)
        except Unreachable:
            if self._task is asyncio.current_task():  # else another one does that already
                self._open = False
                self._task = asyncio.get_running_loop().create_task(self._connect_again())
        except TidegateError as refused:
            self._inbox.put_nowait(refused)
            self._again.set()
        else:
            self._again.set()
            self._task = None
            self._watch()

    async def _current(self) -> MqttConnection:
        """The connection, when there is one again."""
        await self._again.wait()
        return self._connected()

    def _new_connection(self, one: Place) -> MqttConnection:
        about = empty(PacketTypes.CONNECT)
        if self._session_expiry is not None:
            about.SessionExpiryInterval = self._session_expiry
        if self._require is not None:
            about.UserProperty = ("require", self._require)
        if self._holder is not None:
            about.AuthenticationMethod = METHOD
            about.AuthenticationData = self._holder.token.encode()
        elif self._token is not None and self._v5:
            about.UserProperty = (PROPERTY, self._token)
        self._decrypter = Decrypter(self._keyring, self._deliver, patience=self._patience)
        connection = MqttConnection(
            *one,
            take=self._take,
            ended=self._ended,
            holder=self._holder,
            properties=about if self._v5 and not about.isEmpty() else None,  # type: ignore[no-untyped-call]
            will=_proven_will(self._will, self._holder),
            **self._options,
        )
        if self._keyring is not None:
            if self._service is not None:
                ask: AskKey = HttpKeyRequester(self._service, self._token, self._holder).ask
            else:
                self._key_requester = MqttKeyRequester(connection)
                ask = self._key_requester.ask
            self._keyring.begin(ask, self._reader or f"client:{connection.identifier}")
        return connection

    def _take(self, raw: aiomqtt.Message) -> None:
        if self._key_requester is not None and str(raw.topic) == ANSWER:
            self._key_requester.take(bytes(raw.payload))
        elif self._decrypter is not None:
            self._decrypter.take(raw)

    def _deliver(self, message: Message) -> None:
        if not self._deduplicator.again(message):
            self._inbox.put_nowait(message)

    def _ended(self, why: TidegateError) -> None:
        if not self._open:
            return  # whoever connects is told
        if self._keyring is not None:
            self._keyring.end()
        if self._decrypter is not None:
            self._decrypter.give_up(KeysError(f"the connection ended before its key came: {why}"))
        if (self._connection is not None and self._connection.closing) or not self._failover.takes(why):
            self._inbox.put_nowait(why)
            return
        self._open = False
        self._again.clear()
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._connect_again())

    def _stop_keys(self, why: str) -> None:
        if self._keyring is not None:
            self._keyring.end()
        if self._decrypter is not None:
            self._decrypter.give_up(KeysError(f"the connection ended before its key came: {why}"))

    async def _next(self) -> Message:
        inbox = self._inbox
        if self._connection is None and inbox.empty():
            raise Unreachable(_OUTSIDE)
        item = await inbox.get()
        if isinstance(item, Message):
            return item
        inbox.put_nowait(item)  # whoever else waits has to know
        raise item

    def _connected(self) -> MqttConnection:
        if self._connection is None:
            raise Unreachable(_OUTSIDE)
        return self._connection

    def _about(self, kind: int, given: Properties | None, **instructions: str | None) -> Properties | None:
        user_properties = {name: text for name, text in instructions.items() if text is not None}
        if not user_properties and given is None:
            return None
        if not self._v5:
            raise ValueError("properties, `require`, `view` and `where` need MQTT 5")
        about = empty(kind) if given is None else copy.deepcopy(given)
        for name, text in user_properties.items():
            about.UserProperty = (name, text)
        return about


class _Messages(AsyncIterator[Message]):
    """What came over the connection that there is, and what was left of those before."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __anext__(self) -> Message:
        return await self._client._next()


def _proven_will(will: aiomqtt.Will | None, holder: CapabilityHolder | None) -> aiomqtt.Will | None:
    if will is None or holder is None:
        return will
    payload = will.payload.encode() if isinstance(will.payload, str) else bytes(will.payload or b"")  # type: ignore[arg-type]
    about = proven(
        holder,
        will.properties,
        PacketTypes.WILLMESSAGE,
        WRITE,
        will.topic,
        payload,
        qos=(will.qos,),
        retain=will.retain,
    )
    return aiomqtt.Will(will.topic, payload, will.qos, will.retain, about)


def _context(tls: bool | ssl.SSLContext, ca: str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        if ca is not None:
            raise ValueError("give a context that knows the authorities, or `ca`, and not both")
        return tls
    if not tls and ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (ssl.SSLError, OSError) as broken:
        raise Unreachable(f"{ca}: no authorities can be read from it: {broken}") from None


def _private_key(given: PrivateKey | str | os.PathLike[str]) -> PrivateKey:
    if isinstance(given, PrivateKey):
        return given
    if isinstance(given, str) and ("-private:" in given or "-----BEGIN " in given):
        return PrivateKey.parse(given)
    try:
        return PrivateKey.parse(_content(given).decode("ascii", "replace"))
    except KeysError as wrong:
        raise KeysError(f"{os.fspath(given)}: {wrong}") from None


def _proof_key(given: ProofKey | str | os.PathLike[str]) -> ProofKey:
    if isinstance(given, str) and "-----BEGIN " in given:
        return parse_proof_key(given.encode())
    if isinstance(given, str | os.PathLike):
        return parse_proof_key(_content(given))
    return given


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(1 << 16)
    except OSError as broken:
        raise KeysError(f"{os.fspath(path)}: {broken.strerror}") from None
