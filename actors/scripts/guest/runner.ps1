# Shared by the scripts about a runner, which has a folder of its own.
$folder = Join-Path $env:USERPROFILE ('.drover-runners\' + $arguments[0])
$mark = Join-Path $folder 'begun'

function Path($name) { Join-Path $folder $name }
function Text($name) { [IO.File]::ReadAllText((Path $name)) }
function Has($name) { [IO.File]::Exists((Path $name)) }
function Now { [DateTimeOffset]::UtcNow.ToUnixTimeSeconds() }
function End-Tree($id) { cmd.exe /d /c "taskkill /PID $id /T /F >nul 2>&1" }
function Find-Runner { Get-Process -Id (Text 'pid') -ErrorAction SilentlyContinue | Where-Object ProcessName -eq 'powershell' }
