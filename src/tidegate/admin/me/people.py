"""A person as a node knows them: what is needed of a node to answer them, and what is theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidegate.admin.administration import Administration
from tidegate.admin.identities import NodeIdentities
from tidegate.audit.auditor import Auditor
from tidegate.config import Config
from tidegate.scope import Realm, Scope
from tidegate.session import Site

if TYPE_CHECKING:
    from tidegate.admin.me.notices import Notices

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
    notices: Notices

    async def run_query(self, do: Callable[[], T]) -> T:
        """On the thread for those who only look."""


def devices_of(config: Config, user: str) -> list[str]:
    """Users that are devices, sources or applications of somebody."""
    return [name for name, each in config.directory.users.items() if each.owner == user]
