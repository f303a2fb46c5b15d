# Ends all other sessions and what they started, in a guest that no lease, hold or runner has. A call
# that comes late finds their key or folder, and ends nothing.
#
# Each connection has a process of OpenSSH below the server's; newer ones name it `sshd-session`. A
# program whose parent has ended is no session's any more, and is not found.
$lock = Lock
if (@(Lines $keys) -cmatch (Line '\S*')) { exit 0 }
if (Get-ChildItem "$env:USERPROFILE\.drover-runners" -ErrorAction SilentlyContinue) { exit 0 }
$all = @(Get-CimInstance Win32_Process -Property Name, ProcessId, ParentProcessId)
$own = @()
$at = $PID
while ($at -and $own -notcontains $at) {
    $own += $at
    $at = ($all | ? ProcessId -eq $at).ParentProcessId
}
$doors = @($all | ? Name -like 'sshd*')
$ends = @($doors | ? { $doors.ProcessId -contains $_.ParentProcessId -and $own -notcontains $_.ProcessId } | % ProcessId)
do {
    $before = $ends.Count
    $ends += @($all | ? { $ends -contains $_.ParentProcessId -and $ends -notcontains $_.ProcessId } | % ProcessId)
} while ($ends.Count -gt $before)
$ends | % { Stop-Process -Id $_ -Force -ErrorAction SilentlyContinue }
