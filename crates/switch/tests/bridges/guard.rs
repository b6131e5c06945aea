//! DHCP snooping and ARP inspection.

use crate::lab::Lab;
use dp::DropCause;
use flow::Field;
use switch::PortGuard;
use testkit::{ArpOp, Packet};

fn lab(guard: PortGuard) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.port_mut("a").guard = guard;
    lab.configure();
    lab
}

fn arp(src: u32, sender: [u8; 4]) -> Packet {
    Packet::new(testkit::mac(src), [0xff; 6]).arp(ArpOp::Request, sender.into(), [10, 0, 0, 9].into())
}

fn udp(port: u16, other: u16) -> Packet {
    Packet::new(testkit::mac(1), testkit::mac(2))
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        .udp(port, other, b"x")
}

#[test]
fn servers_answer_from_ports_with_trust_only() {
    let lab = lab(PortGuard {
        no_dhcp_server: true,
        arp: None,
    });
    let drop = |port, packet| lab.translate(port, packet).drop;
    assert_eq!(drop("a", udp(67, 68)), Some(DropCause::PortSecurity));
    assert_eq!(drop("a", udp(68, 67)), None);
    assert_eq!(drop("b", udp(67, 68)), None);
    let v6 = |port| {
        let address = std::net::Ipv6Addr::LOCALHOST;
        Packet::new(testkit::mac(1), testkit::mac(2))
            .ipv6(address, address)
            .udp(port, 546, b"x")
    };
    assert_eq!(drop("a", v6(547)), Some(DropCause::PortSecurity));
    assert_eq!(drop("a", v6(546)), None);
}

#[test]
fn arp_names_its_own_sender() {
    let mut lab = lab(PortGuard {
        no_dhcp_server: false,
        arp: Some([std::net::Ipv4Addr::new(10, 0, 0, 1)].into()),
    });
    let drop = |lab: &Lab, port, packet| lab.translate(port, packet).drop;
    assert_eq!(drop(&lab, "a", arp(1, [10, 0, 0, 1])), None);
    assert_eq!(drop(&lab, "a", arp(1, [0, 0, 0, 0])), None, "a probe");
    assert_eq!(drop(&lab, "a", arp(1, [10, 0, 0, 2])), Some(DropCause::PortSecurity));
    assert_eq!(drop(&lab, "b", arp(1, [10, 0, 0, 2])), None);
    lab.port_mut("a").guard.arp = Some([].into());
    lab.configure();
    assert_eq!(drop(&lab, "a", arp(1, [10, 0, 0, 2])), None, "any address");
    let mut forged = arp(1, [10, 0, 0, 2]).bytes();
    forged[22 + 5] ^= 1;
    let body = forged.split_off(14);
    let forged = Packet::new(testkit::mac(1), [0xff; 6]).payload(0x0806, &body);
    assert_eq!(drop(&lab, "a", forged), Some(DropCause::PortSecurity));
}

#[test]
fn a_bridge_without_guards_does_not_look() {
    let lab = lab(PortGuard::default());
    let mask = lab.translate("a", udp(67, 68)).mask;
    assert_eq!((mask.get(Field::IpProto), mask.get(Field::TpSrc)), (0, 0));
}
