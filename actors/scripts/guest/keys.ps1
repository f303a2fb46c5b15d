# Shared by the scripts about the login user's keys: one change at a time, and a file that is
# complete at every moment.
#
# sshd reads the keys of all administrators from one file, unless its configuration does not name
# that file. The lock is a file that one process holds open: it is free as soon as that process has
# ended.
# An exception exits with 75: another try can help. Any other failure exits with 1: none can.
$unforeseen = 75
$folder = "$env:USERPROFILE\.ssh"
$keys = "$folder\authorized_keys"
$server = "$env:ProgramData\ssh"
$shared = 'administrators_authorized_keys'
$config = "AuthorizedKeysFile $shared"
try { $config = [IO.File]::ReadAllText("$server\sshd_config") } catch { }
$user = [Security.Principal.WindowsPrincipal][Security.Principal.WindowsIdentity]::GetCurrent()
$admin = $user.IsInRole(544) -and $config -match "(?m)^\s*AuthorizedKeysFile.*$shared"
if ($admin) {
    $folder = $server
    $keys = "$folder\$shared"
}
$ended = "$folder\.drover-ended"

function Lock {
    for ($turn = 1; ; $turn++) {
        try { return [IO.File]::Open("$folder\.drover-keys.lock", 'OpenOrCreate', 'ReadWrite', 'None') }
        catch { if ($turn -ge 100) { throw "the keys stay locked: $_" } }
        Start-Sleep -Milliseconds 100
    }
}

function Lines($file) { if ([IO.File]::Exists($file)) { [IO.File]::ReadAllLines($file) } }
function Write-Lines($file, $lines) { [IO.File]::WriteAllText($file, (@($lines | % { "$_`n" }) -join '')) }

# The new file replaces the old one and takes over its rights.
function Change($lines) {
    $beside = "$keys.drover"
    try {
        Write-Lines $beside $lines
        if ([IO.File]::Exists($keys)) { return [IO.File]::Replace($beside, $keys, [NullString]::Value) }
        if ($admin) { $null = icacls $beside /inheritance:r /grant '*S-1-5-32-544:F' /grant '*S-1-5-18:F' }
        [IO.File]::Move($beside, $keys)
    } catch { throw "$keys cannot be written: $_" }
}

# Matches the line of a lease's key.
function Line($lease) { " drover-lease-$lease\s*$" }
