#!/bin/sh
# Configures the interface and prints what udhcpc was given.
case "$1" in
bound|renew)
	ip addr replace "$ip/$mask" dev "$interface"
	echo "$1 ip=$ip/$mask router=$router dns=$dns domain=$domain boot=$boot_file siaddr=$siaddr lease=$lease"
	;;
nak) echo "nak $message" ;;
esac
