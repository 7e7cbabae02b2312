"""Measurements against other brokers, run by `tidegate bench` from the project's tree. Not part of the package."""

import os
from pathlib import Path

ROOT = str(Path(__file__).parents[1])

# The generators run as processes of their own (`python -m bench.…`), and have to find this package, too.
_paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if ROOT not in _paths:
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, _paths)])
