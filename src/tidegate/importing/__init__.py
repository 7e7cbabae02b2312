"""Access rules of other brokers, read into policies of this one.

Each module reads one format: `read(text, source) -> Imported`. `source` is the name of the file, for places such as
`acl:3`. A text that cannot be read at all raises ConfigError with its place; what can be read and has no equivalent
is listed in `Imported.left`.

Invariants
- What is written never allows more than what was read. Where both cannot be the same, it denies more and says so.
- Texts in, texts out: no files, no clock, no network. Sizes and depths are bounded.
"""

from __future__ import annotations

from tidegate.importing.imported_policies import Imported, ImportedPolicy, NotImported, to_yaml

__all__ = ["Imported", "ImportedPolicy", "NotImported", "to_yaml"]
