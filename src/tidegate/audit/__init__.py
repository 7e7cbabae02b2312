"""What was decided and what happened, written down: rows, sink, limits, traffic, journals."""
