"""What a node does for people about their own data while it runs: notices and erasures."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.admin.me.erasures import ROOM as ERASURES
from tidegate.admin.me.erasures import Erasures
from tidegate.admin.me.notices import ROOM as NOTICES
from tidegate.admin.me.notices import Notices
from tidegate.admin.me.people import OwnersNode


class OwnDataServices:
    """Those of one node; `records`: what its store kept."""

    def __init__(self, node: OwnersNode, records: Mapping[str, Mapping[str, bytes]]) -> None:
        self.notices = Notices(node, records.get(NOTICES, {}))
        self.erasures = Erasures(node, records.get(ERASURES, {}))

    def start(self) -> None:
        self.notices.start()
        self.erasures.start()

    async def close(self) -> None:
        await self.notices.close()
        await self.erasures.close()
