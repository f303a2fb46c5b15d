# Says what a person must know of a Windows guest in which a step failed: Cloudbase-Init, memory, disks,
# and the last errors of the event log. Changes nothing, and says what is not there. Lines that may have a
# secret are left out.
$secret = 'passw|secret|token|credential|authorization|private key'
function Part($name, $what) {
    Say "-- $name"
    try { $text = @(& $what) -join "`n" } catch { $text = "not readable: $_" }
    $lines = @($text -split "`r?`n" | ? { $_ -and $_ -notmatch $secret } | select -Last 20)
    if (-not $lines) { $lines = @('nothing') }
    $end = $lines -join "`n"
    Say $end.Substring([Math]::Max(0, $end.Length - 900))
}
Part 'Cloudbase-Init' {
    $log = "$env:ProgramFiles\Cloudbase Solutions\Cloudbase-Init\log\cloudbase-init.log"
    if (Test-Path $log) { Get-Content $log -Tail 20 } else { 'not installed' }
}
Part 'memory' {
    $os = Get-CimInstance Win32_OperatingSystem
    "$($os.FreePhysicalMemory) KiB of $($os.TotalVisibleMemorySize) KiB free"
}
Part 'disks' {
    Get-CimInstance Win32_LogicalDisk -Filter 'DriveType = 3' | % { "$($_.DeviceID) $($_.FreeSpace) of $($_.Size) bytes free" }
}
Part 'event log' {
    $wanted = @{ LogName = 'System', 'Application'; Level = 1, 2; StartTime = (Get-Date).AddHours(-1) }
    Get-WinEvent $wanted -MaxEvents 10 -ErrorAction SilentlyContinue | % { "$($_.TimeCreated.ToString('s')) $($_.ProviderName): $(($_.Message -split '\n')[0])" }
}
