
# Removes from a guest what no clone of it may have: its identity, what cloud-init did in it, the key
# that let drover in, and what its build left. Runs as the last command before the shutdown.
need_root
find_manager
clean || say "warning: $manager could not clean its caches"
home=$HOME
if command -v cloud-init >/dev/null 2>&1; then
    as_root cloud-init clean --logs || die "cloud-init could not be cleaned"
fi
# shellcheck disable=SC2016
as_root sh -c '
    rm -f /etc/ssh/ssh_host_*
    if [ -e /etc/machine-id ]; then : >/etc/machine-id; fi
    rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
    rm -f /etc/udev/rules.d/70-persistent-net.rules
    rm -f /etc/netplan/50-cloud-init.yaml /etc/network/interfaces.d/50-cloud-init
    # What the installer of Ubuntu left, by which clones would not read their own cloud-init data.
    rm -f /etc/netplan/00-installer-config.yaml /etc/cloud/cloud.cfg.d/99-installer.cfg
    rm -f /etc/cloud/cloud.cfg.d/90-installer-network.cfg
    rm -f /etc/cloud/cloud.cfg.d/subiquity-disable-cloudinit-networking.cfg
    rm -f /var/lib/dhcp/*.leases /var/lib/NetworkManager/*.lease
    rm -rf /var/log/journal/* /tmp/drover-* /root/.ssh/authorized_keys /root/.bash_history
    find /var/log -type f -exec sh -c ": >\"\$1\"" clean {} \; 2>/dev/null
    rm -f "$1/.ssh/authorized_keys" "$1/.bash_history"
    sync
' clean "$home" || die "what no clone may have could not be removed"
