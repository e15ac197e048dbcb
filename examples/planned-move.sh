#!/bin/sh
# A planned move with the documents for a change ticket: planned-move.sh SITE CHANGE, as in planned-move.sh paris CHG-4711.
# Leaves CHANGE.plan.json, CHANGE.json (the end, as a document) and CHANGE.tar.gz (the whole run) in this folder.
# Ends as `dr-ctl swapover` does; nothing was changed where it ends with less than 20.
set -u
site="$1" change="$2"

dr-ctl validate --for swapover --to "$site" || exit # 10: not now, and why; 22: a site did not answer
dr-ctl --quiet plan swapover --to "$site" --out "$change.plan.json" >"$change.plan.txt" || exit
# If `approvals:` of the settings requires it, the signers now type: dr-ctl plan approve CHANGE.plan.json

dr-ctl swapover --to "$site" --plan "$change.plan.json" --yes --reason "$change" --json >"$change.json"
code=$?
case $code in
  0 | 30) echo "$site serves" ;;
  20 | 24) echo "undone: the service is where it was; $change.json says why" ;;
  1? | 2 | 3) echo "refused, nothing was changed; $change.json says why" ;;
  *) echo "look at it now:" && dr-ctl status ;;
esac
dr-ctl runs bundle --out "$change.tar.gz" >/dev/null 2>&1 || echo "there is no run to bundle"
exit "$code"
