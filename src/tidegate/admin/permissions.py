"""Who may have the node do what: the one check of every command that the HTTP process sends.

The HTTP process has no rights of its own. With each command it shows the credential of whoever asks, and here the node
decides by it: which role may send the command, for whom, and in whose name it counts. What the process says of these
itself is overwritten. So somebody who has captured it can do what those can whose credentials pass through it, and no
more. `api.access` has the same roles by route, so that a refusal comes early and with the right status.

A command that is not in the table cannot be sent at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from tidegate.admin import control_commands as control
from tidegate.admin.live import commands as live
from tidegate.admin.me import commands as me
from tidegate.admin.monitor_traces import TryMonitor
from tidegate.admin.replays import BeginReplay, CancelReplay, ShowReplay
from tidegate.admin.roles import Role
from tidegate.errors import Problem
from tidegate.explain.question import Question, Questions
from tidegate.keyservice import control_commands as keys
from tidegate.net.control_command import ControlCommand

Arguments = dict[str, Any]
OPERATED: Final = ("monitor", "view", "link")
"""Kinds of documents that operators may narrow (`config.narrowing`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody whose credential counts."""

    role: Role
    by: str
    """As it stands in the history."""
    user: str | None = None
    """Whom they act for."""
    identity: str | None = None
    """The id of that user."""
    signed_in: float | None = None
    """When they have shown a password, with which they are still signed in."""


Rule = Callable[[Caller, Arguments], Arguments]
"""The arguments that a command really has, of this caller; a Problem if they may not send it so."""


class PermittingNode(Protocol):
    """What is needed of a node."""

    def caller(self, credential: str) -> Caller:
        """Whose it is; a Problem if it does not count."""

    @property
    def level(self) -> str | None:
        """Of connections to the HTTP interface; None: it is not known."""

    @property
    def open_metrics(self) -> bool:
        """Whether metrics are served without a token."""


def _as_sent(_: Caller, arguments: Arguments) -> Arguments:
    return arguments


def _signed(caller: Caller, arguments: Arguments) -> Arguments:
    """In the name of the caller. Who acts for themselves is not told what a change does to others."""
    told = arguments.get("compared", True) and caller.role not in (Role.USER, Role.SOURCE)
    return {**arguments, "by": caller.by, "compared": told}


def _named(caller: Caller, arguments: Arguments) -> Arguments:
    return {**arguments, "by": caller.by}


def _own_documents(caller: Caller, arguments: Arguments) -> Arguments:
    """A person lists their preferences, an application its users."""
    if arguments.get("kind") not in ("preference", "user"):
        raise forbidden(caller)
    return {**arguments, "owner": _user(caller), "identity": caller.identity or ""}


def _own_document(caller: Caller, arguments: Arguments) -> Arguments:
    kind, user = arguments.get("kind"), _user(caller)
    if kind == "application" and arguments.get("id") == user:
        return {**arguments, "owner": None, "identity": None}
    if kind != "preference":
        raise forbidden(caller)
    return {**arguments, "owner": user, "identity": caller.identity or ""}


def _own_preferences(caller: Caller, arguments: Arguments) -> Arguments:
    changes = arguments.get("changes")
    if not isinstance(changes, list) or any(
        not isinstance(each, dict) or each.get("kind") != "preference" for each in changes
    ):
        raise forbidden(caller)
    owned = {"owner": _user(caller), "identity": caller.identity or "", "narrow": False, "fence": None}
    return {**_signed(caller, arguments), **owned}


def _all_documents(_: Caller, arguments: Arguments) -> Arguments:
    return arguments


def _changed_documents(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "owner": None, "identity": None, "narrow": False}


def _narrowed(caller: Caller, arguments: Arguments) -> Arguments:
    changes = arguments.get("changes")
    if not isinstance(changes, list) or any(
        not isinstance(each, dict) or each.get("kind") not in OPERATED for each in changes
    ):
        raise forbidden(caller)
    return {**_changed_documents(caller, arguments), "narrow": True}


def _reverted(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "kinds": None, "narrow": False}


def _narrowed_back(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "kinds": list(OPERATED), "narrow": True}


def _of_application(caller: Caller, arguments: Arguments) -> Arguments:
    """An application registers and removes its own users."""
    if arguments.get("under") != _user(caller):
        raise forbidden(caller)
    own = {"itself": True} if "description" not in arguments else {"itself": True, "description": None}
    return {**_signed(caller, arguments), **own}


def _of_themselves(caller: Caller, arguments: Arguments) -> Arguments:
    """A user for themselves; an application for one of its users, which the node looks up."""
    user = _user(caller)
    if arguments.get("name") == user and arguments.get("of") is None:
        return _signed(caller, arguments)
    return {**_signed(caller, arguments), "of": user}


def _administering(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "of": None}


def _registering(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "itself": False}


def _as_source(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_signed(caller, arguments), "role": caller.role, "user": caller.user}


def _for_themselves(caller: Caller, arguments: Arguments) -> Arguments:
    return {**arguments, "user": _user(caller)}


def _about_themselves(caller: Caller, arguments: Arguments) -> Arguments:
    return {**arguments, "user": _user(caller), "identity": caller.identity or ""}


def _erasing(caller: Caller, arguments: Arguments) -> Arguments:
    return {**_about_themselves(caller, arguments), "signed_in": caller.signed_in}


def _user(caller: Caller) -> str:
    if caller.user is None:
        raise Problem("this token is for no user; have one made for a user", problem="forbidden")
    return caller.user


def _may(roles: str, rule: Rule) -> dict[Role, Rule]:
    return {Role(role): rule for role in roles.split()}


_LOOKING: Final = "admin operator auditor"
_RUNNING: Final = "admin operator"
_Named = type[ControlCommand] | str

_TABLE: Final[tuple[tuple[_Named, dict[Role, Rule]], ...]] = (
    ("metrics", _may(_LOOKING, _as_sent)),
    ("history", _may(_LOOKING, _as_sent)),
    ("flows", _may(_LOOKING, _as_sent)),
    ("certificate_list", _may(_LOOKING, _as_sent)),
    ("monitor_list", _may(_LOOKING, _as_sent)),
    ("monitor_state", _may(_LOOKING, _as_sent)),
    ("monitor_drawing", _may(_LOOKING, _as_sent)),
    (TryMonitor, _may(_LOOKING, _as_sent)),
    ("flow_drawing", _may(_LOOKING, _as_sent)),
    ("audit", _may(_LOOKING, _as_sent)),
    ("audit_written", _may(_LOOKING, _as_sent)),
    ("link_list", _may(_LOOKING, _as_sent)),
    (Question, _may(_LOOKING, _as_sent)),
    (Questions, _may(_LOOKING, _as_sent)),
    (live.ListClients, _may(_LOOKING, _as_sent)),
    (live.ListSessions, _may(_LOOKING, _as_sent)),
    (live.ListSubscriptions, _may(_LOOKING, _as_sent)),
    (live.ListTopics, _may(_LOOKING, _as_sent)),
    (live.ShowClient, _may(_LOOKING, _as_sent)),
    (live.ShowTopic, _may(_LOOKING, _as_sent)),
    (live.ReadTopic, _may(_LOOKING, _about_themselves)),
    (live.DisconnectClient, _may(_RUNNING, _signed)),
    (live.DropSession, _may(_RUNNING, _signed)),
    (live.ClearTopic, _may(_RUNNING, _signed)),
    (control.ListDocuments, {**_may(_LOOKING, _all_documents), **_may("user", _own_documents)}),
    (control.GetDocument, {**_may(_LOOKING, _all_documents), **_may("user", _own_document)}),
    (control.GetHistory, _may(_LOOKING, _as_sent)),
    (
        control.ApplyChanges,
        {**_may("admin", _changed_documents), **_may("operator", _narrowed), **_may("user", _own_preferences)},
    ),
    (control.RevertChange, {**_may("admin", _reverted), **_may("operator", _narrowed_back)}),
    (control.DraftPipelineRules, _may("admin", _as_sent)),
    (BeginReplay, _may("admin", _named)),
    (ShowReplay, _may("admin", _as_sent)),
    (CancelReplay, _may("admin", _named)),
    (control.RegisterConsumer, {**_may("admin", _registering), **_may("user", _of_application)}),
    (control.RenewCredentials, {**_may("admin", _administering), **_may("user", _of_themselves)}),
    (control.SetPublicKey, {**_may("admin", _administering), **_may("user", _of_themselves)}),
    (control.RemoveApplication, _may("admin", _signed)),
    (control.RemoveApplicationUser, {**_may("admin", _registering), **_may("user", _of_application)}),
    (control.MakeToken, _may("admin", _signed)),
    (control.ListTokens, _may("admin", _as_sent)),
    (control.RevokeToken, _may("admin", _signed)),
    (control.RegisterSource, _may("admin source", _as_source)),
    (control.RemoveSource, _may("admin", _signed)),
    (control.OpenSealed, _may("source", _for_themselves)),
    (control.AddData, _may("source", _as_sent)),
    (control.PutData, _may("source", _for_themselves)),
    (me.ListReaders, _may("user", _about_themselves)),
    (me.ListDeliveries, _may("user", _about_themselves)),
    (me.ListOwnRetained, _may("user", _about_themselves)),
    (me.ShowOwn, _may("user", _about_themselves)),
    (me.GetOwnHistory, _may("user", _about_themselves)),
    (me.ExportOwn, _may("user", _about_themselves)),
    (me.ListNotices, _may("user", _about_themselves)),
    (me.FollowNotices, _may("user", _about_themselves)),
    (me.EraseOwn, _may("user", _erasing)),
    (me.ListOwnErasures, _may("user", _about_themselves)),
    (me.ListErasures, _may(_LOOKING, _as_sent)),
    (me.DecideErasure, _may("admin", _signed)),
    (keys.GetKey, _may("user", _for_themselves)),
    (keys.GetPublishingKey, _may("user", _for_themselves)),
    (keys.ListKeys, _may(_LOOKING, _as_sent)),
    (keys.RotateKeys, _may("admin", _signed)),
    (keys.RevokeKey, _may("admin", _signed)),
)


def _name(command: _Named) -> str:
    return command if isinstance(command, str) else command.COMMAND


PERMITTED: Final[Mapping[str, Mapping[Role, Rule]]] = MappingProxyType(
    {_name(command): rules for command, rules in _TABLE}
)
_SIGNING: Final = (control.SignIn, control.SignOut, control.OpenIdBegin, control.OpenIdFinish, control.CheckToken)
FREE: Final = frozenset(("readiness", *(each.COMMAND for each in _SIGNING)))
"""For everybody: they tell nothing that a credential would have to be shown for."""
_UNNAMED: Final = frozenset((control.RegisterSource.COMMAND, control.AddData.COMMAND, control.PutData.COMMAND))
"""What somebody without a token may send; whether the node takes it, its configuration says."""


class Permissions:
    """Decides over the commands of one HTTP process."""

    def __init__(self, node: PermittingNode) -> None:
        self._node = node

    def __call__(self, command: str, credential: str | None, arguments: Arguments) -> Arguments:
        """The arguments with which a command counts; a Problem if it may not be sent."""
        if command in FREE or (command == "metrics" and self._node.open_metrics):
            return arguments
        if command not in PERMITTED:
            raise Problem(f"the HTTP interface does not send {command[:40]!r}", problem="forbidden")
        if "level" in arguments and (level := self._node.level) is not None:
            arguments = {**arguments, "level": level}
        if credential is None:
            return _unnamed(command, arguments)
        caller = self._node.caller(credential)
        rule = PERMITTED[command].get(caller.role)
        if rule is None:
            raise forbidden(caller)
        return rule(caller, arguments)


def _unnamed(command: str, arguments: Arguments) -> Arguments:
    if command not in _UNNAMED:
        raise Problem("this needs a token; send one", problem="unauthenticated")
    match command:
        case control.RegisterSource.COMMAND:
            by = str(arguments.get("by", ""))
            by = by if by.startswith("address:") else "address:"
            return {**arguments, "by": by, "role": None, "user": None, "compared": False}
        case control.PutData.COMMAND:
            return {**arguments, "user": None, "key": None, "counter": None}
        case _:
            return arguments


def forbidden(caller: Caller) -> Problem:
    return Problem(f"the role {caller.role} may not do this; ask an administrator", problem="forbidden")
