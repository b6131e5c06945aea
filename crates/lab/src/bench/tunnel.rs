//! A tunnel over the bridge itself: the bridge's local port has the address of the tunnel's end,
//! and outer packets enter and leave the bridge by it.
//!
//! Nobody is at the other end, so its MAC address is added by hand.

use super::rules::SINK;
use super::trace::ipv4_udp;
use wire::MacAddr;

/// The number of the tunnel's port.
pub(crate) const PORT: u32 = 200;

/// The addresses of both ends, of UNDERLAY.
const LOCAL: u32 = 0xac1f_0001;
const REMOTE: u32 = 0xac1f_0002;
const LOCAL_MAC: MacAddr = MacAddr([0x02, 4, 0, 0, 0, 1]);
const REMOTE_MAC: MacAddr = MacAddr([0x02, 4, 0, 0, 0, 2]);

/// Gives the bridge its address and neighbour.
pub(crate) const UNDERLAY: [&str; 3] = [
    "ip address add 172.31.0.1/24 dev br0",
    "ip link set br0 up",
    "appctl tnl/neigh/set br0 172.31.0.2 02:04:00:00:00:02",
];

/// A tunnel's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vxlan,
    Geneve,
}

/// The commands that add the tunnel's port.
pub(crate) fn port(kind: Kind) -> Vec<String> {
    let bridge = format!("set bridge br0 other_config:hwaddr={LOCAL_MAC}");
    let port = |options| {
        format!("oxvs vsctl {bridge} -- add-port br0 tunnel -- set interface tunnel ofport_request={PORT} {options}")
    };
    match kind {
        Kind::Vxlan => vec![port("type=vxlan options:remote_ip=172.31.0.2 options:key=42")],
        Kind::Geneve => vec![
            port("type=geneve options:remote_ip=172.31.0.2 options:key=flow"),
            "oxvs ofctl add-tlv-map br0 {class=0x102,type=0x80,len=4}->tun_metadata0".to_owned(),
        ],
    }
}

/// The rule for outer packets that leave.
pub(crate) fn outer_rule() -> String {
    format!("in_port=LOCAL,actions=output:{SINK}\n")
}

/// A packet from the other end with this one in it; senders choose the source port by flow.
pub(crate) fn vxlan(inner: &[u8], port: u16) -> Vec<u8> {
    const VXLAN_PORT: u16 = 4789;
    let mut packet = [&LOCAL_MAC.0[..], &REMOTE_MAC.0, &[0x08, 0x00]].concat();
    let total = (20 + 8 + 8 + inner.len()) as u16;
    ipv4_udp(&mut packet, total, [REMOTE, LOCAL], [port | 0x8000, VXLAN_PORT]);
    packet.extend([0x08, 0, 0, 0, 0, 0, 42, 0]);
    packet.extend(inner);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_underlay_has_the_addresses_of_the_trace() {
        let text = UNDERLAY.join("\n");
        for address in [LOCAL, REMOTE].map(Ipv4Addr::from) {
            assert!(text.contains(&address.to_string()), "{address}");
        }
        assert!(text.contains(&REMOTE_MAC.to_string()));
    }

    #[test]
    fn outer_headers_have_valid_lengths_and_checksums() {
        let packet = vxlan(&[7; 60], 1024);
        assert_eq!(packet.len(), 110);
        assert_eq!(wire::checksum::checksum(&packet[14..34]), 0);
        assert_eq!(packet[16..18], 96_u16.to_be_bytes());
        assert_eq!(packet[38..40], 76_u16.to_be_bytes());
        assert_eq!(packet[50..], [7; 60]);
    }
}
