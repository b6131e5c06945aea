#!/bin/bash
# Tries bonds and LACP with the kernel's bonding at the other end, in a virtual machine with
# Debian's kernel: the running one may lack it.   usage: bonding.sh   (OXVS=target/release/oxvs)
set -euo pipefail
cd "$(dirname "$0")/.."
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
. scripts/guest/needs.sh
needs bonding qemu-system-x86_64
options=(--memory 1024 --program "$OXVS")
for module in veth bonding tun sch_ingress cls_bpf; do options+=(--module "$module"); done
"$OXVS" lab guest "${options[@]}" -- sh -c "$(cat scripts/guest/bonding.sh)"
