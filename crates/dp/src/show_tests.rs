use super::*;
use crate::{Direction, FlowSample, PuntReason, SampleData};
use std::process::Command;

fn set(field: Field, value: u128, mask: u128) -> Action {
    Action::SetField(SetField::new(field, value, mask).unwrap())
}

fn key(kind: u16, protocol: u8) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::EthType, kind.into());
    key.set(Field::IpProto, protocol.into());
    key
}

fn lists() -> Vec<(Vec<Action>, Key, &'static str)> {
    use Field as F;
    let all = u128::MAX;
    let v6 = 0x2001_0db8_u128 << 96 | 1;
    vec![
        (
            vec![
                set(F::EthDst, 0x0200_0000_0002, all),
                set(F::EthSrc, 0x0200_0000_0001, 0xffff_ff00_0000),
                set(F::Ipv4Src, 0x0a00_0001, 0xffff_ff00),
                set(F::IpTtl, 63, all),
                set(F::IpTos, 0x10, 0xfc),
                set(F::TpDst, 80, 0xff),
                Action::Output(PortNo(2)),
            ],
            key(0x800, 6),
            "set(eth(src=02:00:00:00:00:00/ff:ff:ff:00:00:00,dst=02:00:00:00:00:02)),\
             set(ipv4(src=10.0.0.0/255.255.255.0,tos=0x10/0xfc,ttl=63)),set(tcp(dst=80/0xff)),2",
        ),
        (
            vec![
                set(F::Ipv6Src, v6, all),
                set(F::Ipv6Dst, v6, all << 96),
                set(F::Ipv6Label, 0x12345, 0xff),
                set(F::IpTos, 0x10, all),
                set(F::IpTtl, 3, 0xf),
                set(F::NdTarget, v6, all),
                set(F::NdSll, 1, all),
                set(F::NdReserved, 1, all),
                set(F::NdOptionsType, 2, all),
            ],
            key(0x86dd, 58),
            "set(ipv6(src=2001:db8::1,dst=2001:db8::/ffff:ffff::,label=0x45/0xff,tclass=0x10,hlimit=3/0xf)),\
             set(nd(target=2001:db8::1,sll=00:00:00:00:00:01)),set(nd_ext(nd_reserved=0x1,nd_options_type=2))",
        ),
        (
            vec![
                set(F::ArpTpa, 0x0102_0304, 0xffff_ff00),
                set(F::ArpOp, 1, 3),
                set(F::ArpSha, 5, all),
            ],
            key(0x806, 0),
            "set(arp(tip=1.2.3.0/255.255.255.0,op=1/0x3,sha=00:00:00:00:00:05))",
        ),
        (
            vec![
                set(F::VlanTci0, 0x6005, all),
                set(F::TpSrc, 53, all),
                Action::Clone(2),
                set(F::TpSrc, 54, all),
                Action::Output(PortNo(3)),
                Action::Output(PortNo(4)),
            ],
            key(0x800, 17),
            "set(vlan(vid=5,pcp=3)),set(udp(src=53)),clone(set(udp(src=54)),3),4",
        ),
        (
            vec![
                Action::SetMpls {
                    lse: 0x500b,
                    mask: 0xff1ff,
                },
                set(F::IcmpCode, 0, all),
                set(F::IcmpType, 8, all),
            ],
            key(0x800, 1),
            "set(mpls(label=5/0xff,tc=0/0,ttl=11/0xff,bos=0/1)),set(icmp(type=8,code=0))",
        ),
        (
            vec![
                set(F::PktMark, 5, all),
                set(F::PktMark, 0x10, 0xff),
                Action::SetQueue(3),
                set(F::MplsLse0, 7 << 12 | 0x140, all),
                Action::IfLonger {
                    len: 200,
                    then: 2,
                    otherwise: 1,
                },
                Action::Punt {
                    reason: PuntReason::Controller,
                    handle: 2,
                    max_len: 100,
                },
                Action::Output(PortNo(2)),
                Action::Output(PortNo(3)),
                Action::Recirc(0x1a),
                Action::Punt {
                    reason: PuntReason::Lacp,
                    handle: 0,
                    max_len: 100,
                },
            ],
            key(0x8847, 0),
            "set(skb_mark(0x5)),set(skb_mark(0x10/0xff)),set(skb_priority(0x3)),set(mpls(label=7,tc=0,ttl=64,bos=1)),\
             check_pkt_len(size=200,gt(userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=2,\
             rule_cookie=0,controller_id=0,max_len=100)),2),le(3)),recirc(0x1a),userspace(pid=0,slow_path(lacp))",
        ),
        (
            vec![
                Action::Sample {
                    probability: u32::MAX / 8,
                    steps: 2,
                },
                Action::PopVlan,
                Action::Output(PortNo(2)),
                Action::Output(PortNo(3)),
            ],
            key(0x800, 0),
            "sample(sample=12.5%,actions(pop_vlan,2)),3",
        ),
    ]
}

