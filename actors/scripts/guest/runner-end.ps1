# Ends the runner with everything it began, and removes its folder: by `rd`, which takes files that are
# read-only, as Git's are, and with this prefix paths of any length. .NET takes neither.
# Argument: the runner.
if (-not [IO.Directory]::Exists($folder)) { exit 0 }
if ((Has 'pid') -and -not (Has 'end') -and (Find-Runner)) { End-Tree (Text 'pid') }
for ($turn = 1; ; $turn++) {
    $said = cmd.exe /d /c "rd /s /q ""\\?\$folder"" 2>&1"
    if (-not [IO.Directory]::Exists($folder)) { exit 0 }
    if ($turn -ge 50) { Fail "$folder cannot be removed: $said" }
    Start-Sleep -Milliseconds 100
}
