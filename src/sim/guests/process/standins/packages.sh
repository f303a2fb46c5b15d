#!/bin/sh
# apt-get, apt, dnf, yum, zypper, apk: note what was asked, and succeed for what is known.
manager=${0##*/}
log=${GUEST_VAR:-/var}/log/guest-packages.log
verb=
for word in "$@"; do
    case "$word" in
    -*) continue ;;
    esac
    if [ -z "$verb" ]; then
        verb=$word
        case "$verb" in
        update | upgrade | dist-upgrade | full-upgrade | makecache | check-update | refresh) ;;
        clean | autoclean | autoremove | cache | install | add | reinstall) ;;
        remove | purge | erase | del) ;;
        *)
            echo "E: Invalid operation $verb" >&2
            exit 100
            ;;
        esac
        continue
    fi
    case "$verb" in
    install | add | reinstall) ;;
    *) continue ;;
    esac
    case "${word%%=*}" in
    openjdk*-jre* | openjdk*-jdk* | java-*-openjdk* | java-*-amazon-corretto* | default-j*) ;;
    build-essential | base-devel | gcc | g++ | make | cmake | git | curl | wget | jq | unzip) ;;
    zip | tar | xz-utils | gzip | rsync | gnupg | ca-certificates | lsb-release | sudo) ;;
    bash | vim | less | htop | procps | iproute2 | net-tools | docker.io | docker | podman) ;;
    python3* | nodejs | npm | ruby | golang* | cloud-init | qemu-guest-agent | openssh*) ;;
    apt-transport-https | software-properties-common | fontconfig | bubblewrap) ;;
    *)
        echo "E: Unable to locate package $word" >&2
        exit 100
        ;;
    esac
    echo "Setting up $word ..."
done
[ -n "$verb" ] || exit 1
echo "$manager $*" >>"$log"
