"""The frame mutator of the codec's tests, for tests that send its frames over sockets."""

from wire.mutate import mutations

__all__ = ["mutations"]
