"""Which broker to connect to, as whom, and how: the options that `pub` and `sub` share.

Spelled as in mosquitto_pub and mosquitto_sub where they mean the same; `-h` is the host, as there, and help
is `--help` everywhere. A command that is decorated with `connects` has all of them and receives a `Target`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from tidegate.cli import terminal

_PORTS: Final = {(False, False): 1883, (True, False): 8883, (False, True): 8083, (True, True): 8084}
_CONNECTION: Final = "Connection"
_TLS: Final = "TLS"
_SESSION: Final = "Session"
_WILL: Final = "Will"
_KEYS: Final = "Protected topics"
_LONGEST: Final = 0xFFFFFFFF


class Protocol(StrEnum):
    """The version of MQTT to speak."""

    V5 = "5"
    V311 = "311"


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker publishes if the connection breaks."""

    topic: str
    payload: str = ""
    qos: int = 0
    retain: bool = False
    delay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker and everything that CONNECT says to it."""

    host: str = "127.0.0.1"
    port: int | None = None
    user: str | None = None
    password: str | None = None
    identifier: str | None = None
    protocol: Protocol = Protocol.V5
    ws: str | None = None
    timeout: float = 10.0
    keepalive: int = 60
    tls: bool = False
    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    clean: bool = True
    session_expiry: int | None = None
    will: Will | None = None
    capability: Path | None = None
    proof_key: Path | None = None
    private_key: Path | None = None
    reader: str | None = None
    keys_url: str | None = None
    token: str | None = None

    @property
    def v5(self) -> bool:
        """Whether it speaks MQTT 5."""
        return self.protocol is Protocol.V5

    @property
    def encrypted(self) -> bool:
        """Whether any option asks for TLS."""
        return self.tls or self.insecure or self.cafile is not None or self.cert is not None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port or _PORTS[self.encrypted, self.ws is not None]

    def mistake(self) -> str:
        """What is wrong with the combination of options, or nothing."""
        if not self.v5:
            if self.session_expiry is not None:
                return "--session-expiry needs MQTT 5; with --protocol 311 use --no-clean"
            if self.will is not None and self.will.delay is not None:
                return "--will-delay needs MQTT 5"
            if self.proof_key is not None:
                return "--proof-key needs MQTT 5"
            if self.capability is not None and self.password is not None:
                return "with --protocol 311 a capability is sent in place of the password: leave that out"
            # [MQTT-3.1.2-22] of MQTT 3.1.1; MQTT 5 lifted it
            if self.password is not None and self.user is None:
                return "with --protocol 311 a password needs a user name: add --user"
        if self.proof_key is not None and self.capability is None:
            return "--proof-key needs --capability"
        if self.private_key is None and (self.reader is not None or self.keys_url is not None):
            return "--reader and --keys-url are for protected topics: add --private-key"
        if self.keys_url is not None:
            if not self.token:
                return "--keys-url needs --token: that of a user"
            if urlsplit(self.keys_url).scheme not in ("http", "https") or not urlsplit(self.keys_url).hostname:
                return f"--keys-url {self.keys_url} is no place for HTTP: write https://host:port"
        if not self.clean and not self.identifier:
            return "--no-clean needs a client identifier: add --id"
        if self.key is not None and self.cert is None:
            return "--key needs --cert"
        return ""


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `_target` and passes it the `Target` they make as its first argument."""
    shared = inspect.signature(_target, eval_str=True).parameters
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    assert first.name == "target"

    @functools.wraps(command)
    def with_target(**options: Any) -> None:
        target = _target(**{name: options.pop(name) for name in shared})
        if mistake := target.mistake():
            terminal.usage(mistake)
        command(target, **options)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]
    with_target.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_target.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_target


