"""Tidegate: an MQTT broker in which a message passes only if everybody who has a say agrees."""

from tidegate.compiled import install

__version__ = "0.1.0"

install()
