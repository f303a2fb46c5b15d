#!/bin/sh
# `python3 -m venv FOLDER`, whose pip installs buildbot-worker of any version and nothing else.
set -u
[ "$1 $2 $#" = "-m venv 3" ] || exit 2
mkdir -p "$3/bin" || exit 1
cat >"$3/bin/pip" <<'PIP'
#!/bin/sh
[ "$1 $2 $#" = "install -q 3" ] || exit 2
case "$3" in
buildbot-worker | buildbot-worker==[0-9]*.[0-9]*) ;;
*) echo "ERROR: No matching distribution found for $3" >&2 && exit 1 ;;
esac
printf '#!/bin/sh\necho %s\n' "$3" >"${0%/*}/buildbot-worker" && chmod 755 "${0%/*}/buildbot-worker"
PIP
chmod 755 "$3/bin/pip"
