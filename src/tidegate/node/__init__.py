"""A running node: scopes, listeners, control socket, reload, shutdown."""
