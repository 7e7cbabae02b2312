"""What can flow where: the connection graph, and what follows from it.

`graph` holds entities, typed links and what may follow what; `route` finds one way and shows it; `reach` answers for
all pairs; `assertions` are what an administrator forbids or requires; `groups` are the scopes that trust each other;
`forest` tests a hierarchy; `bundles` are devices of which one can stand for all; `drawing` shows all that.
`presence` is where a client is, and `watch` says which forbidden flow it would open.
"""
