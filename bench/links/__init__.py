"""`bench links`: two nodes and the link between them, beside one node and beside Mosquitto's bridge."""
