"""What all works share: servers, rounds, ratios, tables, plots, the machine."""
