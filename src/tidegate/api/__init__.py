"""HTTP: administration, analysis, the audit, health and metrics; a process of its own.

`server` runs it, `app` puts it together. Every request passes `middleware` first: sizes, times, rates. Then comes
`access`, the one table of who may do what. All that the process knows of the node it asks over the control socket
(`channel`), a few questions at a time, so that no number of requests holds the broker up.
"""
