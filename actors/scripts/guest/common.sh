#!/bin/sh
# What the scripts that install have in common: root's rights, and the guest's own package manager.
set -u
export LC_ALL=C

say() { printf '%s\n' "$*"; }

die() {
    say "$*" >&2
    exit 1
}

# Says at the start who lacks rights, rather than in the middle.
need_root() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null 2>&1 \
        || die "user \`$(id -un)\` is not root and the guest has no sudo: packages can not be installed"
    sudo -n true 2>/dev/null \
        || die "user \`$(id -un)\` has no passwordless sudo: packages can not be installed"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then env "$@"; else sudo -n env "$@"; fi
}

# The package manager: apt, dnf, zypper or apk; yum is taken for dnf.
find_manager() {
    manager=
    for manager in apt-get dnf yum zypper apk; do
        if command -v "$manager" >/dev/null 2>&1; then return; fi
    done
    die "the guest has none of apt-get, dnf, yum, zypper and apk"
}

# Somebody else's apt may still be at work after cloud-init, such as unattended upgrades.
apt() {
    as_root LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# The lock of the lists, unlike dpkg's, is not waited for by apt-get itself.
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

# Frees what downloads take on the disk.
clean() {
    case "$manager" in
    apt-get) apt clean ;;
    dnf | yum) as_root "$manager" -q clean all ;;
    zypper) as_root zypper --non-interactive clean --all ;;
    apk) as_root sh -c 'rm -rf /var/cache/apk/*' ;;
    esac
}
