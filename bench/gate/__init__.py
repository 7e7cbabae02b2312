"""What the gate costs: the parts of `tidegate bench gate`."""
