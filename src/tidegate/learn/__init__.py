"""What was seen becomes rules: policies, and monitors, with the evidence for each.

`table` holds what was seen, added up: who did what with which topic, at which hour, how often. `propose` finds the
smallest readable policies that allow all of it; `sequences` and `payload_ranges` find what always held. `as_yaml`
writes it down.

Everything here is pure: the same table gives the same proposals, wherever it was added up.
"""
