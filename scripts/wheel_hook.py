"""A wheel has the compiled rooms, and is for one platform, where they can be compiled; else it is for any and has none.

`TIDEGATE_PURE=1` leaves them out. With `TIDEGATE_COMPILE=1` there is no wheel without them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledRooms(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        """What the build needs besides."""
        script = runpy.run_path(str(self._script))
        if script["compiled"].pure_wanted():
            return []
        try:
            script["c_compiler"]()
        except script["Failed"]:
            return []
        return ["mypy>=2"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation has none: `make` compiles there."""
        if version == "editable":
            return
        done = subprocess.run([sys.executable, str(self._script), "--must"], check=False)
        if done.returncode == 0:
            library = self._script.parents[1] / "src/tidegate" / runpy.run_path(str(self._script))["compiled"].LIBRARY
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(library)] = f"tidegate/{library.name}"
        elif os.environ.get("TIDEGATE_COMPILE", "0") not in ("", "0"):
            raise RuntimeError("TIDEGATE_COMPILE is set, and the rooms cannot be compiled")

    @property
    def _script(self) -> Path:
        return Path(self.root, "scripts", "compile_rooms.py")
