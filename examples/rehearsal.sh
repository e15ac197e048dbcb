#!/bin/sh
# The monthly rehearsal: simulated moves with faults, then messages of dr-ctl's own through the real brokers. Business
# queues are not touched. Ends 0 where all went well; the runs and their reports are the evidence.
set -u
dr-ctl rehearse --on twin --variations "${VARIATIONS:-20}" --seed "$(date +%Y%m)" || exit
dr-ctl rehearse --on canary --yes --reason "monthly rehearsal" || exit
dr-ctl runs verify || exit
dr-ctl validate --verbose # 10 or 22: a move is not ready today
