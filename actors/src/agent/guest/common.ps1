# What drover's scripts for Windows have in common. What they are told stands in `$arguments`.
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

function Say($text) { [Console]::Out.WriteLine($text) }

function Fail($text, $status = 1) {
    [Console]::Error.WriteLine($text)
    exit $status
}

trap { Fail $_ }
