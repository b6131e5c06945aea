#!/bin/bash
# Runs a command in a virtual machine with Debian's cloud kernel, under software emulation, for what the kernel of this machine lacks.
#
#   scripts/guest/run.sh [OPTION]... -- COMMAND [ARGUMENT]...
#
#   --program FILE|NAME   a program that the guest gets in its /bin, with the libraries it needs (again and again)
#   --module NAME         a kernel module that is loaded before the command, with those it needs (again and again)
#   --out DIRECTORY       gets what the command leaves in the guest's /out
#   --virtual-time        the guest's time passes with its instructions, and is skipped while it idles: a run is the same on a busy machine
#   --memory MB           (default 512)
#   --timeout SECONDS     (default 600)
#
# The command's output is this program's, its exit status too; 125 where the guest failed, and then its console is shown. Nothing is installed: kernel and
# busybox are fetched with apt-get and kept in target/guest. The guest has no disk and no network, and its system is busybox, ip, tc and what was added.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
cache=$here/../../target/guest
# Not busybox's shell and timeout: they would start its own ip and tc.
programs=(sh timeout ip tc)
modules=()
out=
memory=512
limit=600
time=()
dir=

main() {
    while [ $# -gt 0 ]; do
        case $1 in
        --program) programs+=("$2"); shift ;;
        --module) modules+=("$2"); shift ;;
        --out) out=$2; shift ;;
        --memory) memory=$2; shift ;;
        --timeout) limit=$2; shift ;;
        --virtual-time) time=(-icount "shift=1,sleep=off,align=off") ;;
        --) shift; break ;;
        *) fail "unknown option $1" ;;
        esac
        shift
    done
    [ $# -gt 0 ] || fail "no command"
    command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is not installed: scripts/setup.sh guest"
    fetch
    dir=$(mktemp -d "${TMPDIR:-/tmp}/oxvs-guest-XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    initramfs "$@"
    boot
    [ -z "$out" ] || {
        mkdir -p "$out"
        tar -xf "$dir/out.tar" -C "$out"
    }
    cat "$dir/output"
    exit "$(cat "$dir/status")"
}

# The kernel with its modules, and busybox, unpacked into the cache.
fetch() {
    [ ! -e "$cache/complete" ] || return 0
    rm -rf "$cache"
    mkdir -p "$cache/packages"
    (
        cd "$cache/packages"
        kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/{print $2; exit}')
        [ -n "$kernel" ] || fail "apt knows no linux-image-cloud-amd64"
        echo "guest: fetching $kernel and busybox-static" >&2
        apt-get -qq download "$kernel" busybox-static 2>/dev/null || fail "apt-get could not download $kernel and busybox-static"
        for package in *.deb; do dpkg-deb -x "$package" "$cache"; done
    )
    rm -rf "$cache/packages"
    busybox depmod -b "$cache" "$(kernel_version)"
    touch "$cache/complete"
}

kernel_version() { basename "$cache"/lib/modules/*; }

busybox() { "$cache/bin/busybox" "$@"; }

initramfs() {
    local root=$dir/root version name file
    version=$(kernel_version)
    mkdir -p "$root"/{bin,dev,etc,lib,out,proc,run,sys,tmp,usr/bin,usr/sbin,"lib/modules/$version"}
    ln -s bin "$root/sbin"
    ln -s lib "$root/lib64"
    cp "$cache/bin/busybox" "$root/bin/"
    # Names of busybox's that a program of its own has are taken over by it.
    busybox --list | grep -vx busybox | while read -r name; do ln -sf busybox "$root/bin/$name"; done
    for name in "${programs[@]}"; do
        file=$(command -v "$name") || fail "no program $name"
        rm -f "$root/bin/$(basename "$file")"
        cp -L "$file" "$root/bin/"
        libraries "$file" "$root"
    done
    cp "$cache/lib/modules/$version"/modules.{dep,alias,symbols,builtin,order} "$root/lib/modules/$version/" 2>/dev/null || true
    for name in "${modules[@]}"; do
        file=$(module_file "$name" "$version")
        [ -n "$file" ] || grep -q "/$name[.]ko" "$cache/lib/modules/$version/modules.builtin" || fail "kernel $version has no module $name"
        for file in $file; do
            mkdir -p "$root/lib/modules/$version/$(dirname "$file")"
            cp "$cache/lib/modules/$version/$file" "$root/lib/modules/$version/$file"
        done
    done
    printf '%s\n' "${modules[@]}" >"$root/etc/modules"
    printf '%q ' "$@" >"$root/etc/command"
    cp "$here/init" "$root/init"
    chmod 755 "$root/init"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$dir/initramfs"
}

# A module's file and those of the modules it needs, from modules.dep.
module_file() {
    awk -v name="$1" -F: '
        { file = $1; sub(".*/", "", file); sub("[.]ko.*", "", file); gsub("-", "_", file) }
        file == name { print $1 $2 }' "$cache/lib/modules/$2/modules.dep"
}

# The shared libraries of a program, and where it looks for what it loads later.
libraries() {
    local file
    ldd "$1" 2>/dev/null | awk '{for (i = 1; i <= NF; i++) if ($i ~ "^/") {print $i; break}}' | while read -r file; do
        cp -nL "$file" "$2/lib/"
    done
}

boot() {
    local status=0
    : >"$dir/output"
    timeout --kill-after=5 "$limit" qemu-system-x86_64 -accel tcg,thread=single -machine pc,hpet=off -cpu qemu64 -smp 1 -m "$memory" \
        -display none -nodefaults -no-reboot -rtc base=2026-01-01,clock=vm "${time[@]}" \
        -kernel "$cache"/boot/vmlinuz-* -initrd "$dir/initramfs" \
        -append "console=ttyS0 loglevel=4 panic=-1 mitigations=off" \
        -serial "file:$dir/console" -serial "file:$dir/output" -serial "file:$dir/status" -serial "file:$dir/out.tar" \
        </dev/null >"$dir/qemu" 2>&1 || status=$?
    [ $status -eq 0 ] && [ -s "$dir/status" ] || {
        cat "$dir/qemu" "$dir/console" "$dir/output" >&2
        fail "the guest did not come to an end (status $status; 124 is a run of more than $limit s)"
    }
}

fail() {
    echo "guest: $*" >&2
    exit 125
}

main "$@"
