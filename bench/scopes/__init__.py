"""`bench scopes`: scopes in a chain inside one node, with and without monitors on the way (see `chain`)."""
