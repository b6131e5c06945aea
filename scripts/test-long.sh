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

# What Debian's kernel does in a guest today is what ours do. The committed recordings stay: the
# times of others differ with the recording program's own speed.
recordings() {
    local status=0
    ./scripts/qdiscs.sh && ./scripts/cargo test --quiet --locked -p qos --test kernel || status=$?
    git checkout --quiet -- crates/qos/tests/kernel/recorded
    return $status
}

step tests env OXVS_TESTS=long ./scripts/test.sh
# Every case of OVN with a chassis of Open vSwitch beside one of ours.
for kinds in ours,debian debian,ours; do
    step "ovn-$kinds" env OXVS_TESTS=long E2E_OVN=$kinds ./scripts/cargo test --quiet --locked -p oxvs --test e2e ovn::
done
step client-libraries ./scripts/client-libraries.sh
step systemd ./scripts/systemd.sh 5
step restarts ./scripts/restarts.sh 100
step recordings recordings
step bonding ./scripts/bonding.sh
step tunnels ./scripts/tunnels.sh
step ipsec ./scripts/ipsec.sh
step offload ./scripts/offload.sh
step soak ./scripts/soak.sh 2
[ -z "$failed" ] || echo "test-long: failed:$failed"
[ -z "$failed" ] && echo "test-long: all passed, $SECONDS s"
[ -z "$failed" ]
