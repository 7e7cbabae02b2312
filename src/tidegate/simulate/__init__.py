"""The executable model: what the seed's section 3.3 says ("scopes"), as functions to run.

In the order of reading: `schema` is what a system is, `order` what may come first, `steps` what it is in and what
happens. `automata` are what administrators put in, `configured` takes it from a configuration. `scenario` says what
devices do and what is expected of it, `run` how a run goes on, `explore` what can come of it, `trace` how it came.
"""
