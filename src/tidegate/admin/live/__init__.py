"""The live view: who is connected, what sessions, subscriptions and retained messages there are, and ending them."""
