#!/bin/sh
# Stand-in for id: a user who logged in as root is root.
if [ "$*" = -u ] && [ "$USER" = root ]; then
    echo 0
    exit 0
fi
exec /usr/bin/id "$@"
