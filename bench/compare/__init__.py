"""`bench compare`: the works of this tree beside those of another checkout, in interleaved pairs of one run."""
