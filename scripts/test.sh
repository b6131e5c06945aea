#!/bin/bash
# Runs `make test`; with OXVS_TESTS=fast, without the tests that need root; with OXVS_TESTS=long,
# also those that take minutes. Stops at the first failed step; ends with the test runner's own
# closing lines.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=./scripts/cargo
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# The same cases on every run; `make soak` tries others, and more.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
# Most tests with network namespaces wait more than they compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}

step() {
    echo "== $*"
    "$@"
}

step $cargo fmt --all --check
# Warnings are errors, except those of a newer toolchain than ours.
ours=$(cut -d. -f1,2 scripts/toolchain)
theirs=$($cargo --version | cut -d' ' -f2 | cut -d. -f1,2)
deny='-D warnings'
if [ "$ours" != "$theirs" ] && [ "$(printf '%s\n%s\n' "$ours" "$theirs" | sort -V | tail -n1)" = "$theirs" ]; then
    echo "cargo $theirs is newer than $ours: its warnings are shown, and no errors"
    deny=
fi
# shellcheck disable=SC2086 # a list of words
step $cargo clippy --quiet --locked --workspace --all-targets -- $deny
step $cargo xtask tidy
[ "${OXVS_TESTS:-}" = fast ] || step $cargo xtask instructions

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step $cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log" | grep -v '^$\|^running 0 tests\|^test .* \.\.\. ok$' ||
    status=$?
echo "== closing lines"
grep -E '^(skipped: |test .*FAILED$|test result: )' "$log" | grep -v ' 0 passed; 0 failed; 0 ignored' || true
# A test that skips itself counts as passed to the test runner.
awk '/^skipped: /{s++} /^test result: /{p+=$4; f+=$6; i+=$8} END{printf "tests: %d passed, %d failed, %d skipped\n", p-s, f, i+s; exit f > 0 || p == 0}' "$log"
exit "${status:-0}"
