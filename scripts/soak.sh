#!/bin/bash
# Runs `make soak`: the randomised tests at length, with other seeds than `make test`. Usage:
# soak.sh TIMES [MINUTES [SEED]]
#
# TIMES is how many times as much as usual; the comparison of rules beside Open vSwitch sends 50,000
# packets for each. No step takes longer than MINUTES (15, and one and a half more for each of
# TIMES); a longer one fails. All steps run; the exit status says whether any failed.
set -uo pipefail
cd "$(dirname "$0")/.."
times=${1:-20}
minutes=${2:-$((15 + times * 3 / 2))}
seed=${3:-$((1000 + RANDOM))}
cargo=./scripts/cargo
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export OXVS_SOAK=$times OXVS_SEED=$seed ORACLE_SEED=$seed PROPTEST_CASES=$((256 * times))
logs=target/soak
mkdir -p $logs
failed=

# step NAME COMMAND...: its output goes to a file; lines about progress are shown.
step() {
    local name=$1 begin=$SECONDS status=0
    shift
    echo "== $name"
    timeout --kill-after=10 "$((60 * minutes))" "$@" 2>&1 </dev/null | tee "$logs/$name.log" |
        grep --line-buffered -E '^[0-9]+ s: |^[0-9]+ packets, |compared, |^skipped: |^test result: |shows it|panicked at' |
        grep --line-buffered -v ' 0 passed; 0 failed'
    status=${PIPESTATUS[0]}
    [ "$status" -eq 0 ] || failed="$failed $name"
    [ "$status" -ne 124 ] || echo "not done after $minutes minutes"
    echo "== $name: status $status after $((SECONDS - begin)) s"
}

echo "soak: $times times, seed $seed, at most $minutes minutes a step, logs in $logs"
# Always the whole workspace: another set of crates has other features and compiles anew.
run() { step "$1" $cargo test --release --locked --quiet --workspace "${@:2}"; }
properties=()
for test in agent disciplines grammar hfsc keys messages models police port properties rules suite tracker; do
    properties+=(--test $test)
done

$cargo test --release --locked --quiet --workspace --no-run || exit 1
run rules --test e2e -- --nocapture rules_differential::
run configurations --test e2e -- --nocapture --exact differential::packets_come_out_where_open_vswitch_sends_them
run traces --test traces -- --nocapture
run switching --test oracle -- --nocapture
run caching --test caching -- --nocapture
run hostile-input --test corpus
run reference --lib -- --nocapture slowpath::reference::
run properties --lib "${properties[@]}" -- --skip slowpath::reference::

if [ -n "$failed" ]; then
    echo "soak: failed:$failed; seed $seed"
    exit 1
fi
echo "soak: all passed; seed $seed, $SECONDS s"
