# Makes the working directory and checks that the login user can write into it. Looks for a Java,
# and only warns when there is none.
# Arguments: the directory; the Java binary.
$folder, $java = $arguments
$user = [Environment]::UserName

try { $null = [IO.Directory]::CreateDirectory($folder) }
catch { Fail ('user `{0}` cannot make the directory `{1}`' -f $user, $folder) }

$probe = Join-Path $folder ('.drover-probe.' + $PID)
try { [IO.File]::WriteAllText($probe, '') }
catch { Fail ('user `{0}` cannot write into `{1}`' -f $user, $folder) }
[IO.File]::Delete($probe)

if (-not (Get-Command $java, 'java' -CommandType Application -ErrorAction SilentlyContinue)) {
    Say ('warning: there is no Java, neither at `{0}` nor on PATH' -f $java)
}
