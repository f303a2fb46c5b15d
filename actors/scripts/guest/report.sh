#!/bin/sh
# Says what a person must know of a guest in which a step failed: cloud-init, memory, disks, and the
# last lines of its logs. Changes nothing, waits for nothing, and says what is not there. Lines that
# may have a secret are left out.
set -u
public() {
    sed '/BEGIN.*PRIVATE KEY/,/END.*PRIVATE KEY/d' | grep -viE 'passw|passphrase|secret|token|credential|authorization'
}
last() {
    public | tail -n "$1" | tail -c "$2"
}
echo '-- cloud-init'
if command -v cloud-init >/dev/null 2>&1; then
    cloud-init status --long 2>&1 </dev/null | last 12 600
else
    echo 'not installed'
fi
echo '-- memory'
sed -n '/^MemTotal\|^MemAvailable\|^SwapFree/p' /proc/meminfo 2>/dev/null
echo '-- disks'
df -Pk / /tmp 2>/dev/null | tail -c 400
echo '-- output of cloud-init'
if [ -r /var/log/cloud-init-output.log ]; then
    tail -n 40 /var/log/cloud-init-output.log | last 15 1000
else
    echo 'not readable'
fi
echo '-- journal'
if command -v journalctl >/dev/null 2>&1; then
    journalctl --boot --quiet --no-pager --priority warning --lines 40 --output short-iso 2>&1 </dev/null | last 20 1600
else
    dmesg 2>/dev/null | last 20 1600
fi
exit 0
