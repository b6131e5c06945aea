//! The text of matches, actions and flows.

use flow::MatchField as F;
use openflow::model::{Action, Body, FlowCommand, Match, Message, Port, TunMetadata};
use openflow::text::*;
use openflow::{Codec, Version};

/// What Debian's ovs-ofctl 3.1 makes of flows: version, flow, and the message as it prints it or
/// the error.
const OBSERVED: &str = include_str!("fixtures/flows.txt");

/// Reads a flow, sends it, and prints what arrived.
fn through(version: Version, text: &str) -> Result<String, String> {
    let m = parse_flow(FlowCommand::Add, text, &Names::default()).map_err(|e| e.to_string())?;
    let mut codec = Codec::new(version);
    codec.table_id = true;
    let m = openflow::model::FlowMod {
        table: m.table.or(Some(0)),
        ..m
    };
    let sent = codec.encode(&Message {
        xid: 1,
        body: Body::FlowMod(Box::new(m)),
    });
    match codec.decode(&sent) {
        Ok(Message {
            body: Body::FlowMod(m), ..
        }) => Ok(flow_mod(&m, Style::of(version))),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(format!("decode error: {e}")),
    }
}

/// Flows that are read otherwise here, and why.
const OTHERWISE: [(&str, &str); 6] = [
    (
        "tun_erspan_ver=",
        "a version is no prerequisite of the other fields here",
    ),
    ("tun_ipv6_src=::1,tun_ipv6_dst=::/64,tun_erspan", "the same"),
    (
        "tcp,tcp_flags=+fin",
        "flags without a name are printed there, and cannot be read",
    ),
    (
        "vlan_tci=5,",
        "a tag that is not there has no bits: it is the match of packets without",
    ),
    (
        "nsh_c1=3,dl_type=0x894f",
        "contexts are not left out without the metadata type",
    ),
    (
        "in_port=1,actions=set_field:1:2:3:4:5:6/ff",
        "a mask is not lost in OpenFlow 1.0",
    ),
];