def _target(
    host: Annotated[
        str, typer.Option("-h", "--host", help="Broker to connect to.", rich_help_panel=_CONNECTION)
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--port",
            help="Port. Default: 1883; with TLS 8883; WebSocket 8083; both 8084.",
            rich_help_panel=_CONNECTION,
            min=1,
            max=65535,
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("-u", "--user", help="User name.", rich_help_panel=_CONNECTION)] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "-P",
            "--password",
            help="Password. Options can be seen by others on this machine, the variable cannot.",
            rich_help_panel=_CONNECTION,
            envvar="TIDEGATE_PASSWORD",
        ),
    ] = None,
    identifier: Annotated[
        str | None,
        typer.Option("-i", "--id", help="Client identifier. Default: a random one.", rich_help_panel=_CONNECTION),
    ] = None,
    protocol: Annotated[
        Protocol, typer.Option("--protocol", help="Version of MQTT.", rich_help_panel=_CONNECTION)
    ] = Protocol.V5,
    ws: Annotated[
        str | None,
        typer.Option(
            "--ws",
            help="Connect over WebSocket, with this path.",
            rich_help_panel=_CONNECTION,
            metavar="PATH",
        ),
    ] = None,
    answer_timeout: Annotated[
        float,
        typer.Option(
            "--answer-timeout",
            help="Seconds to wait for each answer of the broker.",
            rich_help_panel=_CONNECTION,
            min=0.1,
        ),
    ] = 10.0,
    keepalive: Annotated[
        int,
        typer.Option(
            "-k",
            "--keepalive",
            help="Keep-alive in seconds.",
            rich_help_panel=_CONNECTION,
            min=1,
            max=65535,
        ),
    ] = 60,
    capability: Annotated[
        Path | None,
        typer.Option(
            "--capability",
            help="File with a capability to show.",
            rich_help_panel=_CONNECTION,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    proof_key: Annotated[
        Path | None,
        typer.Option(
            "--proof-key",
            help="Private key (PEM) that confirms it: proves the connection and each message (MQTT 5).",
            rich_help_panel=_CONNECTION,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    private_key: Annotated[
        Path | None,
        typer.Option(
            "--private-key",
            help="File with the private key whose public key is registered: opens protected topics.",
            rich_help_panel=_KEYS,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            "--reader",
            help="For whom it is registered. Default: user:USER.",
            rich_help_panel=_KEYS,
            metavar="user:NAME|client:ID",
        ),
    ] = None,
    keys_url: Annotated[
        str | None,
        typer.Option(
            "--keys-url",
            help="Ask for keys over HTTP, there. Default: over MQTT.",
            rich_help_panel=_KEYS,
            metavar="URL",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="Token for --keys-url. Options can be seen by others on this machine, the variable cannot.",
            rich_help_panel=_KEYS,
            envvar="TIDEGATE_TOKEN",
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Use TLS, trusting the system's authorities.", rich_help_panel=_TLS),
    ] = False,
    cafile: Annotated[
        Path | None,
        typer.Option(
            "--cafile",
            help="Use TLS, trusting the authorities in this file (PEM).",
            rich_help_panel=_TLS,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            help="Client certificate (PEM).",
            rich_help_panel=_TLS,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="Private key of the certificate (PEM).",
            rich_help_panel=_TLS,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Use TLS without verifying the broker's certificate.", rich_help_panel=_TLS),
    ] = False,
    clean: Annotated[
        bool,
        typer.Option("--clean/--no-clean", help="Begin a new session, or resume one.", rich_help_panel=_SESSION),
    ] = True,
    session_expiry: Annotated[
        int | None,
        typer.Option(
            "--session-expiry",
            help="Seconds the broker keeps the session after this ends (MQTT 5).",
            rich_help_panel=_SESSION,
            metavar="SECONDS",
            min=0,
            max=_LONGEST,
        ),
    ] = None,
    will_topic: Annotated[
        str | None,
        typer.Option("--will-topic", help="Topic of the message if the connection breaks.", rich_help_panel=_WILL),
    ] = None,
    will_message: Annotated[
        str, typer.Option("--will-message", help="Payload of that message.", rich_help_panel=_WILL)
    ] = "",
    will_qos: Annotated[
        int, typer.Option("--will-qos", help="QoS of that message.", rich_help_panel=_WILL, min=0, max=2)
    ] = 0,
    will_retain: Annotated[
        bool, typer.Option("--will-retain", help="Retain that message.", rich_help_panel=_WILL)
    ] = False,
    will_delay: Annotated[
        int | None,
        typer.Option(
            "--will-delay",
            help="Seconds to wait before it is published (MQTT 5).",
            rich_help_panel=_WILL,
            metavar="SECONDS",
            min=0,
            max=_LONGEST,
        ),
    ] = None,
) -> Target:
    will = None
    if will_topic is not None:
        will = Will(topic=will_topic, payload=will_message, qos=will_qos, retain=will_retain, delay=will_delay)
    elif will_message or will_retain or will_qos or will_delay is not None:
        terminal.usage("a will needs --will-topic")
    return Target(
        host=host,
        port=port,
        user=user,
        password=password,
        identifier=identifier,
        protocol=protocol,
        ws=ws,
        timeout=answer_timeout,
        keepalive=keepalive,
        tls=tls,
        cafile=cafile,
        cert=cert,
        key=key,
        insecure=insecure,
        clean=clean,
        session_expiry=session_expiry,
        will=will,
        capability=capability,
        proof_key=proof_key,
        private_key=private_key,
        reader=reader,
        keys_url=keys_url,
        token=token,
    )


Qos = Annotated[int, typer.Option("-q", "--qos", help="Quality of service.", min=0, max=2)]
UserProperties = Annotated[
    list[str] | None,
    typer.Option("-D", "--property", help="User property (MQTT 5). Repeatable.", metavar="NAME=VALUE"),
]
Require = Annotated[
    str | None,
    typer.Option(
        "--require",
        help="Security level to demand of every connection on the way; `none` relaxes (user property `require`).",
        metavar="LEVEL",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
