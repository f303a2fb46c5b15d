# Ends the runner with everything it began, and removes its folder.
# Argument: the runner.
if (-not [IO.Directory]::Exists($folder)) { exit 0 }
if ((Has 'pid') -and -not (Has 'end') -and (Find-Runner)) {
    cmd.exe /d /c ('taskkill /PID ' + (Text 'pid') + ' /T /F >nul 2>&1')
}
for ($turn = 1; ; $turn++) {
    try { [IO.Directory]::Delete($folder, $true); exit 0 }
    catch { if ($turn -ge 50) { Fail "$folder cannot be removed: $_" } }
    Start-Sleep -Milliseconds 100
}
