
# Makes sure that `java` on PATH is new enough, and installs it otherwise.
# Arguments: OPENJDK or CORRETTO; the major version; Corretto's repository and the key of its
# signatures, each empty for Amazon's own.
distribution=$1 major=$2 repository=$3 key=$4

# The major version of a binary; nothing when it is not Java. 1.8.0_392 is 8, 21.0.2 is 21.
major_of() {
    "$1" -version 2>&1 | sed -n 's/^[a-z]* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

new_enough() {
    found=$(major_of "$1")
    [ -n "$found" ] && [ "$found" -ge "$major" ]
}

# The Java on PATH, or one in the usual places, if it is new enough.
find_java() {
    java=$(command -v java) && new_enough "$java" && return
    for java in /usr/lib/jvm/*/bin/java /usr/lib/jvm/*/jre/bin/java /usr/java/*/bin/java \
        /usr/local/*/bin/java /opt/*/bin/java /opt/*/*/bin/java; do
        if [ -x "$java" ] && new_enough "$java"; then return; fi
    done
    return 1
}

# Puts a Java on PATH, before any other one there.
link() {
    now=$(command -v java) || now=
    [ "$now" != "$java" ] || return 0
    target=
    old_ifs=$IFS
    IFS=:
    for dir in $PATH; do
        case "$dir" in
        /usr/local/bin | /usr/bin | "${now%/*}") [ -n "$target" ] || target=$dir ;;
        esac
    done
    IFS=$old_ifs
    [ -n "$target" ] || die "neither /usr/local/bin nor /usr/bin is on PATH: \`$java\` cannot be linked there"
    need_root
    if ! as_root mkdir -p "$target" || ! as_root ln -sf "$java" "$target/java"; then
        die "\`$java\` could not be linked into $target"
    fi
    say "linked $java into $target"
}

# Prints which Java commands get from now on, and fails when it is not the wanted one.
verify() {
    hash -r
    java=$(command -v java) || die "there is no \`java\` on PATH"
    new_enough "$java" || die "\`$java\` is Java ${found:-of no version}, not $major"
    say "java $found at $java"
}

fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 3 --max-time 120 "$1"
    else
        wget -qO- -T 120 "$1"
    fi
}

# Names of packages: version 8 is 1.8.0 everywhere but in Debian's own and Alpine's.
name_package() {
    dotted=$major
    [ "$major" != 8 ] || dotted=1.8.0
    case "$distribution:$manager" in
    OPENJDK:apt-get) package=openjdk-$major-jre-headless ;;
    OPENJDK:zypper) package=java-$(say "$dotted" | tr . _)-openjdk-headless ;;
    OPENJDK:apk) package=openjdk$major-jre-headless ;;
    OPENJDK:*) package=java-$dotted-openjdk-headless ;;
    CORRETTO:apt-get) package=java-$dotted-amazon-corretto-jdk ;;
    CORRETTO:apk) package=amazon-corretto-$major ;;
    *) package=java-$dotted-amazon-corretto-devel ;;
    esac
}

# Writes a file that belongs to root; its text comes on standard input.
write_file() {
    # shellcheck disable=SC2016 # the inner shell fills it in
    if ! as_root mkdir -p "${1%/*}" || ! as_root sh -c 'umask 022; cat >"$1"' sh "$1"; then
        die "\`$1\` could not be written"
    fi
}

fetch_key() {
    text=$(fetch "$key") || die "the repository's key could not be read from $key"
    say "$text" | write_file "$1" || exit 1
}

add_corretto() {
    case "$manager" in
    apt-get)
        command -v curl >/dev/null 2>&1 || command -v wget >/dev/null 2>&1 \
            || { apt update && install ca-certificates curl; } || die "curl could not be installed"
        : "${repository:=https://apt.corretto.aws}"
        : "${key:=$repository/corretto.key}"
        keyring=/etc/apt/keyrings/corretto.asc
        fetch_key "$keyring"
        say "deb [signed-by=$keyring] $repository stable main" \
            | write_file /etc/apt/sources.list.d/corretto.list || exit 1
        ;;
    dnf | yum | zypper)
        : "${repository:=https://yum.corretto.aws}"
        : "${key:=$repository/corretto.key}"
        place=/etc/yum.repos.d
        [ "$manager" != zypper ] || place=/etc/zypp/repos.d
        # shellcheck disable=SC2016 # the package manager fills in its architecture
        printf '[AmazonCorretto]\nname=Amazon Corretto\nbaseurl=%s/$basearch\nenabled=1\ngpgcheck=1\ngpgkey=%s\n' \
            "$repository" "$key" | write_file "$place/corretto.repo" || exit 1
        ;;
    apk)
        : "${repository:=https://apk.corretto.aws}"
        : "${key:=$repository/amazoncorretto.rsa.pub}"
        fetch_key "/etc/apk/keys/${key##*/}"
        grep -qxF "$repository" /etc/apk/repositories 2>/dev/null \
            || say "$repository" | as_root sh -c 'cat >>/etc/apk/repositories' \
            || die "/etc/apk/repositories could not be written"
        ;;
    esac
}

if find_java; then
    link
    verify
    exit 0
fi
need_root
find_manager
clean || die "$manager could not be cleaned"
[ "$distribution" != CORRETTO ] || add_corretto
refresh || die "$manager could not refresh its list of packages"
name_package
install "$package" || die "$manager could not install $package"
[ "$manager" != apt-get ] || apt autoremove || die "apt-get could not remove packages that are not needed"
clean || die "$manager could not be cleaned"
hash -r
find_java || die "$package was installed, but there is no Java $major or newer"
link
verify
