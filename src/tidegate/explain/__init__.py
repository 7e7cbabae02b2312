"""Why something is allowed or denied: explanations, what-if, tests of a file, comparison of two rule sets."""
