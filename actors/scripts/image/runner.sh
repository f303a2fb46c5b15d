
# Installs the runner of a CI system where drover looks for it. Arguments: the system, the version, a
# URL in place of the usual one or blank, and the SHA-256 of the download or blank.
system=$1 version=$2 url=$3 sum=$4
need_root
find_manager
case "$(uname -m)" in
x86_64) arch=amd64 short=x64 ;;
aarch64) arch=arm64 short=arm64 ;;
*) die "no runner is known for $(uname -m)" ;;
esac
work=$(mktemp -d) || die "no temporary directory"
trap 'rm -rf "$work"' EXIT

# Downloads to $work/file from the URL, or the usual one, and checks it.
fetch() {
    if ! command -v curl >/dev/null 2>&1; then
        { refresh && install curl ca-certificates; } || die "$manager could not install curl"
    fi
    curl -fsSL --retry 3 -o "$work/file" "${url:-$1}" || die "${url:-$1} could not be downloaded"
    [ -z "$sum" ] && return
    printf '%s  %s\n' "$sum" "$work/file" | sha256sum -c - >/dev/null \
        || die "${url:-$1} has another checksum than the recipe says"
}

# Replaces the version `latest` by that of the newest release, to which this address leads. A forge
# that leads nowhere ends with the address itself.
newest() {
    [ "$version" = latest ] && [ -z "$url" ] || return 0
    if ! command -v curl >/dev/null 2>&1; then
        { refresh && install curl ca-certificates; } || die "$manager could not install curl"
    fi
    at=$(curl -fsSL --retry 3 -o /dev/null -w '%{url_effective}' "$1") || die "$1 could not be read"
    version=${at##*/}
    version=${version#v}
    case "$version" in
    [0-9]*.[0-9]*) say "the newest $system runner is $version" ;;
    *) die "$1 does not name the newest version: write one into the recipe" ;;
    esac
}

program() {
    as_root install -m 0755 "$1" "/usr/local/bin/$2" || die "/usr/local/bin/$2 could not be written"
}

case "$system" in
github)
    newest https://github.com/actions/runner/releases/latest
    base=https://github.com/actions/runner/releases/download
    fetch "$base/v$version/actions-runner-linux-$short-$version.tar.gz"
    as_root mkdir -p /opt/actions-runner
    as_root tar -xzf "$work/file" -C /opt/actions-runner || die "the archive could not be unpacked"
    as_root chown -R "$(id -un):" /opt/actions-runner
    as_root /opt/actions-runner/bin/installdependencies.sh >/dev/null \
        || die "the runner's dependencies could not be installed"
    # For a registration token: URL, token, and perhaps labels and a name. The runner takes one job
    # and ends.
    # shellcheck disable=SC2016,SC1003
    printf '%s\n' '#!/bin/sh' 'cd /opt/actions-runner || exit 1' \
        './config.sh --unattended --ephemeral --disableupdate --url "$1" --token "$2" \' \
        '    ${3:+--labels "$3"} --name "${4:-$(hostname)}" || exit 1' \
        'exec ./run.sh' >"$work/run-once.sh"
    as_root install -m 0755 "$work/run-once.sh" /opt/actions-runner/run-once.sh
    ;;
gitea)
    newest https://gitea.com/gitea/runner/releases/latest
    # The program is called gitea-runner from 1.0.0 on.
    case "$version" in
    0.*) name=act_runner ;;
    *) name=gitea-runner ;;
    esac
    fetch "https://dl.gitea.com/$name/$version/$name-$version-linux-$arch"
    program "$work/file" "$name"
    ;;
forgejo)
    newest https://code.forgejo.org/forgejo/runner/releases/latest
    base=https://code.forgejo.org/forgejo/runner/releases/download
    fetch "$base/v$version/forgejo-runner-$version-linux-$arch"
    program "$work/file" forgejo-runner
    ;;
gitlab)
    base=https://s3.dualstack.us-east-1.amazonaws.com/gitlab-runner-downloads
    [ "$version" = latest ] || version=v$version
    fetch "$base/$version/binaries/gitlab-runner-linux-$arch"
    program "$work/file" gitlab-runner
    ;;
woodpecker)
    newest https://github.com/woodpecker-ci/woodpecker/releases/latest
    base=https://github.com/woodpecker-ci/woodpecker/releases/download
    fetch "$base/v$version/woodpecker-agent_linux_$arch.tar.gz"
    tar -xzf "$work/file" -C "$work" woodpecker-agent || die "the archive could not be unpacked"
    program "$work/woodpecker-agent" woodpecker-agent
    ;;
buildbot)
    { refresh && install python3-venv python3-pip; } || die "$manager could not install Python"
    as_root python3 -m venv /opt/buildbot || die "/opt/buildbot could not be made"
    worker="buildbot-worker==$version"
    [ "$version" = latest ] && worker=buildbot-worker
    as_root /opt/buildbot/bin/pip install -q "$worker" \
        || die "buildbot-worker $version could not be installed"
    as_root ln -sf /opt/buildbot/bin/buildbot-worker /usr/local/bin/buildbot-worker
    ;;
*) die "no runner of \`$system\` is known" ;;
esac
