//! Tunnels within tunnels within tunnels.

use super::{End, V4, Wired, decoded, inner};
use testkit::skip;

/// In bridge `br1` a tunnel through the one of `br0`, in `br2` one through that of `br1`; the host
/// is behind `br2`.
fn nest(end: &End, place: usize) {
    let other = [92, 88][place];
    let own = [88, 92][place];
    end.switch.vsctl(&format!(
        "set bridge br0 other_config:hwaddr=aa:55:aa:55:01:0{place} \
         -- add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure \
         other_config:hwaddr=aa:55:aa:55:02:0{place} \
         -- add-br br2 -- set bridge br2 datapath_type=dummy fail_mode=secure \
         -- add-port br1 u1 -- set interface u1 type=geneve ofport_request=1 options:key=2 \
            options:remote_ip=1.2.0.{other} \
         -- add-port br2 v1 -- set interface v1 type=vxlan ofport_request=1 options:key=3 \
            options:remote_ip=1.3.0.{other} \
         -- del-port p9 -- add-port br2 p9 -- set interface p9 type=dummy ofport_request=99 options:tx_pcap={}",
        end.switch.sandbox.arg("p9.tx"),
    ));
    for command in [
        format!("netdev-dummy/ip4addr br0 1.2.0.{own}/24"),
        format!("netdev-dummy/ip4addr br1 1.3.0.{own}/24"),
        "ovs/route/add 1.2.0.0/24 br0".to_owned(),
        "ovs/route/add 1.3.0.0/24 br1".to_owned(),
        format!("tnl/neigh/set br0 1.2.0.{other} aa:55:aa:55:01:0{}", 1 - place),
        format!("tnl/neigh/set br1 1.3.0.{other} aa:55:aa:55:02:0{}", 1 - place),
    ] {
        end.appctl(&command);
    }
    for bridge in ["br0", "br1"] {
        end.rule(bridge, "in_port=local,actions=1");
        end.rule(bridge, "in_port=1,actions=local");
    }
    end.rule("br2", "in_port=99,actions=1");
    end.rule("br2", "in_port=1,actions=99");
}

#[test]
fn a_tunnel_in_a_tunnel_in_a_tunnel_leads_to_and_from_open_vswitch() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    let mut wired = Wired::beside();
    wired.tunnel(1, "type=vxlan options:key=1", V4);
    for (place, end) in wired.ends.iter().enumerate() {
        nest(end, place);
    }
    for from in [0, 1] {
        let frames = [inner(2), inner(2), inner(3)];
        let (outer, came) = wired.carry(from, &frames, 1);
        assert_eq!(came[1 - from], frames, "from {from}");
        for line in decoded(&outer, &[], &["vxlan.vni", "geneve.vni"]) {
            assert_eq!(line, "1,3|0x000002", "from {from}");
        }
    }
}
