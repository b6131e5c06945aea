#!/bin/bash
# Tries tunnels with IPsec in a virtual machine with Debian's kernel, which has ESP: with states and
# policies set by hand, and with Debian's ovs-monitor-ipsec and strongSwan, if apt-get has them.
# usage: ipsec.sh   (OXVS=target/release/oxvs)
set -euo pipefail
cd "$(dirname "$0")/.."
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
for program in qemu-system-x86_64 tcpdump; do
    command -v $program >/dev/null || {
        echo "ipsec: skipped: $program is not installed"
        exit 0
    }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/packages" "$dir/root"

# The files of the IKE daemon and of the monitor, and of the Python that runs it.
fetch() {
    # Debian's Python has the library.
    local python=/usr/bin/python3 file
    $python -c 'import ovs.db.idl' 2>/dev/null || {
        echo "the Python library of Open vSwitch is not installed"
        return 1
    }
    (cd "$dir/packages" && apt-get -qq download openvswitch-ipsec libstrongswan strongswan-starter \
        strongswan-libcharon strongswan-charon libstrongswan-standard-plugins >"$dir/apt" 2>&1) || {
        echo "apt-get cannot fetch openvswitch-ipsec and strongSwan"
        return 1
    }
    for package in "$dir"/packages/*.deb; do dpkg-deb -x "$package" "$dir/root"; done
    mkdir -p "$dir/root/usr/bin"
    cp $python "$dir/root/usr/bin/python3"
    $python - <<'PYTHON' | tar -cf - -T - 2>/dev/null | tar -xf - -C "$dir/root"
import glob, os, sys, sysconfig
import ovs, sortedcontainers
for root in [sysconfig.get_path("stdlib"), os.path.dirname(ovs.__file__), os.path.dirname(sortedcontainers.__file__)]:
    for directory, names, files in os.walk(root):
        names[:] = [n for n in names if n not in ("__pycache__", "test", "tests", "dist-packages", "site-packages")
                    and not n.startswith("config-") and n not in ("idlelib", "tkinter", "ensurepip", "lib2to3")]
        for name in files:
            print(os.path.join(directory, name))
for name in ["/usr/share/openvswitch/vswitch.ovsschema", "/etc/protocols", "/etc/services"]:
    if os.path.exists(name):
        print(name)
PYTHON
    # Libraries of all of these.
    find "$dir/root" -type f \( -name '*.so*' -o -path '*/ipsec/*' -o -path '*/bin/python3' \) |
        LD_LIBRARY_PATH="$dir/root/usr/lib/ipsec:$dir/root/usr/lib/x86_64-linux-gnu" xargs ldd 2>/dev/null |
        sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -v "^$dir" | sort -u | while read -r file; do
        mkdir -p "$dir/root/lib"
        cp -n "$file" "$dir/root/lib/"
    done
    tar -C "$dir/root" -cf "$dir/ike.tar" .
}

options=(--memory 1536 --program "$OXVS" --program tcpdump)
if fetch; then
    options+=(--program "$dir/ike.tar")
else
    echo "ipsec: without ovs-monitor-ipsec and strongSwan"
fi
# ESP, and what AES with SHA-2 and AES-GCM need.
for module in veth tun sch_ingress cls_bpf xfrm_user esp4 authenc echainiv seqiv gcm ctr \
    ghash_generic sha512_generic drbg jitterentropy_rng; do
    options+=(--module "$module")
done
"$OXVS" lab guest "${options[@]}" -- sh -c "$(cat scripts/ipsec-guest.sh)"
