//! `autoattach/*` beside Open vSwitch's, and the columns that auto-attach changes.

use crate::run::binary;
use testkit::{Options, Vswitch, eventually, skip, to_hex};

const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// An LLDPDU of an auto-attach server, with a description and its answer for the service 200.
fn server(description: &[u8], status: u8) -> Vec<u8> {
    let tlv = |kind: u16, body: &[u8]| [&(kind << 9 | body.len() as u16).to_be_bytes()[..], body].concat();
    let digest = [0; 32];
    let element = [
        &[0, 4, 0x0d, 11],
        &digest[..],
        &[0x0c, 0, 0, 0],
        &SERVER,
        &[0x20, 1, 0, 1],
    ]
    .concat();
    let assignments = [&[0, 4, 0x0d, 12], &digest[..], &[status << 4, 20, 0, 0, 200]].concat();
    let parts = [
        vec![0x01, 0x80, 0xc2, 0, 0, 0x0e],
        SERVER.to_vec(),
        vec![0x88, 0xcc],
        tlv(1, &[&[4], &SERVER[..]].concat()),
        tlv(2, b"\x05eth9"),
        tlv(3, &[0, 120]),
        tlv(5, b"sys9"),
        if description.is_empty() {
            Vec::new()
        } else {
            tlv(6, description)
        },
        tlv(127, &[0, 0x80, 0xc2, 1, 0, 0]),
        tlv(127, &element),
        tlv(127, &assignments),
        tlv(0, &[]),
    ];
    parts.concat()
}

/// The answers of both, Open vSwitch's first, without what depends on the moment.
fn answers(both: &[Vswitch; 2], command: &[&str]) -> [String; 2] {
    let timeless = |line: &str| !line.starts_with("  tx cnt: ");
    both.each_ref().map(|switch| {
        let done = switch.try_appctl(command);
        let lines: Vec<&str> = done.stdout.lines().filter(|line| timeless(line)).collect();
        format!("{:?}\n{}\n{}", done.status, lines.join("\n"), done.stderr)
    })
}

/// Both come to the same answer, which has this text.
#[track_caller]
fn agree(both: &[Vswitch; 2], command: &str, text: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut last = Default::default();
    for _ in 0..100 {
        last = answers(both, &words);
        if last[0] == last[1] && last[1].contains(text) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(last[1], last[0], "{command}");
    panic!("{command}: without {text:?}\n{}", last[1]);
}

#[test]
fn auto_attach_answers_as_open_vswitchs() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server");
    let both = [
        Vswitch::debian(Options::default()),
        Vswitch::oxvs(binary(), Options::default()),
    ];
    let all = |command: &str| {
        for switch in &both {
            switch.vsctl(command);
        }
    };
    for command in ["status", "show-isid", "statistics"] {
        agree(&both, &format!("autoattach/{command}"), "Some(0)");
    }
    all(
        "add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port br0 p1 -- set interface p1 type=dummy lldp:enable=true \
         -- add-port br0 p2 -- set interface p2 type=dummy lldp:enable=false",
    );
    for command in ["status", "show-isid", "statistics"] {
        agree(&both, &format!("autoattach/{command}"), "p1");
    }
    all("add-aa-mapping br0 200 20");
    agree(&both, "autoattach/show-isid br0", "Pending");
    for status in 0..16 {
        for switch in &both {
            let frame = to_hex(&server(b"srv", status));
            switch.appctl(&["netdev-dummy/receive", "p1", &frame]);
        }
        let text = match status {
            2 => "Active",
            4 => "AA resources",
            _ => "200",
        };
        agree(&both, "autoattach/show-isid", text);
    }
    agree(&both, "autoattach/status", "02:00:00:00:00:09:01:00:01:00:00:01");
    for switch in &both {
        let whole = server(b"", 2);
        for frame in [&whole[..], &whole[..38]] {
            switch.appctl(&["netdev-dummy/receive", "p1", &to_hex(frame)]);
        }
    }
    agree(&both, "autoattach/status", "<None>");
    agree(&both, "autoattach/statistics", "rx discarded cnt: 1");
    let trunks = |expected: &str| {
        for switch in &both {
            switch.wait_for("port", "p1", "trunks", |trunks| trunks == expected);
        }
    };
    trunks("[20]");
    all("set port p1 trunks=20,30 -- add-aa-mapping br0 300 40");
    trunks("[20, 30, 40]");
    all("del-aa-mapping br0 200 20");
    trunks("[30, 40]");
    eventually("a port without LLDP keeps its trunks", || {
        let same = both.iter().all(|switch| switch.get("port", "p2", "trunks") == "[]");
        same.then_some(())
    });
    agree(&both, "autoattach/show-isid", "300");
}
