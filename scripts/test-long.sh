#!/bin/bash
# Runs `make test-long`: every check of the project, about an hour. All steps run; the exit status
# says whether any failed. usage: test-long.sh   (root; OXVS=target/release/oxvs)
set -u
cd "$(dirname "$0")/.."
export OXVS=${OXVS:-target/release/oxvs}
failed=

# step NAME COMMAND...: notes a failure and goes on.
step() {
    local name=$1 begin=$SECONDS status=0
    shift
    echo "== $name"
    "$@" || status=$?
    [ $status -eq 0 ] || failed="$failed $name"
    echo "== $name: status $status after $((SECONDS - begin)) s"
}

# What a guest with Debian's kernel records is what is committed.
recordings() {
    ./scripts/qdiscs.sh && git diff --stat --exit-code -- crates/qos/tests/kernel/recorded
}

step tests env OXVS_TESTS=long ./scripts/test.sh
step client-libraries ./scripts/client-libraries.sh
step systemd ./scripts/systemd.sh 5
step restarts ./scripts/bench/restarts.sh 100
step recordings recordings
step bonding ./scripts/bonding.sh
step soak ./scripts/soak.sh 2
[ -z "$failed" ] || echo "test-long: failed:$failed"
[ -z "$failed" ] && echo "test-long: all passed, $SECONDS s"
[ -z "$failed" ]
