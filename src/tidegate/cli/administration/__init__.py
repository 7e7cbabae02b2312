"""Administration from the command line, over the HTTP interface of a running node.

`kinds` is the table of document kinds, `documents` makes their commands, `http_client` speaks HTTP, `options` holds the
shared options, `output` draws tables, `input_values` reads what people write. `accounts`, `token` and
`key` add the commands that only these have. Importing this package imports nothing heavy, because `tidegate --help`
must not wait.
"""
