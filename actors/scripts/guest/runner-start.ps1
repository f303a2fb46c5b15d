# Starts the runner once: the script that creates the mark starts it, and creating it fails when it
# exists. Exits with 127 when none of its programs is in the guest.
# sshd ends everything that its session started, so Windows itself is asked to start the runner. A
# runner that is not seen to start is ended, so that a later start is the only one.
# Arguments: the runner; the word for its end when it ends well; its programs.
$well = $arguments[1]
$programs = @($arguments | Select-Object -Skip 2)

Set-Location -LiteralPath $folder
if ($programs -and -not (Get-Command $programs -CommandType Application -ErrorAction SilentlyContinue)) { Leave 127 }
try { [IO.File]::WriteAllText((Path "since.$PID"), (Now)) } catch { Fail "the guest's disk takes no file: $_" 3 }
try {
    $null = [IO.Directory]::CreateDirectory((Path "begun.$PID"))
    [IO.Directory]::Move((Path "begun.$PID"), $mark)
} catch {
    if ([IO.Directory]::Exists($mark)) { exit 0 }
    Fail "the guest's disk takes no folder: $_" 3
}
foreach ($old in 'since', 'pid', 'end') { [IO.File]::Delete((Path $old)) }
[IO.File]::Move((Path "since.$PID"), (Path 'since'))

$watch = "`$well = '$well'`n" + (Text 'watch.ps1')
$watch = [Convert]::ToBase64String([Text.Encoding]::Unicode.GetBytes($watch))
$variables = [string[]](Get-ChildItem env: | ForEach-Object { $_.Name + '=' + $_.Value })
$how = @{ ShowWindow = [uint16]0; EnvironmentVariables = $variables }
try {
    $made = Invoke-CimMethod -ClassName Win32_Process -MethodName Create -Arguments @{
        CommandLine = "powershell -NoProfile -NonInteractive -EncodedCommand $watch"
        CurrentDirectory = $folder
        ProcessStartupInformation = New-CimInstance -ClassName Win32_ProcessStartup -ClientOnly -Property $how
    }
    $why = 'Win32_Process.Create ends with ' + $made.ReturnValue
} catch { $why = $_ }
for ($turn = 0; $made.ReturnValue -eq 0 -and $turn -lt 400; $turn++) {
    if ((Has 'pid') -or (Has 'end')) { exit 0 }
    Start-Sleep -Milliseconds 50
}
if ($made.ProcessId) {
    End-Tree $made.ProcessId
    $why = 'it did not start to run within 20 s'
}
[IO.Directory]::Delete($mark, $true)
Fail "Windows did not start the runner: $why" 3
