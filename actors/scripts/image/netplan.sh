
# Gives clones the network also where their card has another name than here, or cloud-init writes
# nothing: DHCP on every card whose name begins with en, or with eth where the kernel numbers cards. What
# cloud-init writes for a clone comes first, since systemd-networkd takes the first file that matches.
need_root
command -v netplan >/dev/null 2>&1 || exit 0
as_root sh -c '
    umask 077
    printf "%s\n" \
        "network:" \
        "  version: 2" \
        "  ethernets:" \
        "    zz-drover:" \
        "      match:" \
        "        name: \"en*\"" \
        "      dhcp4: true" \
        "    zz-drover-eth:" \
        "      match:" \
        "        name: \"eth*\"" \
        "      dhcp4: true" >/etc/netplan/99-drover.yaml
' || die "/etc/netplan/99-drover.yaml could not be written"
