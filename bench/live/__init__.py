"""`tidegate bench live`: the latency of messages while callers list who is connected."""
