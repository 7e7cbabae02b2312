"""What is allowed, and who said so: predicates (CEL), and the rules that are built from them.

Everything here is pure: time, randomness and the outside world come in as attributes.
"""
