#!/bin/sh
# Stand-in for ip: one network card with one address.
. "${GUEST_ETC:-/etc}/guest.env"
object= brief=
for word in "$@"; do
    case "$word" in
    -o) brief=1 ;;
    -*) ;;
    *)
        object=$word
        break
        ;;
    esac
done
case "$brief$object" in
r | ro*)
    echo "127.0.0.0/8 dev eth0 scope link src $address"
    ;;
1*)
    echo "1: lo    inet 127.0.0.1/8 scope host lo"
    echo "2: eth0    inet $address/8 scope global eth0"
    ;;
*)
    echo "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN"
    echo "    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00"
    echo "    inet 127.0.0.1/8 scope host lo"
    echo "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP"
    echo "    link/ether $mac brd ff:ff:ff:ff:ff:ff"
    echo "    inet $address/8 scope global eth0"
    ;;
esac
