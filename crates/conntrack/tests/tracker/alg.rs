//! Helpers: data connections are related to their control connections, and to nothing else.

use crate::packets::*;
use conntrack::{Helper, Nat, Outcome, Packet, Range, Request, State};
use std::net::IpAddr;
use std::time::Duration;

const RELATED: State = State::from_bits(0x25);

fn with(helper: Helper, zone: u16) -> Request {
    Request {
        helper: Some(helper),
        mark: Some((9, u32::MAX)),
        label: Some((77, u128::MAX)),
        ..commit(zone)
    }
}

/// An FTP control connection, and the numbers of both sides.
struct Control {
    bench: Bench,
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    next: [u32; 2],
    zone: u16,
}

impl Control {
    fn open(v6: bool, zone: u16, request: Request) -> Control {
        let mut control = Control {
            bench: Bench::new(),
            client: (host(v6, 1), 4000),
            server: (host(v6, 2), 21),
            next: [101, 501],
            zone,
        };
        let (a, b) = (control.client, control.server);
        control.bench.state(&request, tcp(a, b, Tcp::new(SYN, 100, 0)));
        control
            .bench
            .state(&look(zone), tcp(b, a, Tcp::new(SYN | ACK, 500, 101)));
        control.bench.state(&look(zone), tcp(a, b, Tcp::new(ACK, 101, 501)));
        control
    }

    /// One side says something, in segments of these bytes.
    fn say(&mut self, from_server: bool, segments: &[&str]) {
        for text in segments {
            let side = usize::from(from_server);
            let fields = Tcp::new(ACK, self.next[side], self.next[1 - side]);
            let (src, dst) = if from_server {
                (self.server, self.client)
            } else {
                (self.client, self.server)
            };
            let mut packet = tcp_with(src, dst, fields, text.as_bytes());
            let outcome = self.bench.pass(&look(self.zone), &mut packet);
            assert!(outcome.state.has(State::EST), "{outcome:?}");
            self.next[side] += text.len() as u32;
            let ack = tcp(dst, src, Tcp::new(ACK, self.next[1 - side], self.next[side]));
            assert!(self.bench.state(&look(self.zone), ack).has(State::EST));
        }
    }

    fn data(&mut self, from: (IpAddr, u16), to: (IpAddr, u16), zone: u16) -> Outcome {
        self.bench.pass(&commit(zone), &mut tcp(from, to, Tcp::new(SYN, 1, 0)))
    }
}

#[test]
fn data_connections_are_related_in_all_four_ways() {
    for v6 in [false, true] {
        let passive = if v6 {
            "229 Extended (|||5001|)\r\n"
        } else {
            "227 Passive (10,0,0,2,19,137)\r\n"
        };
        let active = if v6 {
            "EPRT |2|fd00::1|5001|\r\n"
        } else {
            "PORT 10,0,0,1,19,137\r\n"
        };
        for (from_server, line) in [(true, passive), (false, active)] {
            let mut control = Control::open(v6, 3, with(Helper::Ftp, 3));
            let (client, server) = (control.client, control.server);
            control.say(from_server, &[line]);
            let (from, to) = if from_server {
                (client.0, (server.0, 5001))
            } else {
                (server.0, (client.0, 5001))
            };
            assert_eq!(control.data((from, 9), to, 4).state, NEW, "another zone");
            assert_eq!(control.data((host(v6, 7), 9), to, 3).state, NEW, "another host");
            assert_eq!(control.data((from, 9), (to.0, 5002), 3).state, NEW, "another port");
            let outcome = control.data((from, 9), to, 3);
            assert_eq!((outcome.state, outcome.mark, outcome.label), (RELATED, 9, 77));
            let parent = outcome.original.unwrap();
            assert_eq!((parent.src(), parent.dst_port()), (client.0, 21));
            let answer = tcp(to, (from, 9), Tcp::new(SYN | ACK, 1, 2));
            assert_eq!(control.bench.state(&look(3), answer), EST_REPLY | State::REL);
            assert_eq!(
                control.data((from, 10), to, 3).state,
                NEW,
                "an announcement is good for one connection"
            );
            let child = control
                .bench
                .all()
                .into_iter()
                .find(|c| c.original.dst_port() == 5001 && c.parent.is_some());
            assert_eq!(child.and_then(|c| c.parent), Some(parent));
        }
    }
}

