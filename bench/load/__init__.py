"""The load generator: sessions, frames, loops in C and in Python, and the process around them."""
