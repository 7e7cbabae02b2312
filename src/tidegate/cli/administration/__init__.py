"""Administration from the command line, over the HTTP interface of a running node.

`asking` speaks HTTP, `options` makes commands of functions that ask, `documents` does what is alike for all kinds,
`shown` draws tables, `written` reads what people write. A module for each kind of thing has its commands. Importing
this imports nothing heavy: `tidegate --help` must not wait.
"""
