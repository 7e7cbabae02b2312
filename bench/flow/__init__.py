"""`bench flow`: what reaches what, in graphs of up to 20,000 links."""
