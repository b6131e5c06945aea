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
    control.bench.state(&look(0), answer);
    control
        .bench
        .state(&look(0), tcp(client, server, Tcp::new(ACK, 101, 501)));
    let line = b"227 Passive (10,0,0,2,19,137)\r\n";
    control.bench.state(
        &look(0),
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
    // The client's own address in a line is hidden from the server.
    let before = control.bench.tracker.conntrack().statistics().announcements_ignored;
    let line = b"PORT 10,0,0,1,19,137\r\n";
    control
        .bench
        .state(&look(0), tcp_with(client, server, Tcp::new(ACK, 101, 532), line));
    assert_eq!(
        control.bench.tracker.conntrack().statistics().announcements_ignored,
        before + 1
    );
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