#[test]
fn lines_are_read_in_pieces_and_only_from_their_beginning() {
    let expects = |from_server: bool, segments: &[&str]| {
        let mut control = Control::open(false, 0, with(Helper::Ftp, 0));
        control.say(from_server, segments);
        control.bench.tracker.conntrack().expected()
    };
    let line = "PORT 10,0,0,1,19,137\r\n";
    for cut in 1..line.len() {
        assert_eq!(expects(false, &[&line[..cut], &line[cut..]]), 1, "cut at {cut}");
    }
    // The server repeats what the client said; a segment begins with what looks like a line.
    assert_eq!(expects(true, &["500 Unknown: ", "227 (10,0,0,2,19,137)\r\n"]), 0);
    assert_eq!(expects(true, &["220 hello\r\n227 (10,0,0,2,19,137)\r\n"]), 1);
    // The other side's lines, other addresses, no helper.
    assert_eq!(expects(true, &[line]), 0);
    assert_eq!(expects(false, &["PORT 10,0,0,9,19,137\r\n"]), 0);
    assert_eq!(expects(true, &["227 (10,0,0,9,19,137)\r\n"]), 0);
    let mut control = Control::open(false, 0, commit(0));
    control.say(false, &[line]);
    assert_eq!(control.bench.tracker.conntrack().expected(), 0);
}

#[test]
fn expectations_are_bounded_time_out_and_end_with_their_control_connection() {
    let mut control = Control::open(false, 0, with(Helper::Ftp, 0));
    for port in 0..100 {
        control.say(false, &[&format!("PORT 10,0,0,1,40,{port}\r\n")]);
    }
    let conntrack = control.bench.tracker.conntrack().clone();
    assert_eq!(conntrack.expected(), 8);
    let (client, server) = (control.client.0, control.server.0);
    assert_eq!(control.data((server, 20), (client, 40 * 256 + 99), 1).state, NEW);
    assert_eq!(
        control.data((server, 20), (client, 40 * 256 + 91), 0).state,
        NEW,
        "displaced"
    );
    assert_eq!(control.data((server, 20), (client, 40 * 256 + 99), 0).state, RELATED);
    control.bench.now += Duration::from_secs(301);
    assert_eq!(
        control.data((server, 20), (client, 40 * 256 + 98), 0).state,
        NEW,
        "too late"
    );
    let id = control.bench.all().into_iter().find(|c| c.helper.is_some()).unwrap().id;
    control.bench.tracker.remove(id);
    assert_eq!(conntrack.expected(), 0);
}

#[test]
fn passive_ftp_works_through_a_translated_source() {
    let outside = host(false, 200);
    let snat = Nat::Source(Range {
        addresses: Some((outside, outside)),
        ..Range::default()
    });
    let request = Request {
        nat: Some(snat),
        ..with(Helper::Ftp, 0)
    };
    let mut control = Control::open(false, 0, request);
    let (client, server) = (control.client, control.server);
    // The handshake of `open` used the inner address: the server's answers go to the outer one.
    let answer = tcp(server, (outside, client.1), Tcp::new(SYN | ACK, 500, 101));
    let behind = Request {
        nat: Some(Nat::Existing),
        ..look(0)
    };
    control.bench.state(&behind, answer);
    control
        .bench
        .state(&behind, tcp(client, server, Tcp::new(ACK, 101, 501)));
    let line = b"227 Passive (10,0,0,2,19,137)\r\n";
    control.bench.state(
        &behind,
        tcp_with(server, (outside, client.1), Tcp::new(ACK, 501, 101), line),
    );
    let translated = Request {
        nat: Some(Nat::Existing),
        ..commit(0)
    };
    let mut packet = tcp((client.0, 7), (server.0, 5001), Tcp::new(SYN, 1, 0));
    let outcome = control.bench.pass(&translated, &mut packet);
    assert_eq!(
        outcome.state,
        RELATED | State::SNAT,
        "translated as its control connection"
    );
    assert_eq!(
        (ends(&packet), is_sound(&packet)),
        (((outside, 7), (server.0, 5001)), true)
    );
}

