//! Reads and writes as many flow-mods as is said, for measurements of what one costs:
//! `codec decode|encode 10000`.

use flow::MatchField as F;
use openflow::model::{Action, Body, FlowMod, Instructions, Match, Message, Port};
use openflow::{Codec, Version};
use std::hint::black_box;

fn main() {
    let mut args = std::env::args().skip(1);
    let decode = args.next().is_some_and(|word| word == "decode");
    let count: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut matching = Match::ANY;
    matching.set(F::EthType, 0x800, 0xffff);
    matching.set(F::IpSrc, 0x0a00_0000, 0xffff_ff00);
    matching.set(F::IpDst, 0x0a01_0000, 0xffff_0000);
    let output = Action::Output {
        port: Port(2),
        max_len: 0,
    };
    let flow = FlowMod {
        table: Some(0),
        new_cookie: Some(0),
        matching,
        instructions: Instructions::apply(vec![output]),
        ..FlowMod::default()
    };
    let message = Message {
        xid: 1,
        body: Body::FlowMod(Box::new(flow)),
    };
    let codec = Codec::new(Version::V13);
    let bytes = codec.encode(&message);
    for _ in 0..count {
        match decode {
            true => drop(black_box(codec.decode(black_box(&bytes)))),
            false => drop(black_box(codec.encode(black_box(&message)))),
        }
    }
}
