"""What several guards cost (`tests/bench/scale_costs.py`), and what follows for very many clients: `simulation`."""
