"""One of Mininet's own topologies on OVSSwitch, its pingall and its iperf test: TOPOLOGY, bit/s of each link or nothing, seconds."""

import json
import sys
from functools import partial

import mininet.net
from mininet.link import Link, TCLink
from mininet.node import OVSSwitch
from mininet.topo import LinearTopo, MinimalTopo, SingleSwitchReversedTopo, SingleSwitchTopo
from mininet.topolib import TorusTopo, TreeTopo
from mininet.util import buildTopo

# As Mininet's own command names them.
TOPOLOGIES = {
    "minimal": MinimalTopo,
    "linear": LinearTopo,
    "reversed": SingleSwitchReversedTopo,
    "single": SingleSwitchTopo,
    "tree": TreeTopo,
    "torus": TorusTopo,
}

topology, asked, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
asked = float(asked) if asked else None


def listening(client, server=None, port=80, timeout=None):
    """Waits until iperf listens, by a first transfer.

    Mininet's iperf test waits until the server has reported two connections: this one and the transfer. Its own way is to connect by telnet
    and send nothing, and of such a connection iperf 2.1 reports nothing any more: the test never ends.
    """
    for _ in range(50):
        if "/sec" in client.cmd("iperf -p %d -n 128K -c %s" % (port, server)):
            return True
        client.cmd("sleep 0.1")
    return False


mininet.net.waitListening = listening
# It would raise limits of the whole machine, and leave them so.
mininet.net.Mininet.inited = True

link = partial(TCLink, bw=asked / 1e6) if asked else Link
net = mininet.net.Mininet(
    topo=buildTopo(TOPOLOGIES, topology),
    switch=partial(OVSSwitch, failMode="standalone"),
    link=link,
    controller=None,
)
net.start()
try:
    # Per cent.
    dropped = net.pingAll(timeout="5")
    received, sent = net.iperf(seconds=seconds)
finally:
    net.stop()
found = {
    "hosts": len(net.hosts),
    "switches": len(net.switches),
    "dropped": dropped / 100,
    "received": received,
    "sent": sent,
    "asked": asked,
}
print("\n" + json.dumps(found), flush=True)
