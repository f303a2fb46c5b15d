#!/bin/sh
# Shared by the scripts that install software: root's rights, and the guest's package manager.
set -u
export LC_ALL=C

say() { printf '%s\n' "$*"; }

die() {
    say "$*" >&2
    exit 1
}

# Reports missing rights at the start, rather than in the middle.
need_root() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null 2>&1 \
        || die "user \`$(id -un)\` is not root and the guest has no sudo: packages cannot be installed"
    sudo -n true 2>/dev/null \
        || die "user \`$(id -un)\` has no passwordless sudo: packages cannot be installed"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then env "$@"; else sudo -n env "$@"; fi
}

# The package manager: apt, dnf, zypper or apk; yum counts as dnf.
find_manager() {
    manager=
    for manager in apt-get dnf yum zypper apk; do
        if command -v "$manager" >/dev/null 2>&1; then return; fi
    done
    die "no package manager found: the guest has none of apt-get, dnf, yum, zypper and apk"
}

# Another apt may still run after cloud-init, such as unattended upgrades.
apt() {
    as_root LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# apt-get waits for dpkg's lock, but not for the lock of the package lists.
update_lists() {
    for pause in 1 5 10 20 40 80 0; do
        said=$(apt update 2>&1) && return
        case "$said" in
        *"Could not get lock"*) sleep "$pause" ;;
        *) break ;;
        esac
    done
    say "$said" >&2
    return 1
}

refresh() {
    case "$manager" in
    apt-get) update_lists ;;
    dnf | yum) as_root "$manager" -q -y makecache ;;
    zypper) as_root zypper --non-interactive --gpg-auto-import-keys refresh ;;
    apk) as_root apk update ;;
    esac
}

install() {
    case "$manager" in
    apt-get) apt install --no-install-recommends "$@" ;;
    dnf | yum) as_root "$manager" -y install "$@" ;;
    zypper) as_root zypper --non-interactive install --no-recommends "$@" ;;
    apk) as_root apk add "$@" ;;
    esac
}

# Frees the disk space of downloads.
clean() {
    case "$manager" in
    apt-get) apt clean ;;
    dnf | yum) as_root "$manager" -q clean all ;;
    zypper) as_root zypper --non-interactive clean --all ;;
    apk) as_root sh -c 'rm -rf /var/cache/apk/*' ;;
    esac
}
