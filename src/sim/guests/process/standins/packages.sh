#!/bin/sh
# Stand-in for apt-get, apt, dnf, yum, zypper and apk: it records each call, and installs known
# packages, which are those of the distribution and those in the lists of added repositories. Only
# Java is really installed, as a stand-in below /opt.
manager=${0##*/}
case "$manager" in apt) family=apt-get ;; yum) family=dnf ;; *) family=$manager ;; esac
var=${GUEST_VAR:-/var} etc=${GUEST_ETC:-/etc} opt=${GUEST_OPT:-/opt}
traits=
[ ! -r "$etc/guest.env" ] || . "$etc/guest.env"
lists=$var/lib/guest-packages
mkdir -p "$lists"

fail() {
    code=$1
    shift
    printf '%s\n' "$@" >&2
    exit "$code"
}

fetch() { curl -fsS --max-time 20 "$1" 2>/dev/null || wget -qO- -T 20 "$1" 2>/dev/null; }

# An index counts as signed when it contains the text of the key.
signed() { [ -n "$2" ] && printf '%s\n' "$1" | grep -qxF "Signed-By: $2"; }

refresh_apt() {
    case " $traits " in
    *" lists-locked "*)
        # Another update holds the lock at the first try only.
        [ -e "$lists/was-locked" ] || {
            : >"$lists/was-locked"
            fail 100 "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)"
        }
        ;;
    esac
    : >"$lists/apt-get"
    for file in "$etc"/apt/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        url=$(sed -n 's/^deb \[signed-by=[^]]*\] \([^ ]*\) stable main$/\1/p' "$file")
        key=$(sed -n 's/^deb \[signed-by=\([^]]*\)\].*/\1/p' "$file")
        release=$(fetch "$url/dists/stable/InRelease") \
            || fail 100 "E: The repository '$url stable Release' does not have a Release file."
        signed "$release" "$(cat "$etc/${key#/etc/}" 2>/dev/null)" \
            || fail 100 "E: The repository '$url stable InRelease' is not signed."
        fetch "$url/dists/stable/main/binary-amd64/Packages" | sed -n 's/^Package: //p' \
            >>"$lists/apt-get"
    done
}

refresh_rpm() {
    : >"$lists/$family"
    for file in "$etc/$1"/*.repo; do
        [ -r "$file" ] || continue
        base=$(sed -n 's/^baseurl=//p' "$file" | sed "s/\$basearch/$(uname -m)/")
        key=$(sed -n 's/^gpgkey=//p' "$file")
        index=$(fetch "$base/repodata/repomd.xml") \
            || fail 1 "Error: Failed to download metadata for repo 'AmazonCorretto'"
        signed "$index" "$(fetch "$key")" || fail 1 "Error: repomd.xml GPG signature verification error"
        printf '%s\n' "$index" | sed -n 's/^Package: //p' >>"$lists/$family"
    done
}

refresh_apk() {
    : >"$lists/apk"
    [ -r "$etc/apk/repositories" ] || return 0
    while read -r url; do
        index=$(fetch "$url/$(uname -m)/APKINDEX.tar.gz") \
            || fail 1 "WARNING: fetching $url: temporary error (try again later)"
        known=
        for key in "$etc"/apk/keys/*.pub; do
            signed "$index" "$(cat "$key" 2>/dev/null)" && known=yes
        done
        [ -n "$known" ] || fail 1 "WARNING: updating $url: UNTRUSTED signature"
        printf '%s\n' "$index" | sed -n 's/^Package: //p' >>"$lists/apk"
    done <"$etc/apk/repositories"
}

refresh() {
    case "$family" in
    apt-get) refresh_apt ;;
    dnf) refresh_rpm yum.repos.d ;;
    zypper) refresh_rpm zypp/repos.d ;;
    apk) refresh_apk ;;
    esac
}

missing() {
    case "$family" in
    apt-get) fail 100 "E: Unable to locate package $1" ;;
    dnf) fail 1 "No match for argument: $1" "Error: Unable to find a match: $1" ;;
    zypper) fail 104 "'$1' not found in package names. Trying capabilities." "No provider of '$1' found." ;;
    apk) fail 1 "ERROR: unable to select packages:" "  $1 (no such package):" "    required by: world[$1]" ;;
    esac
}

# The Java packages of the distribution, by their names there.
has_java() {
    for major in 8 11 17 21 25; do
        dotted=$major
        [ "$major" != 8 ] || dotted=1.8.0
        case "$family:$1" in
        apt-get:openjdk-$major-j*) return ;;
        zypper:java-$(echo "$dotted" | tr . _)-openjdk*) return ;;
        dnf:java-$dotted-openjdk*) return ;;
        apk:openjdk$major-j*) return ;;
        esac
    done
    return 1
}

# A fresh image has no package lists, and finds no package without them.
listed() {
    case " $traits " in
    *" apt "*) [ -e "$lists/apt-get" ] ;;
    esac
}

install_java() {
    major=$(echo "$1" | sed 's/1[._]8[._]0/8/; s/[^0-9]*\([0-9]*\).*/\1/')
    home=$opt/jvm/$1
    version=$major.0.2
    [ "$major" != 8 ] || version=1.8.0_392
    mkdir -p "$home/bin" "$opt/bin"
    cat >"$home/bin/java" <<END
#!/bin/sh
echo 'openjdk version "$version" 2026-01-20' >&2
END
    chmod 755 "$home/bin/java"
    # As update-alternatives does: a file put there by hand stays.
    [ -e "$opt/bin/java" ] && [ ! -L "$opt/bin/java" ] || ln -sf "$home/bin/java" "$opt/bin/java"
}

install() {
    name=${1%%=*}
    if [ "$name" != "${name#*amazon-corretto}" ]; then
        grep -qxF "$name" "$lists/$family" 2>/dev/null || missing "$1"
        install_java "$name"
    else
        case "$name" in
        *openjdk*)
            { listed && has_java "$name"; } || missing "$1"
            install_java "$name"
            ;;
        default-j* | build-essential | base-devel | gcc | g++ | make | cmake | git | curl | wget | jq) ;;
        unzip | zip | tar | xz-utils | gzip | rsync | gnupg | ca-certificates | lsb-release | sudo) ;;
        bash | vim | less | htop | procps | iproute2 | net-tools | docker.io | docker | podman) ;;
        python3* | nodejs | npm | ruby | golang* | cloud-init | qemu-guest-agent | openssh*) ;;
        apt-transport-https | software-properties-common | fontconfig | bubblewrap) ;;
        *) missing "$1" ;;
        esac
    fi
    echo "Setting up $1 ..."
}

verb='' packages=''
for word in "$@"; do
    case "$word" in
    -o | -t)
        continue
        ;;
    -* | *::*=*) continue ;;
    esac
    if [ -z "$verb" ]; then
        verb=$word
    else
        packages="$packages $word"
    fi
done
[ -n "$verb" ] || exit 1
echo "$manager $*" >>"$var/log/guest-packages.log"
case "$verb" in
update | makecache | check-update | refresh) refresh ;;
install | add | reinstall) for package in $packages; do install "$package"; done ;;
upgrade | dist-upgrade | full-upgrade | clean | autoclean | autoremove | cache) ;;
remove | purge | erase | del) ;;
*) fail 100 "E: Invalid operation $verb" ;;
esac
