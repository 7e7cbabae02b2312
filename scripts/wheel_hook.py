"""With `TIDEGATE_COMPILE=1` a wheel has the compiled rooms and is for one platform; else it is for any and has none."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def wanted() -> bool:
    return os.environ.get("TIDEGATE_COMPILE", "0") not in ("", "0")


class CompiledRooms(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        """What the build needs besides."""
        return ["mypy>=2"] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation has none: `make rooms` compiles."""
        if version == "editable" or not wanted():
            return
        root = Path(self.root)
        subprocess.run([sys.executable, str(root / "scripts" / "compile_rooms.py"), "--must"], check=True)
        library = root / "src" / "tidegate" / f"rooms{EXTENSION_SUFFIXES[0]}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(library)] = f"tidegate/{library.name}"
