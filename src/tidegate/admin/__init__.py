"""Administration while the node runs: documents over the file, users, applications, sources, tokens."""
