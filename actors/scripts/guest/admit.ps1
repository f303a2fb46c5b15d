# Adds the key of a lease; a repeated call changes nothing. A key that opens a guest to whoever holds it
# takes the place of all leases' keys. A lease that ended is not let in again by a call that came late.
# Arguments: the lease, or `hold`; the line of its key.
$lease, $line = $arguments

$null = [IO.Directory]::CreateDirectory($folder)
$lock = Lock
if (@(Lines $ended) -ccontains $lease) { Fail "lease $lease has ended in this guest" }
$old = Line $lease
if ($lease -ceq 'hold') { $old = Line '\S*' }
$all = @(Lines $keys)
$there = $all -cmatch $old
if ("$there" -cne $line) { Change (@($all -cnotmatch $old) + $line) }
if (-not (@(Lines $keys) -ccontains $line)) { throw "the key is not in $keys" }
