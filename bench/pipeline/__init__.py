"""`bench pipeline`: records a second on two cores, growth, time until a record arrives, and what the journal costs."""
