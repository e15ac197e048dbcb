#!/bin/sh
# A workload of `kind: command`: starts, stops and checks a program at one site. `status` ends with 0 where the program
# runs and with 3 where it does not. Put your own command in place of the unit's.
set -eu
unit="importer@$2.service"
case "$1" in
  start) systemctl start "$unit" ;;
  stop) systemctl stop "$unit" ;; # it ends when the unit has stopped
  status) systemctl is-active --quiet "$unit" || exit 3 ;;
  *) echo "usage: importer.sh start|stop|status SITE" >&2; exit 2 ;;
esac
