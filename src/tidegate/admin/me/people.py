"""A person as a node knows them: what is needed of a node to answer them, and what is theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidegate.admin.administration import Administration
from tidegate.admin.identities import NodeIdentities
from tidegate.audit.auditor import Auditor
from tidegate.audit.journals import Journals
from tidegate.authentication.passwords import Passwords
from tidegate.config import Config
from tidegate.scope import Realm, Scope
from tidegate.session import Context, Message, Site, Subject

if TYPE_CHECKING:
    from tidegate.admin.me.services import OwnDataServices

T = TypeVar("T")


class OwnersNode(Protocol):
    """What is needed of a node."""

    config: Config
    scopes: dict[str, Scope]
    realm: Realm
    site: Site
    audit: Auditor
    identities: NodeIdentities
    administration: Administration | None
    own_data: OwnDataServices
    passwords: Passwords
    journals: Journals

    async def run_query(self, do: Callable[[], T]) -> T:
        """On the thread for those who only look."""


class Owned:
    """Whether a message of a scope is theirs alone, by users and their ids, and older than a time.

    What comes from several is nobody's to take away.
    """

    def __init__(self, scope: Scope, own: Mapping[str | None, str], before: float = math.inf) -> None:
        self._context = scope.gate.attributes.context
        self._own = own
        self._before = before

    def __call__(self, message: Message) -> bool:
        return message.published < self._before and self.alone(self._context(message))

    def alone(self, context: Context) -> bool:
        """Whether what has this context is theirs, and nobody else's."""
        return self.are(context.subject) and not context.others and not context.path

    def are(self, subject: Subject) -> bool:
        """Whether a subject is them, or a device of theirs."""
        return subject.user in self._own and subject.identity == self._own[subject.user]


def devices_of(config: Config, user: str) -> list[str]:
    """Users that are devices, sources or applications of somebody."""
    return [name for name, each in config.directory.users.items() if each.owner == user]
