# Removes the key of a lease; a repeated call changes nothing.
# Argument: the lease.
$lease = $arguments[0]

if (-not [IO.Directory]::Exists($folder)) { exit 0 }
$lock = Lock
try { Write-Lines $ended (@(Lines $ended) + $lease | Select-Object -Last 200) }
catch { Again "$ended cannot be written: $_" }
$all = @(Lines $keys)
$rest = @($all -cnotmatch (Line $lease))
if ($rest.Count -ne $all.Count) { Change $rest }
if (@(Lines $keys) -cmatch (Line $lease)) { Again "the key is still in $keys" }
