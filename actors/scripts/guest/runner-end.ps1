# Ends the runner with every process that it started, and removes its folder. `rd` removes read-only
# files, which Git makes, and with this prefix paths of any length; .NET does neither.
# Argument: the runner.
if (-not [IO.Directory]::Exists($folder)) { exit 0 }
if ((Has 'pid') -and -not (Has 'end') -and (Find-Runner)) { End-Tree (Text 'pid') }
for ($turn = 1; ; $turn++) {
    $said = cmd.exe /d /c "rd /s /q ""\\?\$folder"" 2>&1"
    if (-not [IO.Directory]::Exists($folder)) { exit 0 }
    if ($turn -ge 50) { Fail "$folder cannot be removed: $said" }
    Start-Sleep -Milliseconds 100
}