/// An address and a port.
type End = (IpAddr, u16);

/// A control connection through translated addresses. Each side has the other's outer address, and
/// numbers that differ from those of the other side.
struct Behind {
    bench: Bench,
    client: End,
    /// The client as the server knows it, and the server as the client knows it.
    outer: [End; 2],
    server: End,
}

impl Behind {
    /// A translated source, or a translated destination.
    fn open(v6: bool, source: bool) -> Behind {
        let (client, server, outer) = ((host(v6, 1), 4000), (host(v6, 2), 21), host(v6, 200));
        let mut behind = Behind {
            bench: Bench::new(),
            client,
            outer: if source {
                [(outer, 4000), server]
            } else {
                [client, (outer, 21)]
            },
            server,
        };
        behind.begin(client);
        behind
    }

    /// The handshake of a client.
    fn begin(&mut self, client: End) {
        self.client = client;
        let to = if self.outer[1] == self.server {
            self.outer[0].0
        } else {
            self.server.0
        };
        let range = Range {
            addresses: Some((to, to)),
            ..Range::default()
        };
        let nat = if self.outer[1] == self.server {
            Nat::Source(range)
        } else {
            Nat::Destination(range)
        };
        let request = Request {
            nat: Some(nat),
            ..with(Helper::Ftp, 0)
        };
        let mut syn = tcp(client, self.outer[1], Tcp::new(SYN, 100, 0));
        assert!(self.bench.pass(&request, &mut syn).refused.is_none());
        self.outer[0] = ends(&syn).0;
        self.send(true, SYN | ACK, (500, 101), "");
        self.send(false, ACK, (101, 501), "");
    }

    /// A packet with these numbers; the numbers and the text with which it arrives.
    fn send(
        &mut self,
        from_server: bool,
        flags: u8,
        (seq, ack): (u32, u32),
        text: &str,
    ) -> (State, (u32, u32), String) {
        let (src, dst) = if from_server {
            (self.server, self.outer[0])
        } else {
            (self.client, self.outer[1])
        };
        let request = Request {
            nat: Some(Nat::Existing),
            ..look(0)
        };
        let mut packet = tcp_with(src, dst, Tcp::new(flags, seq, ack), text.as_bytes());
        let outcome = self.bench.pass(&request, &mut packet);
        if outcome.replaced {
            packet = self.bench.tracker.replaced().remove(0);
        }
        assert!(is_sound(&packet), "{packet:x?}");
        let at = if src.0.is_ipv6() { 40 } else { 20 };
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let text = String::from_utf8(packet[at + 20..].to_vec()).unwrap();
        (outcome.state, (number(at + 4), number(at + 8)), text)
    }

    fn data(&mut self, from: End, to: End) -> (State, (End, End)) {
        let request = Request {
            nat: Some(Nat::Existing),
            ..commit(0)
        };
        let mut packet = tcp(from, to, Tcp::new(SYN, 1, 0));
        let outcome = self.bench.pass(&request, &mut packet);
        (outcome.state, ends(&packet))
    }
}

