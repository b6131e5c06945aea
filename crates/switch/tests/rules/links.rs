//! The choice of links by a hash of the packet: `multipath` and `bundle`.

use crate::ask::Ask;
use crate::frozen::{bridge, udp};
use dp::Action as Step;
use flow::{Field, PortNo, extract};
use std::collections::BTreeMap;
use testkit::{Packet, mac};

#[test]
fn links_are_used_evenly() {
    let choices = ["modulo_n,5,0", "hash_threshold,5,0", "hrw,5,0", "iter_hash,5,8"];
    let multipaths = choices.map(|choice| {
        format!("actions=multipath(symmetric_l3l4+udp,1,{choice},NXM_NX_REG0[0..15]),output:NXM_NX_REG0[0..15]")
    });
    let bundle = "actions=bundle(symmetric_l3l4+udp,1,hrw,ofport,members:2,3,4,99)".to_owned();
    for (rule, least, most) in multipaths
        .iter()
        .map(|rule| (rule, 700, 900))
        .chain([(&bundle, 1200, 1480)])
    {
        let switch = bridge(&[], &[rule]);
        let mut count = BTreeMap::new();
        for port in 0..4000 {
            let actions = switch.ask(&udp(port)).translation.actions;
            if let [Step::Output(PortNo(port))] = actions[..] {
                *count.entry(port).or_insert(0) += 1;
            }
        }
        // Link 0 is no port, and port 1 is where the packets came in.
        assert!(
            [2, 3, 4].iter().all(|port| (least..most).contains(&count[port])),
            "{rule}: {count:?}"
        );
    }
}

#[test]
fn a_hash_has_only_the_fields_that_it_names() {
    let tagged = Packet::new(mac(1), mac(2)).tag(0x8100, 0x6007);
    let packet = tagged
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        .udp(5, 80, b"data");
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    for (fields, source, vlan, protocol, port) in [
        ("eth_src", 0, 0, 0, 0),
        ("nw_src", 0xffff_ffff, 0, 0, 0),
        ("symmetric_l3", 0xffff_ffff, 0, 0, 0),
        ("symmetric_l3l4", 0xffff_ffff, 0, 0xff, 0),
        ("symmetric_l3l4+udp", 0xffff_ffff, 0, 0xff, 0xffff),
        ("symmetric_l4", 0xffff_ffff, 0x1fff, 0xff, 0),
    ] {
        let rule = format!("actions=multipath({fields},1,modulo_n,5,0,NXM_NX_REG0[0..15])");
        let mask = bridge(&[], &[&rule]).ask(&key).translation.mask;
        for (field, bits) in [
            (Field::Ipv4Src, source),
            (Field::VlanTci0, vlan),
            (Field::IpProto, protocol),
            (Field::TpSrc, port),
        ] {
            assert_eq!(mask.get(field), bits, "{fields}: {field:?}");
        }
    }
}