#[test]
fn lists_print_as_in_open_vswitch() {
    for (actions, key, text) in lists() {
        assert_eq!(ActionList::new(&actions, &key).to_string(), text);
    }
    assert_eq!(ActionList::new(&[], &Key::ZERO).to_string(), "drop");
    let others = [
        Action::PushMpls {
            ethertype: 0x8847,
            lse: 5 << 12 | 1 << 8 | 64,
        },
        Action::PopMpls { ethertype: 0x800 },
        set(Field::IpTtl, 1, u128::MAX),
        Action::Trunc(100),
        Action::Meter(3),
        Action::PopVlan,
        Action::Output(PortNo(7)),
    ];
    let names = |port: PortNo| (port.0 == 7).then(|| String::from("eth0"));
    assert_eq!(
        ActionList::new(&others, &key(0x86dd, 0)).with_names(&names).to_string(),
        "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x800),set(ipv4(ttl=1)),trunc(100),meter(3),pop_vlan,eth0"
    );
}

#[test]
fn open_vswitch_reads_what_is_printed_and_prints_the_same() {
    for (_, _, text) in lists() {
        // It does not read the number as it prints it.
        let readable = text.replace("recirc(0x1a)", "recirc(26)");
        let Ok(output) = Command::new("ovs-dpctl").args(["parse-actions", &readable]).output() else {
            eprintln!("skipped: there is no ovs-dpctl");
            return;
        };
        let theirs = String::from_utf8_lossy(&output.stdout);
        assert_eq!(theirs.trim_end(), text);
    }
}

#[test]
fn samples_show_what_the_switch_knows_of_them() {
    let known = |handle: u32| {
        Some(UserData::Sample(match handle {
            1 => SampleData::Sflow {
                tci: 0x6005,
                output: 0x8000_0002,
                labels: crate::Labels::default(),
            },
            2 => SampleData::Ipfix {
                output_port: u32::MAX,
                dropped: false,
            },
            3 => SampleData::Flow(FlowSample {
                probability: 12345,
                collector_set: 1,
                domain: 100,
                point: 200,
                output_port: 3,
                tunnel_out: true,
                direction: None,
            }),
            4 => SampleData::Flow(FlowSample {
                probability: 65535,
                collector_set: 1,
                domain: 0,
                point: 0,
                output_port: u32::MAX,
                tunnel_out: false,
                direction: Some(Direction::Egress),
            }),
            _ => return None,
        }))
    };
    let shown = |probability: u32, handle| {
        let actions = [
            Action::Sample { probability, steps: 1 },
            Action::Punt {
                reason: PuntReason::Sample,
                handle,
                max_len: u16::MAX,
            },
            Action::Output(PortNo(2)),
        ];
        let key = key(0x800, 6);
        ActionList::new(&actions, &key).with_user_data(&known).to_string()
    };
    assert_eq!(
        shown(u32::MAX, 1),
        "userspace(pid=0,sFlow(vid=5,pcp=3,output=2147483650),actions),2"
    );
    assert_eq!(
        shown(u32::MAX / 10, 2),
        "sample(sample=10.0%,actions(userspace(pid=0,ipfix(output_port=4294967295)))),2"
    );
    assert_eq!(
        shown(12345 << 16 | 12345, 3),
        "sample(sample=18.8%,actions(userspace(pid=0,flow_sample(probability=12345,collector_set_id=1,\
         obs_domain_id=100,obs_point_id=200,output_port=3),tunnel_out_port=3))),2"
    );
    assert_eq!(
        shown(u32::MAX, 4),
        "userspace(pid=0,flow_sample(probability=65535,collector_set_id=1,obs_domain_id=0,obs_point_id=0,\
         output_port=4294967295,egress)),2"
    );
    assert_eq!(
        shown(0, 5),
        "sample(sample=0.0%,actions(userspace(pid=0,slow_path(sample)))),2"
    );
}
