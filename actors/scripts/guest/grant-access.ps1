# Adds the key of a lease; to repeat it changes nothing. The key of a hold replaces the keys of all
# leases. A late call does not let an ended lease in again.
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