#[test]
fn lines_have_the_address_that_the_other_side_knows_and_numbers_follow() {
    let cases = [
        (false, true, "PORT 10,0,0,1,19,137\r\n", "PORT 10,0,0,200,19,137\r\n"),
        (true, true, "EPRT |2|fd00::1|5001|\r\n", "EPRT |2|fd00::c8|5001|\r\n"),
        (
            false,
            false,
            "227 Ok (10,0,0,2,19,137)\r\n",
            "227 Ok (10,0,0,200,19,137)\r\n",
        ),
        (true, false, "229 Ok (|||5001|)\r\n", "229 Ok (|||5001|)\r\n"),
    ];
    for (v6, source, line, changed) in cases {
        let mut behind = Behind::open(v6, source);
        // Who says the line, and both sides' next numbers.
        let (says, own, other) = if source { (false, 101, 501) } else { (true, 501, 101) };
        let (old, new) = (line.len() as u32, changed.len() as u32);
        for _ in 0..2 {
            // Also when it is sent again.
            let sent = behind.send(says, ACK, (own, other), line);
            assert_eq!((sent.1, sent.2.as_str()), ((own, other), changed), "{line}");
            assert!(sent.0.has(State::EST));
        }
        // The answer acknowledges what arrived; what follows comes behind it.
        let answer = behind.send(!says, ACK, (other, own + new), "200 ok\r\n");
        assert_eq!(answer.1, (other, own + old));
        let more = behind.send(says, ACK, (own + old, other + 8), "more\r\n");
        assert_eq!((more.1, more.2.as_str()), ((own + new, other + 8), "more\r\n"));
        if line != changed {
            let part = behind.send(says, ACK, (own, other), &line[..12]);
            assert!(part.0.has(State::INV), "a part of the line alone");
        }
        let (client, server, outer) = (behind.client.0, behind.server.0, behind.outer);
        let (from, to, there) = match source {
            true => (server, (outer[0].0, 5001), ((server, 9), (client, 5001))),
            false => (client, (outer[1].0, 5001), ((client, 9), (server, 5001))),
        };
        let (state, arrived) = behind.data((from, 9), to);
        assert!(state.has(RELATED), "{state:?}");
        assert_eq!(arrived, there);
        // A reset has the sender's own next number.
        let reset = behind.send(says, RST | ACK, (own + old + 6, other + 8), "");
        assert!(reset.0.has(State::EST), "{:?}", reset.0);
    }
}

#[test]
fn clients_behind_one_address_that_announce_one_port_get_two() {
    let mut behind = Behind::open(false, true);
    let line = behind.send(false, ACK, (101, 501), "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(line.2, "PORT 10,0,0,200,19,137\r\n");
    behind.begin((host(false, 3), 4000));
    let line = behind.send(false, ACK, (101, 501), "PORT 10,0,0,3,19,137\r\n");
    assert_eq!(line.2, "PORT 10,0,0,200,19,138\r\n");
    let server = (behind.server.0, 20);
    for (port, last) in [(5002, 3), (5001, 1)] {
        let (_, arrived) = behind.data(server, (host(false, 200), port));
        assert_eq!(arrived, (server, (host(false, last), 5001)));
    }
}

#[test]
fn a_line_in_two_segments_is_not_changed_and_announces_nothing() {
    let mut behind = Behind::open(false, true);
    let before = behind.bench.tracker.conntrack().statistics().announcements_ignored;
    behind.send(false, ACK, (101, 501), "PORT 10,0,");
    let rest = behind.send(false, ACK, (111, 501), "0,1,19,137\r\n");
    assert_eq!(rest.2, "0,1,19,137\r\n");
    let conntrack = behind.bench.tracker.conntrack();
    assert_eq!(conntrack.statistics().announcements_ignored, before + 1);
    assert_eq!(conntrack.expected(), 0);
}

#[test]
fn tftp_answers_are_related_through_nat_too() {
    for nat in [false, true] {
        let mut bench = Bench::new();
        let (client, server, outside) = ((host(false, 1), 4000), (host(false, 2), 69), host(false, 200));
        let snat = Nat::Source(Range {
            addresses: Some((outside, outside)),
            ports: Some((6000, 6000)),
            ..Range::default()
        });
        let request = Request {
            nat: nat.then_some(snat),
            ..with(Helper::Tftp, 0)
        };
        let mut packet = udp(client, server, b"\0\x01file\0octet\0");
        assert_eq!(bench.pass(&request, &mut packet).refused, None);
        let seen = ends(&packet).0;
        assert_eq!(seen, if nat { (outside, 6000) } else { client });
        let answers = Request {
            nat: Some(Nat::Existing),
            ..commit(0)
        };
        let mut answer = udp((server.0, 1234), seen, b"\0\x03data");
        let mut packet = Packet::new(&mut answer, false);
        packet.in_port = 2;
        let outcome = bench.tracker.track(&answers, &mut packet, bench.now);
        assert!(outcome.state.has(RELATED), "{outcome:?}");
        assert_eq!((ends(&answer), is_sound(&answer)), (((server.0, 1234), client), true));
        // What the client sends back is translated like its request.
        let mut back = udp(client, (server.0, 1234), b"\0\x04");
        let outcome = bench.pass(&answers, &mut back);
        assert!(outcome.state.has(EST_REPLY | State::REL));
        assert_eq!(ends(&back), (seen, (server.0, 1234)));
    }
}
