"""Wheels have the compiled rooms where a C compiler is at hand; else they are for any platform, and run the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledRooms(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation compiles nothing: `make` does, when it is to run."""
        if version == "editable" or os.environ.get("TIDEGATE_PURE", "0") not in ("", "0"):
            return
        root = Path(self.root)
        subprocess.run([sys.executable, str(root / "scripts" / "compile_rooms.py")], check=True)
        libraries = sorted((root / "src" / "tidegate").glob("rooms.*"))
        suffix = _suffix()
        for library in libraries:
            if library.name.endswith(suffix):
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["force_include"][str(library)] = f"tidegate/{library.name}"


def _suffix() -> str:
    from importlib.machinery import EXTENSION_SUFFIXES

    return EXTENSION_SUFFIXES[0]
