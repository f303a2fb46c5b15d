# What drover's scripts for Windows have in common. What they are told stands in `$arguments`.
#
# PowerShell as a login shell makes 1 of every exit status but 0: a script says its status, too.
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
