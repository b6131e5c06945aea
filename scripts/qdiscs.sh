#!/bin/bash
# Records the behaviour of the qdiscs of Debian's kernel in the scenarios of
# crates/qos/tests/kernel, in a virtual machine on virtual time.
set -euo pipefail
cd "$(dirname "$0")/.."
# The qdiscs that the comparison needs; the running kernel may lack them.
modules="veth sch_htb sch_tbf sch_sfq sch_codel sch_fq_codel sch_hfsc sch_netem sch_ingress cls_u32 cls_matchall act_police act_skbedit"
test=$(./scripts/cargo test --locked -p qos --test kernel --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
[ -n "$test" ]
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
options=(--virtual-time --program "$test" --out "$out")
for module in $modules; do options+=(--module "$module"); done
./scripts/cargo run --quiet --locked -p oxvs --bin oxvs-lab -- guest "${options[@]}" -- env OXVS_RECORD=/out "$(basename "$test")" --exact --ignored --nocapture record_what_this_kernel_does
mv "$out"/*.txt crates/qos/tests/kernel/recorded/
