# Reports by its exit status whether the runner was started already; otherwise makes its folder.
# Arguments: the runner; that status.
if ([IO.Directory]::Exists($mark)) { Leave ([int]$arguments[1]) }
$null = [IO.Directory]::CreateDirectory($folder)
