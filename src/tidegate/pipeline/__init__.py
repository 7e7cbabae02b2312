"""The data pipeline on Spark: from the journal `ingest` to normalised, scored, protected, published and kept records.

`rules` says what is to be done, `normalise`, `score`, `assign` and `protect` are the stages, pure functions from frame
to frame; `publish` and `lake` bring out what they made. `job` puts them together, `ledger` remembers how far it came,
`node_client` speaks to the node, `source` lets Spark read journals and brokers. `replay` decides recorded traffic
again.

Only this room imports pyspark, and only when something is run: what can be known without it (rules, checks, folders)
can be imported without it.
"""
