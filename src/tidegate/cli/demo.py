"""`tidegate demo`: the quick start from the package, without a checkout of the project.

Its files are copied to a folder where they can be read and changed; then they run as `make run` runs them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder for its files; one that is there is used as it is.")] = Path(
        "tidegate-demo"
    ),
    copy: Annotated[bool, typer.Option("--copy", help="Only copy the files.")] = False,
) -> None:
    """Run the quick start: a node, simulated devices, and the pipeline where Java is; Ctrl-C stops all of it.

    [dim]tidegate demo[/dim]
    """
    if not folder.exists():
        source = quick_start()
        if source is None:
            terminal.fail("the quick start is not part of this installation; install the wheel again")
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("var", "__pycache__"))
    script = folder / "run.py"
    if not script.is_file():
        terminal.fail(f"{folder} is no folder of the quick start; name another one")
    if copy:
        terminal.done(f"copied to {folder}; run with: tidegate demo {folder}")
        return
    os.execv(sys.executable, [sys.executable, str(script)])  # noqa: S606 - Ctrl-C reaches it alone


def quick_start() -> Path | None:
    """Its files: in the package, or in the checkout that is installed for development."""
    package = Path(__file__).parents[1]
    places = (package / "quickstart", package.parents[1] / "examples" / "quickstart")
    return next((place for place in places if (place / "run.py").is_file()), None)
