"""`F`: pyspark.sql.functions, imported when the first column is built.

Rules are checked, and a lake is looked after, without Spark: modules that build columns must not import it.
"""

from __future__ import annotations

from typing import Any, Final


class _Functions:
    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import functions

        function = self.__dict__[name] = getattr(functions, name)
        return function


F: Final[Any] = _Functions()
