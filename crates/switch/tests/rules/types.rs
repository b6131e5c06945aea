//! Packets of other types than Ethernet: `encap`, `decap`, network service headers.

use crate::ask::Ask;
use crate::frozen::bridge;
use dp::{ActionList, DropCause};
use flow::{Field, Key, PacketMeta, PortNo, extract};
use testkit::{Packet, mac};

/// The actions for a packet, as text; the first handle of a recirculation is 1 there.
fn actions(rules: &[&str], key: &Key) -> String {
    let translation = bridge(&[], rules).ask(key).translation;
    let text = ActionList::new(&translation.actions, key).to_string();
    match text.find("recirc(") {
        Some(at) => format!("{}recirc", &text[..at]),
        None => text,
    }
}

fn udp() -> Key {
    let packet = Packet::new(mac(1), mac(2))
        .ipv4([1, 1, 1, 1].into(), [2, 2, 2, 2].into())
        .udp(5, 6, &[]);
    extract(&packet.bytes(), &PortNo(1).into()).unwrap()
}

/// The header, and an Ethernet header behind it.
fn nsh(ttl: u8, protocol: u8) -> Key {
    let mut header = vec![0; 8 + 16 + 14];
    let first = u16::from(ttl) << 6 | 6;
    header[..2].copy_from_slice(&first.to_be_bytes());
    header[2..8].copy_from_slice(&[1, protocol, 0, 0x12, 0x34, 255]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x894f, &header);
    extract(&packet.bytes(), &PortNo(1).into()).unwrap()
}

const NO_ADDRESSES: &str = "push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00)";

#[test]
fn headers_that_are_pushed_have_what_later_actions_give_them() {
    let rule = "actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c1,dec_nsh_ttl,\
                encap(ethernet),set_field:11:22:33:44:55:66->eth_dst,output:2";
    let expected = "push_nsh(flags=0,ttl=62,mdtype=1,np=3,spi=0x1234,si=255,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0),\
                    push_eth(src=00:00:00:00:00:00,dst=11:22:33:44:55:66),2";
    assert_eq!(actions(&[rule], &udp()), expected);
    let rule = "actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),\
                encap(ethernet),output:2";
    let expected = format!(
        "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x0,si=255,md2=0x10000a041234567820001408fedcba9876543210),\
         {NO_ADDRESSES},2"
    );
    assert_eq!(actions(&[rule], &udp()), expected);
    let rule = "actions=decap(),encap(mpls),set_field:5->mpls_label,encap(ethernet),output:2";
    let expected = format!("pop_eth,add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),{NO_ADDRESSES},2");
    assert_eq!(actions(&[rule], &udp()), expected);
}

#[test]
fn a_received_service_header_is_changed_and_popped() {
    let rule = "dl_type=0x894f,actions=dec_nsh_ttl,set_field:5->nsh_si,set_field:0x10->nsh_c2,output:2";
    assert_eq!(actions(&[rule], &nsh(63, 3)), "set(nsh(ttl=62,si=5,c2=0x10)),2");
    let rule = "dl_type=0x894f,actions=decap(),decap(),output:2";
    assert_eq!(actions(&[rule], &nsh(63, 3)), "pop_eth,pop_nsh(),recirc");
    for (rule, key) in [
        (rule, nsh(63, 7)),
        ("actions=decap(),decap(),output:2", udp()),
        ("actions=encap(ethernet),output:2", udp()),
        ("actions=decap(),output:2", udp()),
    ] {
        let translation = bridge(&[], &[rule]).ask(&key).translation;
        assert_eq!(translation.drop, Some(DropCause::PacketType), "{rule}");
    }
}

#[test]
fn conditions_on_ethernet_are_met_by_ethernet_packets_only() {
    for (table1, meets) in [
        ("ip", false),
        ("dl_src=00:00:00:00:00:00", false),
        ("packet_type=(1,0x86dd)", false),
        ("packet_type=(1,0x800),nw_dst=2.2.2.2", true),
        ("in_port=1", true),
    ] {
        let rules = [
            "actions=decap(),resubmit(,1)",
            &format!("table=1,{table1},actions=encap(ethernet),output:2"),
        ];
        let expected = if meets {
            format!("pop_eth,{NO_ADDRESSES},2")
        } else {
            String::from("drop")
        };
        assert_eq!(actions(&rules, &udp()), expected, "{table1}");
    }
}

#[test]
fn collectors_and_patch_ports_get_ethernet_packets_only() {
    let rules = ["actions=decap(),output:2,flood,encap(ethernet),output:2"];
    assert_eq!(actions(&rules, &udp()), format!("pop_eth,{NO_ADDRESSES},2"));
}

#[test]
fn a_megaflow_behind_a_header_covers_packets_of_one_type() {
    let rules = ["dl_type=0x894f,actions=decap(),decap(),output:2"];
    let mut switch = bridge(&[], &rules);
    let first = switch.ask(&nsh(63, 3));
    switch.accept(&first, nanos::Nanos::ZERO).unwrap();
    let handle = first.translation.actions.iter().find_map(|action| match action {
        dp::Action::Recirc(handle) => Some(*handle),
        _ => None,
    });
    let mut meta = PacketMeta::received(PortNo(1));
    meta.recirc_id = handle.unwrap();
    let inner = Packet::new(mac(3), mac(4))
        .ipv4([1, 1, 1, 1].into(), [2, 2, 2, 2].into())
        .udp(5, 6, &[])
        .bytes();
    let ethernet = extract(&inner, &meta).unwrap();
    meta.set_packet_type(0x1_0800);
    let bare = extract(&inner, &meta).unwrap();
    let sent = switch.ask(&ethernet).translation;
    assert_eq!(ActionList::new(&sent.actions, &ethernet).to_string(), "2");
    assert_eq!(sent.mask.get(Field::PacketType), u128::from(u32::MAX));
    let dropped = switch.ask(&bare).translation;
    assert_eq!(dropped.drop, Some(DropCause::PacketType));
    assert_eq!(dropped.mask.get(Field::PacketType), u128::from(u32::MAX));
}
