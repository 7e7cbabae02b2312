"""The steps that the gate decides, in one file each, named after the step: write, brokering, levels, read, view, where.

`order.py` puts them in order. The other steps of the path are not decided here: monitors (2 and 11) and the context
(3) are in `scope/`, sealing (4) is in `scope/protection.py`, the journal (5) in `session/journal.py`.
"""
