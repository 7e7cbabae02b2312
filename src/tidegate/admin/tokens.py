"""Bearer tokens: who comes over HTTP, and in which role.

A token is `tg_`, its id, and 256 random bits. Only the SHA-256 of it is stored: that of a random text cannot be turned
back. All are kept in memory, so that a check asks no database; changes by other nodes are read again when the registry
tells of them. One that was revoked is remembered, and listed, until it would have expired.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from tidegate.admin.control_commands import MakeToken
from tidegate.admin.roles import Role
from tidegate.errors import Problem, StoreError
from tidegate.store.registry import Applied, Conflict, Registry, Secret

ROOM: Final = "tokens"
_TOKEN: Final = re.compile(r"tg_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    id: str
    role: Role
    user: str | None  # whom it acts for. A token of the role `user` always does
    name: str  # what it is for
    made_at: float
    made_by: str
    expires: float
    identity: str | None = None  # the id of that user; None: a user that the directory does not have
    revoked_at: float | None = None
    revoked_by: str | None = None
    digest: bytes = field(repr=False)
    version: int

    def shown(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("digest", "version")}
        return {**told, "role": self.role.value}


class Tokens:
    """Those of a registry. `check`, `all` and `admitted` only look; the others block."""

    def __init__(self, registry: Registry, *, valid: float, most: int) -> None:
        self.valid = valid
        self.most = most
        self._secrets = registry.secrets
        self._known: Mapping[str, Token] = {}
        self._changing = threading.Lock()  # or what was read before a change would be taken for what is there after it

    def load(self, now: float) -> None:
        with self._changing:
            self._known = {each.key: _token(each) for each in self._secrets.all(ROOM, at=now)}

    def all(self, now: float) -> list[Token]:
        """Those that have not expired, the oldest first."""
        return sorted((each for each in self._known.values() if each.expires > now), key=lambda each: each.made_at)

    def check(self, text: str, now: float) -> Token | None:
        found = _TOKEN.fullmatch(text)
        token = self._known.get(found[1]) if found else None
        if token is None or not hmac.compare_digest(token.digest, _digest(text)):
            return None
        return token if token.revoked_at is None and now < token.expires else None

    def counting(self, id: str, now: float) -> Token | None:
        """One by its id, if it counts."""
        token = self._known.get(id)
        return token if token is not None and token.revoked_at is None and now < token.expires else None

    def make(self, command: MakeToken, *, now: float, identity: str | None = None) -> tuple[Token, str]:
        """A new one, and its text, which nobody can tell again."""
        seconds = self.admitted(command, now)
        id = secrets.token_hex(8)
        text = f"tg_{id}_{urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b'=').decode()}"
        token = Token(
            id=id,
            role=Role(command.role),
            user=command.user,
            identity=identity,
            name=command.name,
            made_at=now,
            made_by=command.by,
            expires=now + seconds,
            digest=_digest(text),
            version=0,
        )
        return self._put(token, None, now), text

    def check_room(self, role: str, now: float) -> None:
        """Problem if there are as many tokens of that role as there may be.

        Each role has its own room: whoever can register does not use up what administrators need. Tokens that were
        revoked are remembered as well; twice the room, so that whoever renews its token always gets one.
        """
        same = [each for each in self._known.values() if each.role == role and each.expires > now]
        counting = sum(each.revoked_at is None for each in same)
        if counting >= self.most or len(same) >= 2 * self.most:
            text = f"there are {self.most} tokens already of the role `{role}`"
            raise Problem(f"{text}: wait until some expire, or raise `tokens.most`", problem="full")

    def admitted(self, command: MakeToken, now: float) -> float:
        """For how many seconds such a token would be valid; Problem if it cannot be made."""
        if command.role not in tuple(Role):
            raise _invalid(f"there is no role {command.role[:40]!r}; there is {', '.join(Role)}")
        if command.role == Role.USER and not command.user:
            raise _invalid("a token of the role `user` needs somebody to act for: say who with `user`")
        if len(command.name) > _NAME:
            raise _invalid(f"a name has at most {_NAME} characters: choose a shorter one")
        seconds = self.valid if command.seconds is None else command.seconds
        if not 0 < seconds <= self.valid:
            days = f"{self.valid / 86400:.3g} days"
            raise _invalid(f"a token is valid for at most {days} here: ask for less, or raise `tokens.valid`")
        self.check_room(command.role, now)
        return seconds

    def find(self, id: str, now: float) -> Token:
        """What is known of one, by whomever it was changed last."""
        self.load(now)
        token = self._known.get(id)
        if token is None:
            raise Problem(f"there is no token {id[:40]!r}; list them", problem="unknown")
        return token

    def revoke(self, id: str, *, by: str, now: float) -> Token:
        """It does not count any more: here at once, on other nodes within a second."""
        token = self.find(id, now)
        if token.revoked_at is not None:
            return token
        return self._put(replace(token, revoked_at=now, revoked_by=by), token.version, now)

    def bind(self, identities: Mapping[str, str], *, now: float) -> list[Token]:
        """Those that were made before there were identities belong to these users, by their names, from now on."""
        self.load(now)
        found = [each for each in self._known.values() if each.identity is None and each.user in identities]
        return [self._put(replace(each, identity=identities[each.user or ""]), each.version, now) for each in found]

    def revoke_of(self, identities: Collection[str], *, by: str, now: float) -> list[Token]:
        """Those of these users, by their ids, do not count any more; the ones that were revoked. What was revoked
        before is forgotten: who renews its credentials for ever does not fill the store."""
        self.load(now)
        found = [each for each in self._known.values() if each.identity in identities]
        for each in found:
            if each.revoked_at is not None:
                self._forget(each, now)
        counting = [each for each in found if each.revoked_at is None]
        return [self._put(replace(each, revoked_at=now, revoked_by=by), each.version, now) for each in counting]

    def _put(self, token: Token, expected: int | None, now: float) -> Token:
        with self._changing:
            record = orjson.dumps({**token.shown(), "digest": token.digest.hex()})
            answer = self._secrets.put(ROOM, token.id, record, expected=expected, at=now, expires=token.expires)
            if isinstance(answer, Applied):
                kept = replace(token, version=answer.sequence)
                self._known = {**self._known, kept.id: kept}
                return kept
        match answer:
            case Conflict():
                raise Problem(f"the token {token.id} was changed by somebody else; try again", problem="conflict")
            case _:
                raise _invalid(answer.what)

    def _forget(self, token: Token, now: float) -> None:
        with self._changing:
            if isinstance(self._secrets.put(ROOM, token.id, None, expected=token.version, at=now), Applied):
                self._known = {id: each for id, each in self._known.items() if id != token.id}


def _invalid(text: str) -> Problem:
    return Problem(text, problem="invalid")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _token(kept: Secret) -> Token:
    try:
        said = orjson.loads(kept.value)
        digest = bytes.fromhex(said.pop("digest"))
        return Token(**{**said, "role": Role(said["role"]), "digest": digest, "version": kept.version})
    except (ValueError, TypeError, LookupError) as error:
        raise StoreError(f"the token {kept.key} cannot be read. Remedy: restore the registry from a backup.") from error
