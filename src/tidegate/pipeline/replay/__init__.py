"""What would be decided differently: recorded traffic, decided once more by other rules.

`candidate` makes the other configuration. `partitions` cuts the journal into pieces that can be decided by themselves,
and `recorded_sessions` knows who was there at each moment. `replay_engine` is the gate of one configuration, the very
one that a node runs; `comparer` asks two of them about each message and compares. `job` lets Spark do that for all
pieces at once, `report` adds up and says what came of it, and `plot` draws it.

Nothing is changed: the journal is only read.
"""
