"""`tidegate bench keys`: key requests, what protection adds on the direct path, and the broker beside a busy API."""
