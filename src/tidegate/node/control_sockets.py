"""The two sockets over which a node is asked: one for its own user, one for the HTTP process.

Whoever can open the first may send every command: the mode of the file decides. The HTTP process is not answered there,
nor anything that it has started. On its own socket each command needs the credential of somebody who may send it
(`admin.permissions`).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.admin.permissions import Caller, Permissions
from tidegate.admin.roles import Role
from tidegate.admin.sign_in import PREFIX, SignIns
from tidegate.errors import Problem
from tidegate.net.control_socket import Command, Control
from tidegate.net.loop_share import Flow, LoopShare

if TYPE_CHECKING:
    from tidegate.node.node import Node

_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
_DEEP: Final = 64  # processes between a process and the one it descends from


class ControlSockets:
    """Those of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.sign_ins = SignIns(node)
        self._controls: list[Control] = []
        self.keeps_orphans = False
        """Whether what the HTTP process leaves behind is a child of this process then: see `keep_orphans`."""

    async def start(self, commands: Mapping[str, Command]) -> None:
        config, counters = self._node.config, self._node.site.counters
        share = LoopShare(Flow(lambda: counters.publishes_received))
        await self._start(Control(config.control_socket, commands, shunned=self._shunned, share=share))
        if config.http is not None or self._node.administration is not None:
            await self._start(Control(config.http_socket, commands, authorise=Permissions(self), share=share))

    async def _start(self, control: Control) -> None:
        await control.start()
        self._controls.append(control)

    async def close(self) -> None:
        for control in self._controls:
            await control.close()

    def keep_orphans(self) -> None:
        """From now on every process that descends from this one stays its descendant, whoever ends in between."""
        if sys.platform == "linux":
            self.keeps_orphans = ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0

    def _shunned(self, pid: int) -> bool:
        http = self._node.http
        if self.keeps_orphans and pid != os.getpid() and descends(pid, os.getpid()):
            return True
        return http is not None and http.pid is not None and descends(pid, http.pid)

    # -- for the permissions (admin.permissions.PermittingNode) ------------------------------------------------------

    def caller(self, credential: str) -> Caller:
        administration = self._node.administration
        if administration is None:
            raise Problem("there are no tokens here: set `http` in the file of the node", problem="unauthenticated")
        try:
            if credential.startswith(PREFIX):
                token = self.sign_ins.check(credential)
            else:
                token = administration.tokens.check(credential)
        except Problem as problem:
            text, _, _ = str(problem).partition("; ")  # whoever has asked is told by the HTTP process what to do
            raise Problem(text, problem="unauthenticated") from None
        by = token.get("by") or f"token:{token['id']}"
        signed_in = token.get("signed_in")
        role = Role(token["role"])
        return Caller(role=role, by=by, user=token["user"], identity=token["identity"], signed_in=signed_in)

    @property
    def level(self) -> str | None:
        http = self._node.config.http
        if http is None:
            return None
        return "plain" if http.cert is None else "tls" if http.client_ca is None else "mtls"

    @property
    def open_metrics(self) -> bool:
        http = self._node.config.http
        return http is not None and http.metrics is not None


def descends(pid: int, of: int) -> bool:
    """Whether a process is another one, or was started by it or by what that has started."""
    for _ in range(_DEEP):
        if pid == of:
            return True
        if pid <= 1:
            return False
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:  # it is gone, or there is no such folder here
            return False
        pid = int(stat.rpartition(b")")[2].split()[1])
    return True  # nobody has that many ancestors by accident
