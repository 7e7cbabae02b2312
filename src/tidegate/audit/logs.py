"""Structured logs: readable on a terminal, JSON otherwise, always to standard error."""

from __future__ import annotations

import logging
import re
import sys

if "rich" not in sys.modules and "structlog" not in sys.modules:
    # structlog imports rich for tracebacks that are not used here: 4 MB and 0.05 s of every node
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _harmless(logger: object, method: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """What clients chose (topics, identifiers) is shown, not obeyed by the terminal. JSON escapes it by itself."""
    for key, value in line.items():
        if isinstance(value, str) and _CONTROL.search(value):
            line[key] = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)
    return line


def configure_logs(format: str, level: str) -> None:
    """`format`: auto, console or json."""
    console = format == "console" or (format == "auto" and sys.stderr.isatty())
    renderer: structlog.types.Processor
    if console:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=28, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer()
    processors: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console),
    ]
    if console:
        processors.append(_harmless)
    else:
        # without local variables: they hold what clients sent, passwords among it
        transform = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors.append(structlog.processors.ExceptionRenderer(transform))
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
