//! Dumps as Debian's Open vSwitch 3.1 prints them for the same packets.

use crate::packets::*;
use conntrack::{Request, Style};
use std::time::Duration;

const PLAIN: &str = "\
icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=77,type=8,code=0),reply=(src=10.0.0.2,dst=10.0.0.1,id=77,type=0,code=0),zone=5,mark=7,labels=0x1234
icmpv6,orig=(src=fd00::1,dst=fd00::2,id=77,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=77,type=129,code=0)
tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1000),zone=5,mark=7,labels=0x1234,protoinfo=(state=ESTABLISHED)
tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1001,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1001),zone=5,mark=7,labels=0x1234,protoinfo=(state=SYN_SENT)
udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=53),reply=(src=10.0.0.2,dst=10.0.0.1,sport=53,dport=1000),zone=5,mark=7,labels=0x1234
47,orig=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=0),reply=(src=10.0.0.2,dst=10.0.0.1,sport=0,dport=0),zone=5,mark=7,labels=0x1234";

const BOTH: &str = "\
icmpv6,orig=(src=fd00::1,dst=fd00::2,id=77,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=77,type=129,code=0),id=0,status=0,timeout=58
tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1000),id=0,zone=5,status=0,timeout=86398,mark=7,labels=0x1234,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,wscale_orig=7,wscale_reply=7,flags_orig=WINDOW_SCALE,flags_reply=WINDOW_SCALE)
tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1001,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1001),id=0,zone=5,status=0,timeout=28,mark=7,labels=0x1234,protoinfo=(state_orig=SYN_SENT,state_reply=CLOSED,flags_orig=0,flags_reply=0)";

#[test]
fn lines_are_those_of_open_vswitch() {
    let mut bench = Bench::new();
    let (a, b) = (host(false, 1), host(false, 2));
    let request = Request {
        mark: Some((7, u32::MAX)),
        label: Some((0x1234, u128::from(u64::MAX))),
        ..commit(5)
    };
    let scaled = |flags, seq, ack| Tcp {
        shift: Some(7),
        ..Tcp::new(flags, seq, ack)
    };
    for packet in [
        tcp((a, 1000), (b, 80), scaled(SYN, 1, 0)),
        tcp((b, 80), (a, 1000), scaled(SYN | ACK, 5, 2)),
        tcp((a, 1000), (b, 80), Tcp::new(ACK, 2, 6)),
        tcp((a, 1001), (b, 80), Tcp::new(SYN, 1, 0)),
        udp((a, 1000), (b, 53), b"xx"),
        echo(a, b, false, 77),
        ip(a, b, 47, vec![0; 8], None),
    ] {
        bench.state(&request, packet);
    }
    bench.state(&commit(0), echo(host(true, 1), host(true, 2), false, 77));
    bench.now += Duration::from_millis(1500);
    let lines = |bench: &mut Bench, style: Style| {
        let mut lines: Vec<String> = bench.all().iter().map(|c| c.line(style).to_string()).collect();
        lines.sort();
        lines
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&mut bench, Style::default()), sorted(PLAIN));
    let style = Style {
        verbose: true,
        statistics: true,
        counters: false,
    };
    let both = lines(&mut bench, style);
    for line in BOTH.lines() {
        assert!(both.iter().any(|own| own == line), "{line}\n{both:#?}");
    }
    let counted = Style {
        counters: true,
        ..style
    };
    let with_counters = "type=128,code=0,packets=1,bytes=52),reply=(";
    assert!(
        lines(&mut bench, counted)
            .iter()
            .any(|line| line.contains(with_counters))
    );
}
