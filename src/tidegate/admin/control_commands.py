"""The control commands of administration. The HTTP interface and the command line send them; see `commands`."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from annotated_types import Len

from tidegate.admin.documents import RequestedChange
from tidegate.admin.roles import Role
from tidegate.net.control_command import ControlCommand, Counter, Flag, Seconds, SignedCommand, Text, Version, command

Changes = Annotated[list[RequestedChange], Len(1, 1000)]  # documents that are changed together


# -- documents ---------------------------------------------------------------------------------------------------------


@command("admin_list")
class ListDocuments(ControlCommand):
    """All documents of a kind; with a `limit` a page of them by id, with an `owner` only what belongs to it."""

    kind: Text
    after: str | None = None
    limit: Version | None = None
    owner: Text | None = None
    identity: str | None = None  # the id of that owner: what belonged to another of that name is left out


@command("admin_get")
class GetDocument(ControlCommand):
    """With an `owner` only a preference of theirs: another one does not exist for them."""

    kind: Text
    id: Text
    owner: Text | None = None
    identity: str | None = None


@command("admin_history")
class GetHistory(ControlCommand):
    kind: Text
    id: Text


@command("admin_apply")
class ApplyChanges(SignedCommand):
    changes: Changes
    fence: Counter | None = None
    """The fence that `pipeline_draft` told: a conflict if anything has changed since. 0: there was none."""
    narrow: Flag = False  # whether views, monitors and links may only be narrowed, as operators may
    owner: Text | None = None  # whose preferences alone may be changed
    identity: str | None = None


@command("admin_revert")
class RevertChange(SignedCommand):
    """Takes back what was changed together as `sequence`."""

    sequence: Version
    fence: Counter | None = None
    narrow: Flag = False
    kinds: list[Text] | None = None  # all that was changed must be of these; None: of any


@command("pipeline_draft")
class DraftPipelineRules(ControlCommand):
    """The rules of the pipeline, which the node cannot check: as they are, and as changes or a revert would make them.

    Either `changes` or `sequence`.
    """

    changes: Changes | None = None
    sequence: Version | None = None


# -- consumers ---------------------------------------------------------------------------------------------------------


@command("consumer_register")
class RegisterConsumer(SignedCommand):
    """A user or an application that registers."""

    name: Text
    body: dict[str, Any] = field(repr=False)  # as of a user in the directory, the password hashed
    description: str | None = None  # of an application; None: it is a user
    under: Text | None = None  # the application that it is a user of
    itself: Flag = False  # whether the application asks for it, and no administrator


@command("consumer_renew")
class RenewCredentials(SignedCommand):
    name: Text
    password: Text = field(repr=False)  # hashed
    of: Text | None = None  # the application that asks for one of its users; None: an administrator, or the user


@command("consumer_key")
class SetPublicKey(SignedCommand):
    name: Text
    public_key: Text
    of: Text | None = None
    expected: Version | None = None


@command("application_remove")
class RemoveApplication(SignedCommand):
    id: Text
    expected: Version | None = None


@command("application_remove_user")
class RemoveApplicationUser(SignedCommand):
    name: Text
    under: Text
    itself: Flag = False  # whether the application asks for it, and no administrator
    expected: Version | None = None


# -- tokens ------------------------------------------------------------------------------------------------------------


@command("token_make")
class MakeToken(SignedCommand):
    role: Text
    user: Text | None = None
    name: str = ""
    seconds: Seconds | None = None


@command("token_list")
class ListTokens(ControlCommand):
    pass


@command("token_revoke")
class RevokeToken(SignedCommand):
    id: Text


@command("token_check")
class CheckToken(ControlCommand):
    token: Text = field(repr=False)


# -- sign-in ----------------------------------------------------------------------------------------------------------


@command("sign_in")
class SignIn(ControlCommand):
    """With a password, or with a token."""

    user: Text | None = None
    password: Text | None = field(default=None, repr=False)
    token: Text | None = field(default=None, repr=False)
    address: Text
    replaces: Text | None = field(default=None, repr=False)  # the session that whoever signs in has now: it ends


@command("sign_out")
class SignOut(ControlCommand):
    session: Text = field(repr=False)


@command("openid_begin")
class OpenIdBegin(ControlCommand):
    """Somebody wants to sign in at an issuer."""

    issuer: Text | None = None  # which of `http.oidc`; None: the only one
    next: Text | None = None  # the path on this host where they go then


@command("openid_finish")
class OpenIdFinish(ControlCommand):
    """They are back, with what the issuer has given to their browser."""

    binding: Text = field(repr=False)
    state: Text = field(repr=False)
    code: Text | None = field(default=None, repr=False)
    iss: Text | None = None
    address: Text
    replaces: Text | None = field(default=None, repr=False)


# -- sources -----------------------------------------------------------------------------------------------------------


@command("source_register")
class RegisterSource(SignedCommand):
    """A source that registers, or does so again."""

    id: Text
    type: Text
    mode: Text
    scheme: Text | None = None
    owner: Text | None = None  # whose it is, as only an administrator says; None: as it was
    password: Text = field(repr=False)  # hashed
    role: Role | None = None  # of whoever asks; None: somebody without a token
    user: Text | None = None  # whom they act for


@command("source_remove")
class RemoveSource(SignedCommand):
    id: Text


@command("source_open")
class OpenSealed(ControlCommand):
    """Opens a sealed body. It counts once `data_put` is told its counter."""

    user: Text
    sealed: Text


@command("data_add")
class AddData(ControlCommand):
    """A piece of a request that is too long for one line; `data_put` brings the last."""

    upload: Text
    part: Text


@command("data_put")
class PutData(ControlCommand):
    """The records of a request. `key` and `counter` are those of a sealed one."""

    user: Text | None
    address: str
    level: Text
    part: Text
    upload: Text | None = None
    key: str | None = None
    counter: Counter | None = None
    capability: str | None = None
