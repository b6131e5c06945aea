#!/bin/bash
# What `make test` runs. Stops at the first step that fails; ends with the test runner's own closing lines.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=./scripts/cargo
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

step() {
    echo "== $*"
    "$@"
}

step $cargo fmt --all --check
step $cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
step $cargo xtask tidy

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step $cargo test --locked --workspace --no-fail-fast 2>&1 | tee "$log" | grep -v '^$\|^running 0 tests\|^test .* \.\.\. ok$' ||
    status=$?
echo "== closing lines"
grep -E '^(skipped: |test .*FAILED$|test result: )' "$log" | grep -v ' 0 passed; 0 failed; 0 ignored' || true
awk '/^test result: /{p+=$4; f+=$6; i+=$8} END{printf "make test: %d passed, %d failed, %d ignored\n", p, f, i; exit f > 0 || p == 0}' "$log"
exit "${status:-0}"
