#!/bin/bash
# Restarts the switch again and again and counts starts that are not complete when `--detach`
# returns. usage: restarts.sh [ROUNDS] (root; 1000 rounds of each kind by default;
# OXVS=target/debug/oxvs)
#
# Kinds of end: kill -9, `appctl exit`, SIGTERM; each followed by a start at once, without a pause.
# Layouts: `oxvs run`, and ovsdb-server and vswitchd apart. A start is complete if the database,
# BRIDGE.mgmt and the control sockets answer and the bridge's internal port is there without an
# error.
set -u
cd "$(dirname "$0")/.."
rounds=${1:-1000}
OXVS=$(realpath "${OXVS:-target/release/oxvs}")

if [ "${OXVS_RESTARTS:-}" != inside ]; then
    exec env OXVS_RESTARTS=inside OXVS="$OXVS" unshare --net "$0" "$rounds"
fi

dir=$(mktemp -d /tmp/oxvs-restarts-XXXXXX)
export OVS_RUNDIR=$dir OVS_DBDIR=$dir OVS_LOGDIR=$dir
quiet="-vconsole:off -vsyslog:off"

daemons() {
    case $layout in
    run) echo ovs-vswitchd ;;
    apart) echo ovs-vswitchd ovsdb-server ;;
    esac
}

start() {
    # shellcheck disable=SC2086 # a list of words
    case $layout in
    run) "$OXVS" run --detach --log-file $quiet ;;
    apart)
        "$OXVS" ovsdb-server --detach --pidfile --log-file $quiet --remote=punix:"$dir/db.sock" "$dir/conf.db" &&
            "$OXVS" vswitchd --detach --pidfile --log-file $quiet
        ;;
    esac
}

end() {
    for daemon in $(daemons); do
        case $kind in
        kill-9) kill -9 "$(cat "$dir/$daemon.pid")" ;;
        term) kill "$(cat "$dir/$daemon.pid")" ;;
        exit) "$OXVS" appctl -t "$daemon" exit ;;
        esac
    done
}

# Prints what is missing.
check() {
    "$OXVS" vsctl --timeout=5 --no-wait get interface br0 name >/dev/null 2>&1 || echo db.sock
    "$OXVS" ofctl --timeout=5 show br0 >/dev/null 2>&1 || echo br0.mgmt
    ip link show br0 >/dev/null 2>&1 || echo port
    [ "$("$OXVS" vsctl --timeout=5 get interface br0 error 2>&1)" = "[]" ] || echo port-error
    for daemon in ovs-vswitchd ovsdb-server; do
        "$OXVS" appctl --timeout=5 -t "$daemon" version >/dev/null 2>&1 || echo "$daemon.ctl"
    done
    # One control socket for each daemon: killed ones leave none behind.
    [ "$(ls "$dir" | grep -c '\.ctl$')" = 2 ] || echo leftovers
}

finish() {
    for daemon in ovs-vswitchd ovsdb-server; do
        kill -9 "$(cat "$dir/$daemon.pid" 2>/dev/null)" 2>/dev/null
    done
    [ "${KEEP:-}" ] || rm -rf "$dir"
}
trap finish EXIT

total=0
for layout in run apart; do
    start || exit 1
    "$OXVS" vsctl --may-exist add-br br0 || exit 1
    for kind in kill-9 exit term; do
        incomplete=0
        missing=
        begun=$(date +%s)
        for round in $(seq "$rounds"); do
            end
            start || missing="$missing start"
            found=$(check)
            if [ -n "$found" ]; then
                incomplete=$((incomplete + 1))
                missing="$missing $found"
                echo "$layout $kind, round $round: missing:" $found >&2
            fi
        done
        total=$((total + incomplete))
        echo "$layout $kind: $rounds restarts in $(($(date +%s) - begun)) s, $incomplete incomplete" \
            "$(echo $missing | tr ' ' '\n' | grep . | sort | uniq -c | tr -s ' \n' ' ')"
    done
    kind=exit
    end
done
[ $total -eq 0 ]
