set -eu
cd "$(dirname "$0")"
getent passwd drover >/dev/null || useradd --system --home-dir /var/lib/drover --shell /usr/sbin/nologin drover
# A program that does not run here must not take the place of one that does.
if [ -e program ] && ! ./program --version >/dev/null; then
    echo "the program does not run here: build it for this system, or make the guest of another template" >&2
    exit 75
fi
install -d -m 750 -o drover -g drover /etc/drover
