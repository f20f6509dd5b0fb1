#!/bin/sh
# An agent in shell: agent.sh LAST writes its prompt to prompt.txt, and is done in attempt LAST.
set -eu
cat "$TRIOEVAL_PROMPT" >prompt.txt
echo "attempt $TRIOEVAL_ATTEMPT of $TRIOEVAL_CASE"
if [ "$TRIOEVAL_ATTEMPT" -lt "$1" ]; then
    echo "not yet" >/dev/stderr
    exit 1
fi
printf '{"output": "done at last", "tokens": {"total": 5}, "cost": 0.5}' >"$TRIOEVAL_REPORT"
: >"$TRIOEVAL_DONE"
