mod frames;
mod hostile;
mod machine;

use super::{Config, Lldp, MOST, MOST_OF_PORT, Neighbor, PortConfig};
use crate::lldp::auto_attach::{Assignment, Element, Isid, Status};
use crate::lldp::wire::{Capabilities, Id, Lldpdu, NEAREST_BRIDGE};
use ::wire::{MacAddr, Vid};

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

/// An LLDPDU with every TLV.
fn full(last: u8) -> Lldpdu {
    let mut pdu = Lldpdu::new(Id::chassis(mac(last)), Id::port("eth9"), 120);
    pdu.port_description = b"port nine".to_vec();
    pdu.system_name = b"sys9".to_vec();
    pdu.system_description = b"a switch".to_vec();
    pdu.capabilities = Some(Capabilities::BRIDGE);
    pdu.management = vec!["10.0.0.9".parse().unwrap(), "fe80::9".parse().unwrap()];
    pdu.element = Some(Element::virtual_switch(mac(last)));
    pdu.assignments = vec![assignment(100, 10), assignment(200, 20)];
    pdu
}

fn assignment(isid: u32, vlan: u16) -> Assignment {
    Assignment {
        status: Status::REQUEST,
        vlan: Vid::new(vlan).unwrap(),
        isid: Isid::new(isid).unwrap(),
    }
}

/// The frame of an LLDPDU of these TLVs, the end included.
fn raw(tlvs: &[(u16, &[u8])]) -> Vec<u8> {
    let mut frame = [&NEAREST_BRIDGE.0[..], &mac(9).0, &[0x88, 0xcc]].concat();
    for (kind, body) in tlvs {
        frame.extend((kind << 9 | body.len() as u16).to_be_bytes());
        frame.extend(*body);
    }
    frame
}

const CHASSIS: (u16, &[u8]) = (1, &[4, 2, 0, 0, 0, 0, 9]);
const PORT: (u16, &[u8]) = (2, b"\x05eth9");
const TTL: (u16, &[u8]) = (3, &[0, 120]);
const END: (u16, &[u8]) = (0, &[]);
