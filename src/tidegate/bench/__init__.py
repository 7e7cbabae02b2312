"""Measurements: the peers, the load, the works and the report (`tidegate bench`)."""
