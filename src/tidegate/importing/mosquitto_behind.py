"""The Mosquitto that stays behind a guard: on a port of this machine alone, with its files as they were.

It goes on verifying passwords and asking its own access rules, where all listeners have the same: then clients keep
their names there. Where names come from certificates, or each listener has its own users, the node proves names, and
nobody but the node connects to Mosquitto. Bridges and TLS move to the node.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.importing.mosquitto_access import Domain
from tidegate.importing.mosquitto_conf import Conf, Files
from tidegate.importing.mosquitto_passwords import pbkdf2

GUARD: Final = "tidegate-guard"
"""The user that is the guard itself, in Mosquitto."""
_ITERATIONS: Final = 101
_MOVED: Final = frozenset(("max_packet_size", "message_size_limit"))
"""The guard bounds packets; behind it they are longer by their envelope."""
_ACLS: Final = (
    *("publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern"),
    *("subscribeLiteral", "unsubscribeLiteral"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is chosen for it."""

    port: int
    folder: str
    """The whole path of the folder of its files."""
    stem: str
    """What the names of its files begin with."""
    password: str
    """Of the guard's own user; a random one."""
    salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What is written."""

    scope: Mapping[str, Any]
    """The guarded scope."""
    files: Mapping[str, str]
    """The files of Mosquitto: names and contents."""
    proves_names: bool
    """Whether Mosquitto proves who a client is."""


def files(conf: Conf, domains: list[Domain], source: Files, wanted: Wanted) -> Behind:
    """The guarded scope, and the files of the Mosquitto behind it."""
    alone = len(domains) == 1 and not domains[0].named
    written: dict[str, str] = {}

    def name(kind: str, content: str) -> str:
        file = f"{wanted.stem}.{kind}"
        written[file] = content
        return f"{wanted.folder}/{file}"

    lines = [f"listener {wanted.port} 127.0.0.1"]
    if alone:
        lines += _as_it_was(domains[0], source, wanted, name)
    else:
        lines += ["allow_anonymous false", f"password_file {name('passwd', _password_line(wanted))}"]
    lines += [option.text for option in conf.general.all if option.name not in _MOVED]
    heading = "# The Mosquitto behind the guard. Listeners, TLS and bridges are those of the node now."
    written = {f"{wanted.stem}.conf": "\n".join((heading, *lines)) + "\n", **written}
    scope = {
        "backend": f"mqtt://127.0.0.1:{wanted.port}",
        "authenticate": "backend" if alone else "here",
        "username": GUARD,
        "password": wanted.password,
        "unenveloped": "plain",
    }
    return Behind(scope=scope, files=written, proves_names=alone)


def _as_it_was(domain: Domain, source: Files, wanted: Wanted, name: Any) -> Iterator[str]:
    options = domain.options
    yield f"allow_anonymous {'true' if domain.anonymous else 'false'}"
    for option in options.all:
        match option.name:
            case "password_file":
                content = _ended(source.text(option.value)) + _password_line(wanted)
                yield f"password_file {name('passwd', content)}"
            case "acl_file":
                content = _ended(source.text(option.value)) + f"\nuser {GUARD}\ntopic readwrite #\n"
                yield f"acl_file {name('acl', content)}"
            case "allow_anonymous":
                pass
            case _ if option is domain.dynsec:
                content = _dynsec(source.text(option.value), source.absolute(option.value), wanted)
                yield f"{option.name} {name('dynsec.json', content)}"
            case _:
                yield option.text


def _password_line(wanted: Wanted) -> str:
    return f"{GUARD}:{_hash(wanted)}\n"


def _hash(wanted: Wanted) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", wanted.password.encode(), wanted.salt, _ITERATIONS)
    stored = pbkdf2(_ITERATIONS, b64encode(wanted.salt).decode(), b64encode(digest).decode())
    assert stored is not None
    return stored


def _dynsec(text: str, source: str, wanted: Wanted) -> str:
    """The file of the plugin with a client for the guard, which may do everything."""
    tree = json.loads(text)
    if any(not isinstance(tree.setdefault(key, []), list) for key in ("clients", "roles")):
        raise ConfigError("`clients` and `roles` are lists; mend it", file=source)
    acls = [{"acltype": kind, "topic": "#", "allow": True} for kind in _ACLS]
    _, _, iterations, salt, hashed = _hash(wanted).split("$")
    client = {"username": GUARD, "roles": [{"rolename": GUARD}], "password": hashed, "salt": salt}
    tree["roles"].append({"rolename": GUARD, "acls": acls})
    tree["clients"].append(client | {"iterations": int(iterations)})
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
