# Shared by drover's scripts for Windows. Their arguments are in `$arguments`.
#
# PowerShell as a login shell turns every exit status but 0 into 1, so a script prints its status,
# too.
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$unforeseen = 1

function Say($text) { [Console]::Out.WriteLine($text) }

function Leave($status) {
    Say "drover-status $status"
    exit $status
}

function Fail($text, $status = 1) {
    [Console]::Error.WriteLine($text)
    Leave $status
}

trap { Fail $_ $unforeseen }
