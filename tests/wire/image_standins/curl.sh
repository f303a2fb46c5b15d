#!/bin/sh
# curl with the options of the scripts and no other. /web/table has a line for each URL: the URL, then
# `file` and a file of /web, or `leads` and the URL that it leads to. /web/asked has the URLs that were
# asked for.
set -u
out='' format='' url='' fails=0
while [ $# -gt 0 ]; do
    case "$1" in
    -fsSL) fails=1 ;;
    --retry)
        shift
        case "$1" in *[!0-9]* | '') echo "curl: expected a positive numerical parameter" >&2 && exit 2 ;; esac
        ;;
    -o) shift && out=$1 ;;
    -w) shift && format=$1 ;;
    -*) echo "curl: option $1: is unknown" >&2 && exit 2 ;;
    *) [ -z "$url" ] || exit 2 && url=$1 ;;
    esac
    shift
done
[ -n "$url" ] && [ -n "$out" ] && [ "$fails" = 1 ] || exit 2
printf '%s\n' "$url" >>/web/asked
while :; do
    found='' next=''
    while read -r from does what; do
        [ "$from" = "$url" ] || continue
        case "$does" in
        file) found=$what ;;
        leads) next=$what ;;
        esac
    done </web/table
    [ -n "$next" ] || break
    url=$next
done
if [ -z "$found" ]; then
    echo "curl: (22) The requested URL returned error: 404" >&2
    exit 22
fi
cat "/web/$found" >"$out" || exit 23
case "$format" in
'') ;;
'%{url_effective}') printf '%s' "$url" ;;
*) exit 2 ;;
esac
