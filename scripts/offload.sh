#!/bin/bash
# Tries the programs of the kernel offload with Debian's kernel in a virtual machine: its verifier
# refuses what the running kernel's may accept.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/guest/needs.sh
needs offload qemu-system-x86_64
test=$(./scripts/cargo test --locked -p dp-ebpf --lib --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[ -n "$test" ]
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
strip -o "$dir/offload" "$test"
./scripts/cargo run --quiet --locked -p oxvs --bin oxvs-lab -- guest --memory 512 --program "$dir/offload" \
    -- offload --nocapture --test-threads=1 >"$dir/said" 2>&1 || { cat "$dir/said"; exit 1; }
if grep skipped: "$dir/said"; then exit 1; fi
grep 'test result' "$dir/said"
