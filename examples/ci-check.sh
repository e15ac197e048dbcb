#!/bin/sh
# Checks dr-ctl's settings in a CI, before they are merged: ci-check.sh [FILE], by default dr-ctl.yaml.
# Contacts no broker and needs no password. Ends 0 where all is well, 2 where the file is wrong, 10 where a command, a
# certificate or a runbook that it names is missing or wrong, 30 where there are warnings.
set -eu
exec dr-ctl --config "${1:-dr-ctl.yaml}" validate --offline --verbose --warn-exit
