"""Stands in for a command that the fork server runs, or for `python -m MODULE`: passes signals on, and ends as it does.

See `forkserver`. It imports next to nothing, because starting quickly is its purpose.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import struct
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def _send(connection: socket.socket, message: object, descriptors: list[int]) -> None:
    data = json.dumps(message).encode()
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    connection.sendmsg([struct.pack("!I", len(data))], passed)
    connection.sendall(data)


def _receive(connection: socket.socket) -> dict[str, int]:
    (left,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
    answer: dict[str, int] = json.loads(connection.recv(left, socket.MSG_WAITALL))
    return answer


def main() -> None:
    environment = dict(os.environ)
    extra = [int(one) for one in environment.pop("FORKSERVER_DESCRIPTORS", "").split(",") if one]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(environment["FORKSERVER_ADDRESS"])
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    module = sys.argv[1] == "-m"  # Spark's want to lead a group
    request = {
        "words": sys.argv[1:],
        "environment": environment,
        "folder": os.getcwd(),
        "session": not module,
        "group": 0 if module else -1,
        "descriptors": extra,
    }
    _send(connection, request, [0, 1, 2, *extra])
    for one in (0, 1, *extra):
        os.close(one)
    pid = _receive(connection)["pid"]

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself, and its code is on the way
            os.kill(pid, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    code = _receive(connection)["code"]
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