#[test]
fn flows_read_and_print_as_debians_tool_does_it() {
    let (mut count, mut faults) = (0, Vec::new());
    for line in OBSERVED.lines() {
        let [minor, text, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if OTHERWISE.iter().any(|(flow, _)| text.starts_with(flow)) {
            continue;
        }
        let version = if minor == "10" { Version::V10 } else { Version::V13 };
        let expected = match expected.strip_prefix("ERR ") {
            Some(error) => Err(error.to_string()),
            None => Ok(expected.to_string()),
        };
        let got = through(version, text);
        if got != expected {
            faults.push(format!("{version} {text}\n  want {expected:?}\n  have {got:?}"));
        }
        count += 1;
    }
    assert!(count > 1300, "{count}");
    assert!(faults.is_empty(), "{} of {count}\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_is_printed_reads_as_the_same() {
    let names = Names::default();
    for line in OBSERVED.lines() {
        let text = line.split('\t').nth(1).unwrap_or_default();
        let Ok(m) = parse_flow(FlowCommand::Add, text, &names) else {
            continue;
        };
        for version in [Version::V10, Version::V13] {
            let style = Style::of(version);
            let printed = format!(
                "{} actions={}",
                matching(&m.matching, style),
                instructions(&m.instructions, style)
            );
            let again = parse_flow(FlowCommand::Add, &printed, &names);
            let again = again.unwrap_or_else(|e| panic!("{printed}: {e}"));
            // How wide a field of a tunnel's option is, the text does not know: of a value whose
            // bytes all count, no mask is printed.
            let widened = |one: &TunMetadata| !one.exact && !one.mask.is_empty() && one.mask.iter().all(|m| *m == 0xff);
            if !m.matching.tun_metadata().iter().any(widened) {
                assert_eq!(again.matching, m.matching, "{printed}");
            }
            let reprinted = instructions(&again.instructions, style);
            assert_eq!(reprinted, instructions(&m.instructions, style), "{printed}");
        }
    }
}

#[test]
fn ports_and_tables_have_names() {
    let mut names = Names::default();
    names.ports.insert(1, "eth0".into());
    names.ports.insert(2, "in port".into());
    names.tables.insert(3, "ingress".into());
    let text = "in_port=eth0 actions=output:\"in port\",resubmit(,ingress),resubmit(eth0,)";
    let m = parse_flow(FlowCommand::Add, text, &names).unwrap();
    let style = Style {
        version: Version::V13,
        names: Some(&names),
    };
    assert_eq!(matching(&m.matching, style), "in_port=eth0");
    assert_eq!(
        instructions(&m.instructions, style),
        "output:\"in port\",resubmit(,ingress),resubmit:eth0"
    );
    assert_eq!(
        instructions(&m.instructions, Style::PLAIN),
        "output:2,resubmit(,3),resubmit:1"
    );
}

#[test]
fn a_field_of_headers_that_packets_need_not_have_is_left_to_the_switch_to_refuse() {
    let read = |text: &str| {
        let flow = parse_flow_usable(FlowCommand::Add, text, &Names::default());
        flow.unwrap().0.matching
    };
    for (alone, field) in [
        ("nsh_spi=1", F::NshSpi),
        ("ct_nw_src=10.0.0.1", F::CtNwSrc),
        ("pbb_isid=5", F::PbbIsid),
    ] {
        assert!(read(&format!("{alone},actions=1")).get(field).is_some(), "{alone}");
    }
    // Those that OpenFlow 1.0 had have always been left out.
    assert_eq!(read("tp_dst=80,actions=1"), Match::ANY);
}

#[test]
fn deletions_ask_for_rules() {
    let names = Names::default();
    let m = parse_flow(
        FlowCommand::Delete,
        "table=3,cookie=5/0xf,out_port=LOCAL,out_group=7,ip",
        &names,
    )
    .unwrap();
    assert_eq!((m.cookie, m.cookie_mask, m.out_group), (5, 0xf, 7));
    assert_eq!((m.out_port, m.table), (Port::LOCAL, Some(3)));
    let e = parse_flow(FlowCommand::Delete, "cookie=5", &names).unwrap_err();
    assert_eq!(
        e.to_string(),
        "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie=5/-1)"
    );
    let e = parse_flow(FlowCommand::Add, "out_port=5,actions=drop", &names).unwrap_err();
    assert_eq!(e.to_string(), "unknown keyword out_port");
}

#[test]
fn statistics_print_as_dump_flows_does_it() {
    use openflow::model::{Duration, FlowStats};
    let m = parse_flow(FlowCommand::Add, "priority=5,ip,actions=output:2", &Names::default()).unwrap();
    let mut stats = FlowStats {
        table: 0,
        duration: Duration {
            sec: 5,
            nsec: 6_000_000,
        },
        priority: m.priority,
        idle_timeout: 10,
        hard_timeout: 0,
        idle_age: None,
        hard_age: None,
        flags: m.flags,
        importance: 0,
        cookie: 0,
        packets: 1,
        bytes: 60,
        matching: m.matching,
        instructions: m.instructions,
    };
    assert_eq!(
        flow_stats(&stats, true, Style::PLAIN),
        "cookie=0x0, duration=5.006s, table=0, n_packets=1, n_bytes=60, idle_timeout=10, priority=5,ip actions=output:2"
    );
    stats.table = 3;
    assert_eq!(
        flow_stats(&stats, false, Style::PLAIN),
        "table=3, idle_timeout=10, priority=5,ip actions=output:2"
    );
}

#[test]
fn what_open_vswitch_lacks_has_text_too() {
    let names = Names::default();
    for (text, printed) in [
        (
            "pbb,pbb_isid=0x123/0xfff,pbb_uca=1,actions=set_field:5->pbb_isid,pop_pbb,output:1",
            "dl_type=0x88e7,pbb_isid=0x123/0xfff,pbb_uca=1 actions=set_field:0x5->pbb_isid,pop_pbb,output:1",
        ),
        (
            "in_port=1,actions=push_pbb:0x88e7,2",
            "in_port=1 actions=push_pbb:0x88e7,output:2",
        ),
        (
            "ipv6,ipv6_exthdr=hop|auth,actions=drop",
            "ipv6,ipv6_exthdr=auth|hop actions=drop",
        ),
        (
            "ipv6,ipv6_exthdr=+frag-esp,actions=drop",
            "ipv6,ipv6_exthdr=-esp+frag actions=drop",
        ),
        (
            "ipv6,ipv6_exthdr=0x101/0x101,actions=drop",
            "ipv6,ipv6_exthdr=+nonext+unseq actions=drop",
        ),
        (
            "mpls,actions=copy_ttl_in,copy_ttl_out",
            "mpls actions=copy_ttl_in,copy_ttl_out",
        ),
    ] {
        let (m, usable) = parse_flow_usable(FlowCommand::Add, text, &names).unwrap();
        assert!((usable & Protocols::OF10_ANY).is_empty(), "{text}: {usable}");
        assert_eq!(flow_mod(&m, Style::PLAIN), format!("ADD {printed}"));
        assert_eq!(parse_flow(FlowCommand::Add, printed, &names).unwrap(), m);
    }
    for (text, error) in [
        ("ipv6,ipv6_exthdr=+foo", "foo: unknown IPv6 extension header flag(s)"),
        (
            "pbb,pbb_isid=0x1000000",
            "0x1000000: value too large for 3-byte field pbb_isid",
        ),
        ("ip,ipv6_exthdr=esp", "ok"),
    ] {
        let result = parse_match(text, &names);
        assert_eq!(result.err().map_or("ok".into(), |e| e.to_string()), error);
    }
}

#[test]
fn files_have_commands_comments_and_line_numbers() {
    let names = Names::default();
    let text = "ip,actions=1\n\n# nothing\n  del_strict arp # an end\n mod\ttcp,actions=2\ndelete\n";
    let commands = |text| -> Result<Vec<_>, _> {
        let flows = parse_flow_file("f", text, None, &names);
        flows.map(|flow| flow.map(|(m, _)| m.command)).collect()
    };
    assert_eq!(
        commands("add ip,actions=1\nd\nmodify_ tcp,actions=2\ndelete_strict arp"),
        Ok(vec![
            FlowCommand::Add,
            FlowCommand::Delete,
            FlowCommand::ModifyStrict,
            FlowCommand::DeleteStrict
        ])
    );
    assert_eq!(commands(text).unwrap_err().to_string(), "f:4: must specify an action");
    let mut strict = parse_flow_file("-", "add ip,actions=1", Some(FlowCommand::Add), &names);
    assert_eq!(
        strict.next().unwrap().unwrap_err().to_string(),
        "-:1: field add missing value"
    );
    let steps: Result<Vec<_>, _> = parse_bundle_file("b", "flow delete\n\npacket foo\ngroups\n", &names).collect();
    assert_eq!(steps.unwrap_err().to_string(), "b:3: field foo missing value");
    let steps: Result<Vec<_>, _> = parse_bundle_file("b", "flow delete\ngroup_mod x", &names).collect();
    assert_eq!(
        steps.unwrap_err().to_string(),
        "b:2: Unsupported bundle message type: group_mod"
    );
}

#[test]
fn monitors_tables_and_ports_have_words() {
    use openflow::model::config;
    let names = Names::default();
    let monitor = |text| parse_flow_monitor_request(text, &names);
    assert_eq!(monitor("").unwrap().0.flags, 0x3f);
    let (request, usable) = monitor("!initial,!own,table=3,out_port=LOCAL,out_group=7,ip").unwrap();
    assert_eq!((request.flags, request.table, request.out_group), (0x1e, Some(3), 7));
    assert_eq!((request.out_port, usable), (Port::LOCAL, Protocols::ANY));
    for (text, error) in [
        ("foo", "foo: field foo missing value"),
        ("ip,foo=1", "ip,foo=1: unknown keyword foo"),
        ("table=256", "unknown table \"256\""),
    ] {
        assert_eq!(monitor(text).unwrap_err().to_string(), error);
    }
    let table = |setting| parse_table_mod("3", setting, &names).map_err(|e| e.to_string());
    assert_eq!(
        table("vacancy:0x10,80"),
        Ok((Some(3), TableSetting::Vacancy(Some((16, 80)))))
    );
    assert_eq!(
        parse_table_mod("ALL", "evict", &names),
        Ok((None, TableSetting::Eviction(true)))
    );
    assert_eq!(
        TableSetting::Miss(TableMiss::Drop).versions(),
        [Version::V11, Version::V12]
    );
    for (setting, error) in [
        ("vacancy:101,102", "Invalid vacancy down value \"101\""),
        ("vacancy:20,101", "Invalid vacancy up value \"101\""),
        ("vacancy:20", "Vacancy up value missing"),
        ("vacancy", "Vacancy down value missing"),
        (
            "vacancy:80,20",
            "Invalid vacancy range, vacancy up should be greater than vacancy down (OFPBPC_BAD_VALUE)",
        ),
        ("drop,evict", "invalid table_mod setting drop,evict"),
    ] {
        assert_eq!(table(setting), Err(error.to_string()));
    }
    assert_eq!(parse_port_config("No-Flood"), Ok((config::NO_FLOOD, true)));
    assert_eq!(
        parse_port_config("foo").unwrap_err().to_string(),
        "unknown mod-port command 'foo'"
    );
}

#[test]
fn flow_formats_have_names_alone_and_together() {
    for (text, printed) in [
        ("any", "any"),
        ("NXM+table_id,nxm-table_id", "NXM"),
        ("OXM-OpenFlow12,OXM", "OXM"),
        (
            "OpenFlow11,NXM-table_id,OXM-OpenFlow15",
            "NXM-table_id,OpenFlow11,OXM-OpenFlow15",
        ),
    ] {
        assert_eq!(parse_protocols(text).unwrap().to_string(), printed);
    }
    assert_eq!(
        parse_protocols("NXM,foo").unwrap_err().to_string(),
        "foo: unknown flow protocol"
    );
    assert_eq!(
        parse_protocols("").unwrap_err().to_string(),
        ": no flow protocol specified"
    );
    assert_eq!(Protocols::NONE.to_string(), "none");
}

#[test]
fn whoever_listens_hears_what_is_left_out_of_matches() {
    let names = Names {
        notices: Notices::heard(),
        ..Names::default()
    };
    for (text, pre, post) in [
        ("tp_dst=80", "tp_dst=80", ""),
        ("ip,icmp_type=3", "ip,tp_src=3", "ip"),
        (
            "in_port=1,arp_op=1,arp_spa=1.2.3.4",
            "in_port=1,nw_src=1.2.3.4,nw_proto=1",
            "in_port=1",
        ),
        ("ip,ipv6_src=::1", "ip", "ip"),
        ("icmp6,nd_target=::1", "icmp6,nd_target=::1", "icmp6"),
        ("nw_proto=6,tcp_flags=+syn", "nw_proto=6", ""),
    ] {
        parse_flow(FlowCommand::Add, &format!("{text},actions=drop"), &names).unwrap();
        let (pre, post) = (pre.to_owned(), post.to_owned());
        assert_eq!(names.notices.take(), [Notice::LeftOut(LeftOut { pre, post })], "{text}");
    }
    for text in ["tcp,tp_dst=80", "", "tcp_flags=+syn", "ct_nw_src=1.2.3.4", "tcp,foo=3"] {
        let _ = parse_flow(FlowCommand::Add, &format!("{text},actions=drop"), &names);
        assert_eq!(names.notices.take(), [], "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_flow_or_an_error(text in "[a-z0-9_=,:/()\\[\\]>. -]{0,60}") {
        let names = Names::default();
        let _ = parse_flow(FlowCommand::Add, &text, &names);
        let _ = parse_flow(FlowCommand::Add, &format!("ip,actions={text}"), &names);
        let _ = parse_match(&text, &names);
        let _ = parse_actions(&text, &names);
    }
}

#[test]
fn a_change_of_a_tag_is_named_after_the_version_that_can_say_it() {
    let list = [Action::SetVlanVid(7), Action::SetVlanPcp(3)];
    for version in Version::ALL {
        let style = Style {
            version,
            ..Style::PLAIN
        };
        let expected = match version {
            Version::V11 => "set_vlan_vid:7,set_vlan_pcp:3",
            _ => "mod_vlan_vid:7,mod_vlan_pcp:3",
        };
        assert_eq!(actions(&list, style), expected, "{version}");
    }
}
