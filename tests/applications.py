"""Configurations of the pages about applications, served as the pages say: by a node, or by a guard before a Mosquitto.

Each page has two files, `embedded.yaml` and `guarded.yaml`. Ports 1883 and 1884 become free ones.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from backends import Mosquitto
from docs.pages import ROOT, blocks
from harness import free_port
from processes import Process, process


def page_configuration(page: str, *, guarded: bool) -> str:
    """The file of a page."""
    wanted = "guarded.yaml" if guarded else "embedded.yaml"
    return next(block.text for block in blocks(ROOT / "docs/how-to" / page) if block.file == wanted)


@contextlib.contextmanager
def served(folder: Path, text: str, *, guarded: bool) -> Iterator[tuple[Process, int]]:
    """The node, and the port on which clients connect."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        behind = 0
        if guarded:
            broker = Mosquitto(folder / "mosquitto")
            stack.callback(broker.stop)
            broker.start()
            behind = broker.port
        text = re.sub(r"\b1884\b", str(behind), re.sub(r"\b1883\b", str(port), text))
        node = stack.enter_context(process(folder, text, allowed=("written in plain",)))
        yield node, port
