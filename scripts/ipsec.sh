#!/bin/bash
# Tries tunnels with IPsec in a virtual machine with Debian's kernel, which has ESP: with states and
# policies set by hand, by the laboratory's experiment, and with Debian's ovs-monitor-ipsec and
# strongSwan or Libreswan, if apt-get has them.
# usage: ipsec.sh [by-hand|lab|strongswan|libreswan]...   (OXVS=target/release/oxvs)
set -euo pipefail
cd "$(dirname "$0")/.."
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
. scripts/guest/needs.sh
needs ipsec qemu-system-x86_64 tcpdump openssl nft
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

download() {
    (cd "$dir/packages" && apt-get -qq download "$@") >"$dir/apt" 2>&1
}

# fetch PACKAGE...: unpacks them, the monitor, the Python that runs it, and certificates, into
# $dir/ike.tar.
fetch() {
    # Debian's Python has the library.
    local python=/usr/bin/python3 file root=$dir/root
    $python -c 'import ovs.db.idl' 2>/dev/null || {
        echo "the Python library of Open vSwitch is not installed"
        return 1
    }
    rm -rf "$dir/packages" "$root"
    mkdir -p "$dir/packages" "$root/usr/bin"
    download openvswitch-ipsec "$@" || { apt-get -qq update && download openvswitch-ipsec "$@"; } || {
        echo "apt-get cannot fetch openvswitch-ipsec and $1:"
        cat "$dir/apt"
        return 1
    }
    for package in "$dir"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
    cp $python "$root/usr/bin/python3"
    cp "$(command -v openssl)" "$root/usr/bin/openssl"
    $python - <<'PYTHON' | tar -cf - -T - 2>/dev/null | tar -xf - -C "$root"
import glob, os, sys, sysconfig
import ovs, sortedcontainers
for root in [sysconfig.get_path("stdlib"), os.path.dirname(ovs.__file__), os.path.dirname(sortedcontainers.__file__)]:
    for directory, names, files in os.walk(root):
        names[:] = [n for n in names if n not in ("__pycache__", "test", "tests", "dist-packages", "site-packages")
                    and not n.startswith("config-") and n not in ("idlelib", "tkinter", "ensurepip", "lib2to3")]
        for name in files:
            print(os.path.join(directory, name))
for name in ["/usr/share/openvswitch/vswitch.ovsschema", "/etc/protocols", "/etc/services", "/etc/ssl/openssl.cnf",
             "/usr/lib/ssl/openssl.cnf"]:
    if os.path.exists(name):
        print(name)
PYTHON
    # Libraries of all of these.
    find "$root" -type f \( -name '*.so*' -o -path '*/ipsec/*' -o -path '*/bin/*' \) |
        LD_LIBRARY_PATH="$root/usr/lib/ipsec:$root/usr/lib/x86_64-linux-gnu" xargs ldd 2>/dev/null |
        sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -v "^$dir" | sort -u | while read -r file; do
        mkdir -p "$root/lib"
        cp -n "$file" "$root/lib/"
    done
    cp -r "$dir/certificates" "$root/"
    tar -C "$root" -cf "$dir/ike.tar" .
}

# For each side one that it has signed itself, and one of an authority.
certificates() {
    mkdir "$dir/certificates"
    (
        cd "$dir/certificates"
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /C=US/O=oxvs/CN=authority -keyout ca.key -out ca.pem
        for side in near far; do
            openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /C=US/O=oxvs/CN=$side \
                -addext subjectAltName=DNS:$side -keyout $side.key -out $side.pem
            openssl req -new -key $side.key -subj /C=US/O=oxvs/CN=$side -out $side.csr
            openssl x509 -req -in $side.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 \
                -extfile <(echo subjectAltName=DNS:$side) -out $side-ca.pem
        done
    ) 2>"$dir/openssl"
}

# guest WHAT: runs a script in a guest.
guest() {
    local options=(--memory 1536 --timeout 3600 --program "$OXVS" --program tcpdump --program nft)
    [ "$1" = ipsec ] || options+=(--program "$dir/ike.tar")
    # ESP, and what AES with SHA-2 and AES-GCM need.
    for module in veth tun sch_ingress cls_bpf ip_gre ip6_gre geneve nf_tables nft_objref xfrm_user esp4 esp6 authenc echainiv \
        seqiv gcm ctr ghash_generic sha512_generic drbg jitterentropy_rng; do
        options+=(--module "$module")
    done
    "$OXVS" lab guest "${options[@]}" -- sh -c \
        "ike=${2:-}; $(cat scripts/guest/common.sh scripts/guest/encrypted.sh "scripts/guest/$1.sh")"
}

# The encrypted part of S5.overlay: each encapsulation passes, beside the kernel's own devices.
lab() {
    sed -e 's/^quick = \["vxlan"\]/quick = ["vxlan", "geneve", "gre"]/' \
        -e 's/^quick = \["native", "host"\]/quick = ["host, IPsec"]/' \
        -e 's/^quick = \["TCP out", .*/quick = ["TCP out", "ping"]/' \
        -e 's/^combine = .*/combine = "all"/' lab/scenarios/s5-overlay.toml >"$dir/encrypted.toml"
    "$OXVS" lab run "$dir/encrypted.toml" --quick --in-guest --switch oxvs --switch bridge --out "$dir/lab" || return
    local passed
    # None is no reason to end without a word.
    passed=$(grep -c '"probe.rtt"\|"tcp.total"' "$dir/lab/samples.jsonl" || true)
    [ "$passed" = 12 ] || {
        cat "$dir/lab/samples.jsonl"
        echo "ipsec: $passed of 12 samples of the laboratory"
        return 1
    }
}

certificates
for try in "${@:-by-hand lab strongswan libreswan}"; do
    # shellcheck disable=SC2086 # a list of words
    for one in $try; do
        case $one in
        by-hand)
            guest ipsec
            continue
            ;;
        lab)
            lab
            continue
            ;;
        strongswan) packages="libstrongswan strongswan-starter strongswan-libcharon strongswan-charon
            libstrongswan-standard-plugins" ;;
        libreswan) packages="libreswan libnss3 libnss3-tools libnspr4 libldns3 libevent-core-2.1-7
            libevent-pthreads-2.1-7 libunbound8 libcurl3-nss libcap-ng0 nss-plugin-pem" ;;
        esac
        if fetch $packages; then guest ike "$one"; else echo "ipsec: without $one"; fi
    done
done
