#!/bin/sh
# Makes the working directory and checks that the login user can write into it. Where drover
# installs no Java it looks for one, and only warns when there is none.
# Arguments: the directory; the Java binary, or nothing to skip that check.
set -u
dir=$1 java=$2

# Makes a missing directory, with root's help where the user may not.
make() {
    mkdir -p -- "$dir" 2>/dev/null && return
    [ ! -e "$dir" ] || return 1
    sudo -n mkdir -p -- "$dir" && sudo -n chown "$(id -u):$(id -g)" -- "$dir"
}

if ! make; then
    echo "user \`$(id -un)\` cannot make the directory \`$dir\`" >&2
    exit 1
fi
probe=$dir/.drover-probe.$$
if ! (: >"$probe") 2>/dev/null; then
    echo "user \`$(id -un)\` cannot write into \`$dir\`" >&2
    exit 1
fi
rm -f -- "$probe"
if [ -n "$java" ] && ! command -v "$java" >/dev/null 2>&1 && ! command -v java >/dev/null 2>&1; then
    echo "warning: there is no Java, neither at \`$java\` nor on PATH"
fi
