"""Consumers: users and applications who register, whose credentials are renewed, and who are removed.

An application is a user, so that it can log in, be named in policies and hold keys, and a document of its own. It has
users under it: they have its id in the attribute `application`, as the application itself has.

- What becomes of the documents is one change of the registry, made whole or not at all. A token is made only when that
  change is stored; if it cannot be made, the answer says so and the rest stands.
- Nobody under an application has a role or a group that the application does not have.
- An application that acts for itself gives its users nothing that it does not have, and calls them `ID.NAME`: a name
  that it chose freely could be one that the policies of others speak of.
- Passwords come hashed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegate.admin import control_commands as control
from tidegate.admin.administration import Administration
from tidegate.admin.documents import APPLICATION, PASSWORD, Draft, RegistryState, RequestedChange, content, get_document
from tidegate.admin.roles import Role
from tidegate.config import Source
from tidegate.config.directory import SELF_REGISTERED
from tidegate.errors import Problem
from tidegate.net.control_command import SignedCommand

USERS: Final = 900  # under one application; so many can still be removed together
LONGEST: Final = 200  # bytes of a name, so that what was changed together can be listed
PUBLIC_KEY: Final = "public_key"
USER: Final = "user"
SOURCE: Final = "source"
_LISTS: Final = ("roles", "groups")


class Consumers:
    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._renewing = asyncio.Lock()  # of two that renew at once, the last has both password and token

    async def register(self, command: control.RegisterConsumer) -> dict[str, Any]:
        name, body = command.name, command.body
        if len(name.encode()) > LONGEST:
            raise Problem(f"a name has at most {LONGEST} bytes here: choose a shorter one", problem="invalid")
        attributes = body.get("attributes", {})
        if not isinstance(attributes, dict) or any(not isinstance(body.get(key, []), list) for key in _LISTS):
            raise Problem("`attributes` is an object, and `roles` and `groups` are lists", problem="invalid")
        if APPLICATION in attributes:
            text = "the attribute `application` is set by registration: register under the application instead"
            raise Problem(text, problem="invalid")

        def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
            of = command.under
            if of is not None:
                _admit(command, of, _application(state, source, of), state)
                if command.itself:
                    self._administration.check_stranger(name)
            elif command.description is not None:
                of = name
            itself = {SELF_REGISTERED: True} if command.under is not None and command.itself else {}
            owned = {} if of is None else {"attributes": {**attributes, APPLICATION: of, **itself}}
            user = RequestedChange(kind=USER, id=name, body={**body, **owned})
            if command.description is None:
                return [user]
            return [user, RequestedChange(kind=APPLICATION, id=name, body={"description": command.description})]

        if command.itself:
            self._administration.tokens.check_room(Role.USER)
        if command.dry_run:
            return await self._administration.preview(draft, compared=command.compared)
        async with self._renewing:
            done = await self._changed(command, draft, name, "register")
            return {**done, **await self._token(name, command.by)}

    async def renew(self, command: control.RenewCredentials) -> dict[str, Any]:
        """Another password and another token; those made before do not count any more."""
        name = command.name
        setting = _setting(name, PASSWORD, command.password, of=command.of)

        def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
            if (SOURCE, name) in state.documents:
                text = f"{name[:200]} is a source, and would have no token to send data with: register it again instead"
                raise Problem(text, problem="conflict")
            return setting(state, source)

        if command.dry_run:
            return await self._administration.preview(draft, compared=command.compared)
        async with self._renewing:
            done = await self._changed(command, draft, name, "renew credentials")
            try:
                await self._administration.tokens.revoke_of([name], by=command.by)
            except Problem as problem:
                trouble = f"its tokens could not be revoked, and none was made: {problem}"
                return {**done, "token": None, "trouble": trouble}
            return {**done, **await self._token(name, command.by)}

    async def set_key(self, command: control.SetPublicKey) -> dict[str, Any]:
        draft = _setting(command.name, PUBLIC_KEY, command.public_key, of=command.of, expected=command.expected)
        return await self._changed(command, draft, command.name, "set key")

    async def remove_application(self, command: control.RemoveApplication) -> dict[str, Any]:
        """It and its users. What stands in the file stays."""
        id = command.id

        def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
            version = get_document(state, source, APPLICATION, id)["version"]
            names = [name for name in (id, *_users(state, id)) if (USER, name) in state.documents]
            if len(names) > USERS + 1:
                text = f"{id[:200]} has more than {USERS} users: remove some of them first"
                raise Problem(text, problem="conflict")
            application = RequestedChange(kind=APPLICATION, id=id, body=None, expected=command.expected or version)
            return [application, *(RequestedChange(kind=USER, id=name, body=None) for name in names)]

        about = [(APPLICATION, id)]
        return await self._administration.change(command, draft, action="remove application", about=about)

    async def remove_user(self, command: control.RemoveApplicationUser) -> dict[str, Any]:
        name, under = command.name, command.under

        def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
            if command.itself:
                _check_own(state, source, name, under)
            else:
                get_document(state, source, APPLICATION, under)
            if name not in _users(state, under):
                text = f"{under[:200]} has no user {name[:200]!r} that could be removed here; list its users"
                raise Problem(text, problem="unknown")
            return [RequestedChange(kind=USER, id=name, body=None, expected=command.expected)]

        return await self._changed(command, draft, name, "remove user")

    async def _token(self, name: str, by: str) -> dict[str, Any]:
        return await self._administration.tokens.make_registered(name, Role.USER, by, done="done")

    async def _changed(self, command: SignedCommand, draft: Draft, name: str, action: str) -> dict[str, Any]:
        return await self._administration.change(command, draft, action=action, about=[(USER, name)])


def _setting(name: str, key: str, value: str, *, of: str | None, expected: int | None = None) -> Draft:
    """A user with one thing set, and everything else as it is; `of` is the application that asks for one of its own."""

    def draft(state: RegistryState, source: Source) -> Sequence[RequestedChange]:
        if of is not None:
            _check_own(state, source, name, of)
        user = get_document(state, source, USER, name)
        version = user["version"] if expected is None else expected
        return [RequestedChange(kind=USER, id=name, body={**user["body"], key: value}, expected=version)]

    return draft


def _application(state: RegistryState, source: Source, id: str) -> Mapping[str, Any]:
    """The body of the user that is the application. Problem if there is no such application."""
    get_document(state, source, APPLICATION, id)
    body: Mapping[str, Any] = get_document(state, source, USER, id)["body"]
    return body


def _users(state: RegistryState, id: str) -> list[str]:
    return [
        name
        for (kind, name), each in state.documents.items()
        if kind == USER and name != id and content(each.body).get("attributes", {}).get(APPLICATION) == id
    ]


def _admit(command: control.RegisterConsumer, id: str, application: Mapping[str, Any], state: RegistryState) -> None:
    """Problem if the application `id` cannot have such a user."""
    body = command.body
    if more := _more(body, application):
        text = f"{id[:200]} has not {more} itself, so its users cannot have it: give it to the application first"
        raise Problem(text, problem="forbidden")
    if len(_users(state, id)) >= USERS:
        raise Problem(
            f"{id[:200]} has {USERS} users, which is the most: register another application", problem="conflict"
        )
    if not command.itself:
        return
    if not command.name.startswith(f"{id}.") or command.name == f"{id}.":
        raise Problem(
            f"an application calls its users `{id[:200]}.NAME`: choose such a name, or ask an administrator",
            problem="forbidden",
        )
    if name := _other(body, application):
        raise Problem(
            f"the application has not the attribute `{name[:200]}` with that value itself, so it cannot give it: "
            "ask an administrator",
            problem="forbidden",
        )


def _more(body: Mapping[str, Any], application: Mapping[str, Any]) -> str:
    """A role or group that somebody has and the application has not; empty: there is none."""
    for key in _LISTS:
        for name in body.get(key, ()):
            if name not in application.get(key, ()):
                return f"the {key.removesuffix('s')} `{str(name)[:200]}`"
    return ""


def _other(body: Mapping[str, Any], application: Mapping[str, Any]) -> str:
    """An attribute of somebody that the application has not, or not with that value; empty: there is none."""
    own = application.get("attributes", {})
    said = body.get("attributes", {}).items()
    more = (name for name, value in said if name not in own or own[name] != value)
    return next((name for name in more if name != SELF_REGISTERED), "")


def _check_own(state: RegistryState, source: Source, name: str, of: str) -> None:
    """Problem, and always the same one, unless it is a user of that application, and can no more than that."""
    try:
        application = _application(state, source, of)
        body = get_document(state, source, USER, name)["body"]
    except Problem as problem:
        if problem.problem != "unknown":
            raise
    else:
        under = name != of and body.get("attributes", {}).get(APPLICATION) == of
        if under and not _more(body, application) and not _other(body, application):
            return
    raise Problem(f"{name[:200]} is no user of yours: ask an administrator", problem="forbidden")
