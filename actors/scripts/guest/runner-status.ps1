# Prints the runner's state, `runs`, `ended`, `left` or `died`, with its exit status and its
# seconds, and after that the end of its log. Whether the process runs is checked first, because its
# end is written before it exits.
# Arguments: the runner; how many bytes of its log to print.
if (-not [IO.Directory]::Exists($folder)) { Fail 'the folder of the runner is gone' 2 }
$lives = $true
if (Has 'pid') { $lives = [bool](Find-Runner) }
elseif ([IO.Directory]::Exists($mark)) {
    $lives = ([DateTime]::UtcNow - [IO.Directory]::GetCreationTimeUtc($mark)).TotalSeconds -lt 60
}
$began = Now
if (Has 'since') { $began = [long](Text 'since') }
# The clock may have been set back meanwhile.
$span = [Math]::Max(0, (Now) - $began)
if (Has 'end') {
    $life, $status, $ran = (Text 'end').Split(' ')
    Say ("$life $status $ran " + [Math]::Max(0, $span - [long]$ran))
}
elseif ($lives) { Say "runs 0 $span" }
else { Say "died 0 $span" }
if (-not (Has 'log')) { exit 0 }
$log = [IO.File]::Open((Path 'log'), 'Open', 'Read', 'ReadWrite, Delete')
$null = $log.Seek(-[Math]::Min($log.Length, [long]$arguments[1]), 'End')
$log.CopyTo([Console]::OpenStandardOutput())
