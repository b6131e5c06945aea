#!/bin/bash
# Runs the functional tests of client libraries (ovsdbapp, os-vif, Neutron) on oxvs and on Debian's
# Open vSwitch (and OVN's daemons on both). usage: client-libraries.sh   (root, as they make bridges
# and ports; OXVS=target/debug/oxvs; needs `scripts/setup.sh long`)
#
# A test that fails on oxvs has to fail on Open vSwitch too. Logs are in target/client-libraries.
set -u
cd "$(dirname "$0")/.."
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
logs=$PWD/target/client-libraries/logs
python=$PWD/target/client-libraries/venv/bin/python
runner=$PWD/crates/oxvs/tests/client_libraries/run.py
schema=/usr/share/openvswitch/vswitch.ovsschema
passed=0 failed=0 skipped=0

# In namespaces of its own: the libraries use the system's sockets and make devices.
if [ "${1:-}" != inside ]; then
    [ -x "$python" ] || { echo "client-libraries: no $python; run scripts/setup.sh long" >&2; exit 1; }
    OXVS=$OXVS exec unshare -m -n -p --fork --mount-proc "$0" inside
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ip link set lo up
mount -t tmpfs none /run
mkdir -p /run/openvswitch "$logs" "$work/oxvs" "$work/bin"
for tool in ovs-vsctl ovs-ofctl ovs-appctl ovsdb-client ovsdb-tool ovs-vswitchd ovsdb-server; do
    ln -s "$OXVS" "$work/oxvs/$tool"
done
# The libraries ask for `sudo`; this is root already.
cat >"$work/bin/sudo" <<'END'
#!/bin/sh
while :; do case "$1" in -*) shift ;; *) break ;; esac; done
exec "$@"
END
chmod 755 "$work/bin/sudo"
export VIRTUAL_ENV=${python%/bin/python} OS_SUDO_TESTING=1 OS_ROOTWRAP_CMD=sudo OS_ROOTWRAP_DAEMON_CMD= OS_LOG_PATH=$work

# start_switch NAME: the daemons that Neutron and os-vif expect to run.
start_switch() {
    OVS_DBDIR=$(mktemp -d "$work/db-XXXXXX")
    export OVS_DBDIR OVS_LOGDIR=$OVS_DBDIR OVS_RUNDIR=/run/openvswitch
    local dummy=
    # Debian's needs its kernel module for anything but the dummy datapath.
    [ "$1" = oxvs ] || dummy=--enable-dummy=system
    ovsdb-tool create "$OVS_DBDIR/conf.db" $schema &&
        ovsdb-server "$OVS_DBDIR/conf.db" --remote=punix:/run/openvswitch/db.sock --remote=db:Open_vSwitch,Open_vSwitch,manager_options --pidfile --detach --log-file -vconsole:off &&
        ovs-vsctl --no-wait init && ovs-vsctl --no-wait set-manager ptcp:6640:127.0.0.1 &&
        ovs-vswitchd --pidfile --detach --log-file -vconsole:off $dummy
}

# Ends the daemons, and waits: the next ones use the same sockets.
stop_switch() {
    local file pid
    for file in /run/openvswitch/*.pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        kill "$pid"
        timeout 10 tail --pid="$pid" -f /dev/null
    done
    unset OVS_DBDIR OVS_LOGDIR OVS_RUNDIR
    rm -rf /run/openvswitch
    mkdir /run/openvswitch
}

# run_tests SWITCH NAME MODULE...: leaves the failed tests in $logs/NAME.SWITCH.failed.
run_tests() {
    local switch=$1 name=$2
    shift 2
    rm -f "$logs/$name.$switch.failed"
    timeout --kill-after=10 300 "$python" "$runner" "$logs/$name.$switch.failed" "$@" >"$logs/$name.$switch.log" 2>&1 </dev/null
}

# compare NAME SWITCH? MODULE...: the modules on both switches. SWITCH is `own` if the tests start
# their daemons themselves, `running` if they expect a switch.
compare() {
    local name=$1 kind=$2 switch path=$PATH
    shift 2
    for switch in oxvs debian; do
        PATH=$work/bin:$path
        [ $switch = debian ] || PATH=$work/oxvs:$PATH
        if [ "$kind" = running ]; then
            start_switch $switch || echo "client-libraries: $switch did not start" >&2
        fi
        run_tests $switch "$name" "$@"
        [ "$kind" != running ] || stop_switch
        PATH=$path
    done
    if [ ! -s "$logs/$name.oxvs.failed" ]; then
        echo "$name: could not be run; see $logs/$name.oxvs.log"
        failed=$((failed + 1))
        return
    fi
    local ran skips worse both
    read -r ran skips <"$logs/$name.oxvs.failed"
    worse=$(comm -23 <(tail -n +2 "$logs/$name.oxvs.failed") <(tail -n +2 "$logs/$name.debian.failed" 2>/dev/null))
    both=$(comm -12 <(tail -n +2 "$logs/$name.oxvs.failed") <(tail -n +2 "$logs/$name.debian.failed" 2>/dev/null))
    local n_worse n_both
    n_worse=$(printf '%s' "$worse" | grep -c .)
    n_both=$(printf '%s' "$both" | grep -c .)
    echo "$name: $ran tests, $skips skipped, $n_both fail on both switches, $n_worse on oxvs alone"
    [ "$n_worse" -eq 0 ] || printf '  %s\n' $worse
    if [ $((ran - skips - n_worse - n_both)) -le 0 ]; then
        echo "$name: no test passed; see $logs/$name.oxvs.log"
        failed=$((failed + 1))
    fi
    passed=$((passed + ran - skips - n_worse - n_both))
    skipped=$((skipped + skips + n_both))
    failed=$((failed + n_worse))
}

idl=ovsdbapp.tests.functional.backend.ovs_idl
schemas=ovsdbapp.tests.functional.schema
compare ovsdbapp own $idl.test_connection $idl.test_idlutils $idl.test_indexing $idl.test_rowview \
    $schemas.open_vswitch.test_impl_idl $schemas.open_vswitch.test_common_db $schemas.hardware_vtep.test_impl_idl
compare ovsdbapp-ovn own $schemas.ovn_northbound.test_impl_idl $schemas.ovn_southbound.test_impl_idl
compare os-vif running vif_plug_ovs.tests.functional.ovsdb.test_ovsdb_lib vif_plug_ovs.tests.functional.test_plugin
compare neutron running neutron.tests.functional.agent.test_ovs_lib neutron.tests.functional.agent.ovsdb.native.test_connection
echo "client libraries: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
