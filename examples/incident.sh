#!/bin/sh
# What an incident script does when a site may be lost: incident.sh SURVIVOR. Fails over within the limits of the settings
# and decides nothing else: it pages a person, with dr-ctl's summary, about a high or an uncertain loss.
# PAGE is the command that pages somebody, with a sentence as its argument.
set -u
survivor="$1"
page() { ${PAGE:-echo} "$1: $(summary)"; }
summary() { python3 -c 'import json, sys; print(json.load(sys.stdin)["summary"])' <failover.json; }

dr-ctl --quiet failover --to "$survivor" --yes --json >failover.json
code=$?
case $code in
  0 | 30) page "$survivor serves; data.bounds of failover.json says what may be lost" ;;
  10) page "nothing shows that the site is down: somebody has to look" ;;
  11) page "the loss is above the limit: the owner of that limit decides" ;;
  12) page "no failover: the site is alive" ;;
  13) page "another run holds the lock" ;;
  21 | 22 | 23) page "look at once, and type: dr-ctl status" ;;
  *) page "ended with $code" ;;
esac
exit "$code"
