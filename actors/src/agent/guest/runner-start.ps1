# Starts the runner, once: whoever makes the mark starts it. Ends with 127 when none of its programs is in
# the guest. sshd ends what its session began together with that: Windows itself is asked to start it.
# Arguments: the runner; what its end is called when it ends well; its programs.
$well = $arguments[1]
$programs = @($arguments | Select-Object -Skip 2)

Set-Location -LiteralPath $folder
if ($programs -and -not (Get-Command $programs -CommandType Application -ErrorAction SilentlyContinue)) { exit 127 }
try { [IO.File]::WriteAllText((Path 'since.new'), (Now)) } catch { Say "its disk takes no file: $_"; exit 3 }
if ([IO.Directory]::Exists($mark)) { exit 0 }
try { $null = New-Item -ItemType Directory -Path $mark } catch { Say "its disk takes no folder: $_"; exit 3 }
[IO.File]::Delete((Path 'since'))
[IO.File]::Move((Path 'since.new'), (Path 'since'))

$watch = "`$well = '$well'`n" + (Text 'watch.ps1')
$watch = [Convert]::ToBase64String([Text.Encoding]::Unicode.GetBytes($watch))
$variables = [string[]](Get-ChildItem env: | ForEach-Object { $_.Name + '=' + $_.Value })
$how = @{ ShowWindow = [uint16]0; EnvironmentVariables = $variables }
$made = Invoke-CimMethod -ClassName Win32_Process -MethodName Create -Arguments @{
    CommandLine = "powershell -NoProfile -NonInteractive -EncodedCommand $watch"
    CurrentDirectory = $folder
    ProcessStartupInformation = New-CimInstance -ClassName Win32_ProcessStartup -ClientOnly -Property $how
}
for ($turn = 0; $made.ReturnValue -eq 0 -and $turn -lt 400; $turn++) {
    if ((Has 'pid') -or (Has 'end')) { exit 0 }
    Start-Sleep -Milliseconds 50
}
[IO.Directory]::Delete($mark, $true)
Say ('Windows did not start it: ' + $made.ReturnValue)
exit 3
