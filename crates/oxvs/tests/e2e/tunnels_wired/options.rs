//! Options of Geneve in fields (`tun_metadata`), mapped and matched by Debian's `ovs-ofctl`.

use super::{End, V4, Wired, decoded, inner};
use openflow::model::{Body, BundleAdd, BundleControl, FlowCommand, Message, TlvMap};
use openflow::text::{Names, parse_flow};
use openflow::{Codec, ErrorKind, Framer, OfError, Version};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use testkit::{eventually, skip};

const MAP: &str = "{class=0x102,type=0x80,len=4}->tun_metadata0,{class=0x103,type=1,len=12}->tun_metadata1,\
                   {class=0x104,type=2,len=16}->tun_metadata5,{class=0x105,type=3,len=124}->tun_metadata40,\
                   {class=0x106,type=4,len=96}->tun_metadata63";

/// A host's packet to 10.0.0.N has the options of N.
const RULES: &str = "\
in_port=99,ip,nw_dst=10.0.0.2,actions=set_field:0xa1b2c3d4->tun_metadata0,1
in_port=99,ip,nw_dst=10.0.0.3,actions=set_field:0x112233445566778899aabbcc->tun_metadata1,set_field:0x5->tun_metadata0,1
in_port=99,ip,nw_dst=10.0.0.4,actions=move:nw_src[]->tun_metadata1[0..31],load:0x7->tun_metadata1[64..70],1
in_port=99,ip,nw_dst=10.0.0.5,actions=set_field:0xff->tun_metadata5,1
in_port=99,ip,nw_dst=10.0.0.6,actions=1
in_port=99,ip,nw_dst=10.0.0.7,actions=set_field:0xLONG->tun_metadata40,move:nw_src[]->tun_metadata63[700..731],1
in_port=1,priority=9,tun_metadata0=0xa1b2c3d4,tun_id=7,nw_dst=10.0.0.2,ip,actions=99
in_port=1,priority=8,tun_metadata1=0x112200000000000000000000/0xffff00000000000000000000,tun_metadata0=5,actions=99
in_port=1,priority=7,tun_metadata1=0x7000000000a000001,ip,nw_dst=10.0.0.4,actions=move:tun_metadata1[0..31]->nw_dst[],99
in_port=1,priority=6,tun_metadata5=0xff,actions=99
in_port=1,priority=6,ip,tun_metadata40=0xLONG,tun_metadata63,actions=move:tun_metadata63[700..731]->nw_dst[],99
in_port=1,priority=5,tun_metadata0,actions=drop
in_port=1,priority=4,ip,nw_dst=10.0.0.6,actions=99
";

#[test]
fn options_of_geneve_are_fields_at_both_ends() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    let mut wired = Wired::beside();
    wired.tunnel(1, "type=geneve options:key=7", V4);
    for end in &wired.ends {
        end.switch.tool("ovs-ofctl", &["add-tlv-map", "br0", MAP]).expect_ok();
    }
    wired.rules(&RULES.replace("LONG", &"0123456789abcdef".repeat(16)[..248]));
    let sent = [0, 1].map(|from| {
        let mut all = Vec::new();
        for to in 2..=7 {
            let frame = inner(to);
            let (outer, came) = wired.carry(from, &[frame.clone(), frame.clone()], 1);
            if to == 4 || to == 7 {
                assert!(came[1 - from].iter().all(|frame| frame[30..34] == [10, 0, 0, 1]));
            } else {
                assert_eq!(came[1 - from], [frame.clone(), frame], "{to} from {from}");
            }
            all.extend(outer);
        }
        let shown = decoded(
            &all,
            &[],
            &["geneve.vni", "geneve.option.class", "geneve.option.length"],
        );
        assert_eq!(shown.iter().filter(|line| line.contains("0x0102")).count(), 4);
        all.iter()
            .map(|frame| testkit::to_hex(&frame[42..]))
            .collect::<Vec<_>>()
    });
    assert_eq!(sent[0], sent[1], "both ends send the same");
    // Without the map the options are nobody's, and packets have no field.
    for end in &wired.ends {
        end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        end.switch.tool("ovs-ofctl", &["del-tlv-map", "br0"]).expect_ok();
    }
    wired.rules("in_port=99,ip,actions=1\nin_port=1,ip,actions=99");
    for from in [0, 1] {
        let (_, came) = wired.carry(from, &[inner(2)], 1);
        assert_eq!(came[1 - from], [inner(2)]);
    }
}

/// A controller's connection to `br0`.
struct Connection {
    stream: UnixStream,
    codec: Codec,
    framer: Framer,
}

impl Connection {
    fn new(end: &End) -> Connection {
        let stream = UnixStream::connect(end.switch.sandbox.path("br0.mgmt")).unwrap();
        (&stream).write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        Connection {
            stream,
            codec: Codec::new(Version::V13),
            framer: Framer::new(),
        }
    }

