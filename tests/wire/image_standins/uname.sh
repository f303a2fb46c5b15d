#!/bin/sh
# A machine of the kind that the test names.
[ "$*" = -m ] || exit 1
printf '%s\n' "$MACHINE"
