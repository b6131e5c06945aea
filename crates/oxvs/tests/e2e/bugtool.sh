# Runs ovs-bugtool beside the switch whose programs the PATH has first, and unpacks what it collects
# in $OUT/collected. In namespaces of its own: mounts, network, processes.
set -eu
unset OVS_RUNDIR OVS_DBDIR OVS_LOGDIR OVS_SYSCONFDIR
mount -t tmpfs none /run
mkdir -p /run/openvswitch
for dir in /etc/openvswitch /var/log/openvswitch; do
    [ -d $dir ] && mount -t tmpfs none $dir
done
ip link set lo up
ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server --remote=punix:/run/openvswitch/db.sock --pidfile --detach --log-file -vconsole:off
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --log-file -vconsole:off --enable-dummy=override
ovs-vsctl --timeout=10 add-br br0 -- set bridge br0 datapath_type=netdev protocols=OpenFlow10,OpenFlow13 \
    -- add-port br0 p1 -- set interface p1 type=dummy -- add-br br1 -- set bridge br1 datapath_type=netdev
ovs-bugtool --yestoall --ovs --delay=0 --output=tar --outfile="$OUT/collected.tar" >/dev/null
mkdir "$OUT/collected"
tar -xf "$OUT/collected.tar" -C "$OUT/collected" --strip-components=1
kill $(cat /run/openvswitch/*.pid)
