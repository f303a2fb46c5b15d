# Checks a guest after a rollback to its snapshot and a boot. The boot took the time from the
# hardware, a new lease of its address, and nobody's session. No lease's key must be there.
if (@(Lines $keys) -cmatch (Line '\S*')) { Fail 'the key of a lease is still there: the rollback did not happen' }
