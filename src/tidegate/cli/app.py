"""The entry point of `tidegate`. No exception that is meant for people ends as a traceback.

Exit codes: 0 done, 1 said no, 2 wrong usage. `tidegate run -c FILE` is recognised here: a node that is started like
that does without typer, which would take a seventh of the time to start. `commands` reads everything else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.errors import ConfigError, TidegateError


def main() -> None:
    try:
        match sys.argv[1:]:
            case ["run", "-c" | "--config", file]:
                from tidegate.cli.start import start_node

                sys.exit(start_node(Path(file)))
            case _:
                from tidegate.cli.commands import app

                app(prog_name="tidegate")
    except ConfigError as wrong:
        from tidegate.cli import terminal

        for line in str(wrong).splitlines():  # `file:line: …`, as editors and scripts know it
            terminal.err().print(terminal.harmless(line), markup=False)
        sys.exit(terminal.NO)
    except TidegateError as wrong:
        from tidegate.cli import terminal

        terminal.error(str(wrong))
        sys.exit(terminal.NO)
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`). Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(1)
