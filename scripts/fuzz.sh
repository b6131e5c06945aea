#!/bin/sh
# Runs every fuzz target for some seconds each; a crash stops it, with the input kept in
# fuzz/artifacts.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
for target in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    echo "== $target, $seconds s"
    RUSTUP_TOOLCHAIN=nightly cargo fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
