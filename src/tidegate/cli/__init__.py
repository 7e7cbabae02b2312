"""The command line: `tidegate run`, `check`, `pub`, `sub`, `passwd`, `cert`, `status`, `reload`, `stop` and
others.

The composition root. Commands are thin: they read options, call a room, and show what it said. Everything
heavy is imported inside the command that needs it, so that `tidegate --help` is immediate.
"""
