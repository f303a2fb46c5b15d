# Removes the key of a lease; to repeat it changes nothing. When a full disk cannot record the
# lease's end, the key is removed all the same.
# Argument: the lease.
$lease = $arguments[0]

if (-not [IO.Directory]::Exists($folder)) { exit 0 }
$lock = Lock
try {
    [IO.File]::AppendAllText($ended, "$lease`n")
    $over = @(Lines $ended)
    if ($over.Count -gt 200) { Write-Lines $ended $over[-100..-1] }
} catch { }
$all = @(Lines $keys)
$rest = @($all -cnotmatch (Line $lease))
if ($rest.Count -ne $all.Count) { Change $rest }
if (@(Lines $keys) -cmatch (Line $lease)) { throw "the key is still in $keys" }
