"""The control commands of administration: what the process that speaks HTTP asks of the node.

Here JSON becomes values, and nothing that is not what it should be goes any further. Who may ask for what is decided by
whoever asks: only the node's own user can open the control socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tidegate.admin.administration import AdministeredNode, Administration
from tidegate.admin.consumers import ConsumerRegistration, Consumers
from tidegate.admin.documents import PIPELINE, RequestedChange, unless_changed
from tidegate.admin.ingest import Ingest
from tidegate.admin.roles import Role
from tidegate.admin.sources import SourceRegistration, Sources
from tidegate.config import Config, Operation
from tidegate.errors import ConfigError, Problem
from tidegate.explain.document import document
from tidegate.explain.what_if import Question, WhatIf
from tidegate.net.control_socket import Command

CHANGES: Final = 1000  # documents that are changed together
PAGE: Final = 1000  # documents on a page
_NOWHERE: Final = "nothing can be administered here: set `http` with `node.data`, or `store`, in the file of the node"


class AdminCommands:
    """Answers the commands; without an administration only those that change nothing."""

    def __init__(
        self, host: AdministeredNode, administration: Administration | None, numbers: Command, ingest: Ingest
    ) -> None:
        self._host = host
        self._administration = administration
        self._consumers = None if administration is None else Consumers(administration)
        self._numbers = numbers
        self._ingest = ingest

    def commands(self) -> dict[str, Command]:
        return {
            "admin_list": self.list_all,
            "admin_get": self.get,
            "admin_apply": self.apply,
            "admin_history": self.history,
            "admin_revert": self.revert,
            "pipeline_draft": self.draft,
            "consumer_register": self.register,
            "consumer_renew": self.renew,
            "consumer_key": self.set_key,
            "application_remove": self.remove_application,
            "application_remove_user": self.remove_user,
            "token_make": self.make_token,
            "token_list": self.list_tokens,
            "token_revoke": self.revoke_token,
            "token_check": self.check_token,
            "source_register": self.register_source,
            "source_remove": self.remove_source,
            "source_open": self.open_sealed,
            "data_add": self.add_data,
            "data_put": self.put_data,
            "explain": self.explain,
            "metrics": self._numbers,
        }

    # -- documents -------------------------------------------------------------------------------------------------

    async def list_all(
        self, kind: str, after: str | None = None, limit: int | None = None, owner: str | None = None
    ) -> dict[str, Any]:
        """All of a kind; with a `limit` a page of them by id, and with an `owner` only what belongs to it."""
        if limit is None and after is None and owner is None:
            return {"documents": await self._administered.list_documents(_text(kind, "kind"))}
        found, following = await self._administered.page_documents(
            _text(kind, "kind"),
            after=None if after is None else _text(after, "after", empty=True),
            limit=PAGE if limit is None else min(_number(limit, "limit"), PAGE),
            owner=None if owner is None else _text(owner, "owner"),
        )
        return {"documents": found, "next": following}

    async def get(self, kind: str, id: str) -> dict[str, Any]:
        return await self._administered.get_document(_text(kind, "kind"), _text(id, "id"))

    async def history(self, kind: str, id: str) -> dict[str, Any]:
        return {"entries": await self._administered.history(_text(kind, "kind"), _text(id, "id"))}

    async def apply(
        self, changes: Any, by: str, why: str = "", dry_run: bool = False, fence: int | None = None
    ) -> dict[str, Any]:
        """With a `fence`, as `draft` tells it: a conflict if anything has changed since."""
        requested = _requested_changes(changes)
        if dry_run is True:
            return await self._administered.preview(requested)
        by, why = _text(by, "by"), _text(why, "why", empty=True)
        draft = requested if fence is None else unless_changed(requested, _fence(fence))
        return await self._administered.apply(draft, by=by, why=why, about=[each.key for each in requested])

    async def revert(
        self, sequence: int, by: str, why: str = "", dry_run: bool = False, fence: int | None = None
    ) -> dict[str, Any]:
        return await self._administered.revert(
            _number(sequence, "sequence"),
            **_signed(by, why),
            dry_run=dry_run is True,
            fence=None if fence is None else _fence(fence),
        )

    async def draft(self, changes: Any = None, sequence: int | None = None) -> dict[str, Any]:
        """The rules of the pipeline, which the node cannot check: as they are, and as changes would make them."""
        requested = _requested_changes(changes) if sequence is None else _number(sequence, "sequence")
        return await self._administered.draft(PIPELINE, requested)

    # -- consumers -------------------------------------------------------------------------------------------------

    async def register(
        self,
        name: str,
        body: Any,
        by: str,
        why: str = "",
        description: str | None = None,
        under: str | None = None,
        itself: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        if not isinstance(body, dict) or not isinstance(body.get("attributes", {}), dict):
            raise _invalid("`body` is an object, and so are its `attributes`")
        if any(not isinstance(body.get(key, []), list) for key in ("roles", "groups")):
            raise _invalid("`roles` and `groups` are lists")
        registration = ConsumerRegistration(
            name=_text(name, "name"),
            body=body,
            description=None if description is None else _text(description, "description", empty=True),
            under=None if under is None else _text(under, "under"),
            itself=itself is True,
        )
        return await self._registrations.register(registration, **_signed(by, why), dry_run=dry_run is True)

    async def renew(
        self, name: str, password: str, by: str, why: str = "", of: str | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        return await self._registrations.renew(
            _text(name, "name"),
            _text(password, "password"),
            of=None if of is None else _text(of, "of"),
            **_signed(by, why),
            dry_run=dry_run is True,
        )

    async def set_key(
        self,
        name: str,
        public_key: str,
        by: str,
        why: str = "",
        of: str | None = None,
        expected: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        return await self._registrations.set_key(
            _text(name, "name"),
            _text(public_key, "public_key"),
            of=None if of is None else _text(of, "of"),
            expected=None if expected is None else _number(expected, "expected"),
            **_signed(by, why),
            dry_run=dry_run is True,
        )

    async def remove_application(
        self, id: str, by: str, why: str = "", expected: int | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        return await self._registrations.remove_application(
            _text(id, "id"),
            expected=None if expected is None else _number(expected, "expected"),
            **_signed(by, why),
            dry_run=dry_run is True,
        )

    async def remove_user(
        self,
        name: str,
        under: str,
        by: str,
        why: str = "",
        itself: bool = False,
        expected: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        return await self._registrations.remove_user(
            _text(name, "name"),
            under=_text(under, "under"),
            itself=itself is True,
            expected=None if expected is None else _number(expected, "expected"),
            **_signed(by, why),
            dry_run=dry_run is True,
        )

    # -- tokens ----------------------------------------------------------------------------------------------------

    async def make_token(
        self,
        role: str,
        by: str,
        user: str | None = None,
        name: str | None = None,
        seconds: float | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        requested: dict[str, Any] = {
            "role": _text(role, "role"),
            "user": None if user is None else _text(user, "user"),
            "name": "" if name is None else _text(name, "name", empty=True),
            "seconds": None if seconds is None else _seconds(seconds),
        }
        signed: dict[str, Any] = {**_signed(by, why)}
        if dry_run is True:
            return self._administered.tokens.preview(**requested)
        return await self._administered.tokens.make(**requested, **signed)

    def list_tokens(self) -> dict[str, Any]:
        return {"tokens": self._administered.tokens.list()}

    async def revoke_token(self, id: str, by: str, why: str = "", dry_run: bool = False) -> dict[str, Any]:
        return await self._administered.tokens.revoke(_text(id, "id"), **_signed(by, why), dry_run=dry_run is True)

    def check_token(self, token: str) -> dict[str, Any]:
        return self._administered.tokens.check(_text(token, "token"))

    # -- sources ---------------------------------------------------------------------------------------------------

    async def register_source(
        self,
        id: str,
        type: str,
        mode: str,
        password: str,
        by: str,
        scheme: str | None = None,
        role: str | None = None,
        user: str | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """`role` and `user` are those of whoever asks; without a role they have no token."""
        if role is not None and role not in tuple(Role):
            raise _invalid(f"`role` is one of {', '.join(Role)}")
        registration = SourceRegistration(
            id=_text(id, "NodeId"),
            type=_text(type, "NodeType"),
            mode=_text(mode, "CommunicationMode"),
            scheme=None if scheme is None else _text(scheme, "EncryptionScheme"),
            password=_text(password, "password"),
            role=None if role is None else Role(role),
            user=None if user is None else _text(user, "user"),
        )
        signed = _signed(by, why)
        if dry_run is True:
            return await self._sources.preview(registration)
        return await self._sources.register(registration, **signed)

    async def remove_source(self, id: str, by: str, why: str = "", dry_run: bool = False) -> dict[str, Any]:
        return await self._sources.remove(_text(id, "id"), **_signed(by, why), dry_run=dry_run is True)

    async def open_sealed(self, user: str, sealed: str) -> dict[str, Any]:
        return await self._ingest.open(_text(user, "user"), _text(sealed, "sealed"))

    def add_data(self, upload: str, part: str) -> dict[str, Any]:
        return self._ingest.add(_text(upload, "upload"), _text(part, "part"))

    async def put_data(
        self,
        user: str | None,
        address: str,
        level: str,
        part: str,
        upload: str | None = None,
        key: str | None = None,
        counter: int | None = None,
    ) -> dict[str, Any]:
        if (key is None) != (counter is None) or (counter is not None and not 0 <= counter < 2**63):
            raise _invalid("`key` and `counter` belong together, and a counter is a whole number")
        return await self._ingest.put(
            None if user is None else _text(user, "user"),
            _text(address, "address", empty=True),
            _text(level, "level"),
            _text(part, "part"),
            None if upload is None else _text(upload, "upload"),
            key,
            counter,
        )

    @property
    def _sources(self) -> Sources:
        if self._ingest.sources is None:
            raise Problem(_NOWHERE, problem="unavailable")
        return self._ingest.sources

    # -- explanations ----------------------------------------------------------------------------------------------

    async def explain(
        self,
        subject: str,
        action: str,
        topic: str,
        publisher: str | None = None,
        payload: str = "",
        qos: int = 0,
        retain: bool = False,
        properties: Any = (),
        terms: Any = (),
        at: float | None = None,
        overrides: Any = None,
    ) -> dict[str, Any]:
        """Why somebody may or may not do something, by the rules in force."""
        if action not in tuple(Operation):
            raise _invalid(f"`action` is one of {', '.join(Operation)}")
        if qos not in (0, 1, 2) or not isinstance(retain, bool):
            raise _invalid("`qos` is 0, 1 or 2, and `retain` true or false")
        if overrides is not None and not isinstance(overrides, Mapping):
            raise _invalid("`overrides` is an object of attributes, such as `s.level`")
        question = Question(
            subject=_text(subject, "subject"),
            action=Operation(action),
            topic=_text(topic, "topic"),
            publisher=None if publisher is None else _text(publisher, "publisher"),
            payload=_text(payload, "payload", empty=True).encode(),
            qos=qos,
            retain=retain,
            properties=_pairs(properties, "properties"),
            terms=_pairs(terms, "terms"),
            at=None if at is None else _seconds(at),
            overrides=overrides or {},
        )
        try:
            return await self._host.run_query(partial(_explained, self._host.config, question))
        except ConfigError as error:
            raise _invalid(str(error)) from None

    @property
    def _administered(self) -> Administration:
        if self._administration is None:
            raise Problem(_NOWHERE, problem="unavailable")
        return self._administration

    @property
    def _registrations(self) -> Consumers:
        if self._consumers is None:
            raise Problem(_NOWHERE, problem="unavailable")
        return self._consumers


def _signed(by: Any, why: Any) -> dict[str, str]:
    return {"by": _text(by, "by"), "why": _text(why, "why", empty=True)}


def _explained(config: Config, question: Question) -> dict[str, Any]:
    return document(WhatIf(config).explain(question), question, config)


def _requested_changes(said: Any) -> list[RequestedChange]:
    if not isinstance(said, list) or not 0 < len(said) <= CHANGES:
        raise _invalid(f"`changes` is a list of 1 to {CHANGES} changes")
    return [_requested_change(each) for each in said]


def _requested_change(said: Any) -> RequestedChange:
    match said:
        case {"kind": str() as kind, "id": str() as id, **rest} if rest.keys() <= {"body", "expected"}:
            body, expected = rest.get("body"), rest.get("expected")
        case _:
            raise _invalid("a change has `kind`, `id`, `body` (null deletes it) and `expected` (a version, or null)")
    if body is not None and not isinstance(body, dict):
        raise _invalid(f"the `body` of {kind}/{id} is an object, or null to delete it")
    return RequestedChange(
        kind=kind, id=id, body=body, expected=None if expected is None else _number(expected, "expected")
    )


def _invalid(text: str) -> Problem:
    return Problem(text, problem="invalid")


def _text(said: Any, name: str, *, empty: bool = False) -> str:
    if not isinstance(said, str) or not (said or empty):
        raise _invalid(f"`{name}` is a text")
    return said


def _number(said: Any, name: str) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not 0 < said < 2**63:
        raise _invalid(f"`{name}` is the number of a change")
    return said


def _fence(said: Any) -> int:
    """0 is the fence of somebody who saw nothing."""
    return 0 if said == 0 else _number(said, "fence")


def _seconds(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < 1e12:
        raise _invalid("a time is a number of seconds")
    return float(said)


def _pairs(said: Any, name: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for each in said if isinstance(said, list | tuple) else [None]:
        match each:
            case [str() as key, str() as value]:
                found.append((key, value))
            case _:
                raise _invalid(f"`{name}` is a list of pairs of texts")
    return tuple(found)
