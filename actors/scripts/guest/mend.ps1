# Looks at a guest that was put back to its snapshot and has booted since, which took the time from its
# hardware, a new lease of its address, and nobody's session: the key of a lease must not be there.
if (@(Lines $keys) -cmatch (Line '\S*')) { Fail 'the key of a lease is still there: the guest was not put back' }
