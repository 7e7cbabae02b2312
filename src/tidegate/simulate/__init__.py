"""The executable model: what the seed's section 3.3 says ("scopes"), as functions to run.

In the order of reading: `schema` is what a system is, `state` what it is in, `order` what may come first, `steps` what
happens. `automata` and `presets` are what administrators put in, `configured` takes it from a configuration.
`scenario` says what devices do and what is expected of it, `run` how a run goes on, `explore` (with
`partial_order`) what can come of it, `trace` how it came.
"""