    /// Sends a request; the error that is the answer.
    fn ask(&mut self, body: Body) -> Option<OfError> {
        for (xid, body) in [(7, body), (8, Body::BarrierRequest)] {
            let bytes = self.codec.encode(&Message { xid, body });
            self.stream.write_all(&bytes).unwrap();
        }
        let mut refused = None;
        loop {
            while let Some(bytes) = self.framer.next().unwrap() {
                // The greeting may be of a later version.
                if bytes[1] == 0 {
                    continue;
                }
                match self.codec.decode(bytes).unwrap().body {
                    Body::BarrierReply => return refused,
                    Body::Error(error) => match error.kind {
                        ErrorKind::Known(error) => refused = Some(error),
                        other => panic!("{other:?}"),
                    },
                    _ => {}
                }
            }
            let mut bytes = [0; 4096];
            let n = self.stream.read(&mut bytes).unwrap();
            assert!(n > 0, "the switch has closed the connection");
            self.framer.push(&bytes[..n]);
        }
    }

    fn map(&mut self, command: u16, class: u16, index: u16) -> Option<OfError> {
        let map = TlvMap {
            class,
            kind: 0x80,
            len: 4,
            index,
        };
        let maps = if command == CLEAR { Vec::new() } else { vec![map] };
        self.ask(Body::TlvTableMod { command, maps })
    }

    fn rule(&mut self, command: FlowCommand, text: &str) -> Option<OfError> {
        self.ask(flow_mod(command, text))
    }

    /// The opening, the commit and so on of a bundle.
    fn bundle(&mut self, kind: u16) -> Option<OfError> {
        self.ask(Body::BundleControl(BundleControl {
            bundle: 5,
            kind,
            flags: 3,
        }))
    }

    fn bundled(&mut self, text: &str) -> Option<OfError> {
        let body = flow_mod(FlowCommand::Add, text);
        let message = self.codec.encode(&Message { xid: 7, body });
        self.ask(Body::BundleAdd(BundleAdd {
            bundle: 5,
            flags: 3,
            message,
        }))
    }
}

const ADD: u16 = 0;
const DELETE: u16 = 1;
const CLEAR: u16 = 2;
const OPEN: u16 = 0;
const COMMIT: u16 = 4;

fn flow_mod(command: FlowCommand, text: &str) -> Body {
    let mut change = parse_flow(command, text, &Names::default()).unwrap();
    change.table = Some(0);
    Body::FlowMod(Box::new(change))
}

#[test]
fn the_map_is_one_for_all_connections_and_open_bundles_keep_what_they_use() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    let mut wired = Wired::beside();
    wired.tunnel(1, "type=geneve options:key=7", V4);
    let steps = |end: &End| {
        let (mut one, mut other) = (Connection::new(end), Connection::new(end));
        let mut said = vec![
            other.rule(FlowCommand::Add, "priority=5,tun_metadata0=1,actions=drop"),
            one.map(ADD, 0x102, 0),
            // The other connection uses the map of the first, which then cannot take it away.
            other.rule(FlowCommand::Add, "priority=5,tun_metadata0=1,actions=drop"),
            one.map(DELETE, 0x102, 0),
            other.map(ADD, 0x103, 0),
            other.map(ADD, 0x103, 1),
            one.rule(
                FlowCommand::Add,
                "priority=6,tun_metadata0=1,tun_metadata1=2,actions=drop",
            ),
            other.map(DELETE, 0x103, 1),
        ];
        end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        // Open vSwitch frees rules a little later.
        eventually("rules let go of the map", || {
            other.map(CLEAR, 0, 0).is_none().then_some(())
        });
        let in_port = "priority=9,in_port=1,tun_metadata0=0xa1b2c3d4,ip,actions=99";
        said.extend([
            one.bundle(OPEN),
            one.bundled(in_port),
            other.map(ADD, 0x102, 0),
            one.bundled(in_port),
            // What would give the field of a rule in flight another meaning is refused.
            other.map(CLEAR, 0, 0),
            other.map(DELETE, 0x102, 0),
            other.map(ADD, 0x109, 0),
            other.map(ADD, 0x103, 1),
            other.map(DELETE, 0x103, 1),
            one.bundle(COMMIT),
        ]);
        let send = "in_port=99,ip,actions=set_field:0xa1b2c3d4->tun_metadata0,1";
        said.push(other.rule(FlowCommand::Add, send));
        said
    };
    let said = wired.ends.each_ref().map(steps);
    assert_eq!(said[0], said[1], "both switches answer the same");
    assert!(said[0].contains(&Some(OfError::NxTtmfcInvalidTlvDel)));
    for from in [0, 1] {
        let (outer, came) = wired.carry(from, &[inner(2)], 1);
        assert_eq!(came[1 - from], [inner(2)]);
        assert_eq!(decoded(&outer, &[], &["geneve.option.class"]), ["0x0102"]);
    }
    // A bundle goes with its connection.
    for end in &wired.ends {
        end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        let (mut one, mut other) = (Connection::new(end), Connection::new(end));
        one.bundle(OPEN);
        assert_eq!(one.bundled("tun_metadata0=7,actions=drop"), None);
        assert_eq!(other.map(CLEAR, 0, 0), Some(OfError::NxTtmfcInvalidTlvDel));
        drop(one);
        eventually("the bundle is gone", || other.map(CLEAR, 0, 0).is_none().then_some(()));
    }
}
