# Runs a runner to its end, in its folder, and records how it ended. `$well` is set before it.
$ErrorActionPreference = 'Stop'
[IO.File]::WriteAllText('pid.new', $PID)
[IO.File]::Move('pid.new', 'pid')
if ([IO.File]::Exists('env.json')) {
    $variables = ConvertFrom-Json ([IO.File]::ReadAllText('env.json'))
    [IO.File]::Delete('env.json')
    foreach ($one in $variables.PSObject.Properties) { [Environment]::SetEnvironmentVariable($one.Name, $one.Value) }
}
cmd.exe /d /c 'call run.cmd >log 2>&1 <nul'
$life = 'ended'
if ($LASTEXITCODE -eq 0) { $life = $well }
$status = [BitConverter]::ToUInt32([BitConverter]::GetBytes($LASTEXITCODE), 0)
# The clock may have been set back meanwhile.
$span = [Math]::Max(0, [DateTimeOffset]::UtcNow.ToUnixTimeSeconds() - [long][IO.File]::ReadAllText('since'))
[IO.File]::WriteAllText('end.new', "$life $status $span")
[IO.File]::Move('end.new', 'end')
