//! NAT: what is translated comes back, tuples are unique, errors are translated inside too.

use crate::packets::*;
use conntrack::{Before, Checksum, Filter, Nat, Packet, PortsBy, Range, Refusal, Request, State};
use std::collections::BTreeMap;
use std::net::IpAddr;
use testkit::Rng;

fn nat(zone: u16, nat: Nat) -> Request {
    Request {
        nat: Some(nat),
        ..commit(zone)
    }
}

fn existing(zone: u16) -> Request {
    Request {
        nat: Some(Nat::Existing),
        ..look(zone)
    }
}

fn to(address: IpAddr) -> Range {
    Range {
        addresses: Some((address, address)),
        ..Range::default()
    }
}

const SNAT: State = State::SNAT;
const DNAT: State = State::DNAT;

#[test]
fn a_translated_source_comes_back_for_every_protocol() {
    for v6 in [false, true] {
        let (client, server, outside) = (host(v6, 1), host(v6, 2), host(v6, 200));
        let (a, b) = ((client, 4000), (server, 80));
        type Make = fn((IpAddr, u16), (IpAddr, u16), bool) -> Vec<u8>;
        let makes: [Make; 4] = [
            |a, b, _| udp(a, b, b"some data"),
            |a, b, reply| tcp(a, b, Tcp::new(if reply { SYN | ACK } else { SYN }, 1, 2)),
            |a, b, reply| match reply {
                false => sctp(a, b, 0, 1, 7),
                true => sctp(a, b, 7, 2, 9),
            },
            |a, b, reply| echo(a.0, b.0, reply, if reply { b.1 } else { a.1 }),
        ];
        for (protocol, make) in makes.into_iter().enumerate() {
            let mut bench = Bench::new();
            let mut request = make(a, b, false);
            assert!(is_sound(&request));
            let outcome = bench.pass(&nat(0, Nat::Source(to(outside))), &mut request);
            assert_eq!((outcome.state, outcome.translated), (NEW | SNAT, true));
            assert!(is_sound(&request), "v6 {v6}, protocol {protocol}");
            let seen = make((outside, a.1), b, false);
            assert_eq!(request, seen, "the address changed and nothing else");
            // The answer goes to the outer address, and comes back to the inner one.
            let mut reply = make(b, (outside, a.1), true);
            let outcome = bench.pass(&existing(0), &mut reply);
            assert_eq!(outcome.state, EST_REPLY | SNAT);
            assert_eq!(reply, make(b, a, true));
            // Without `nat` the packet stays as it is.
            let mut reply = make(b, (outside, a.1), true);
            let outcome = bench.pass(&look(0), &mut reply);
            assert_eq!((outcome.state, outcome.translated), (EST_REPLY, false));
            assert_eq!(reply, make(b, (outside, a.1), true));
        }
    }
}

#[test]
fn a_translated_destination_comes_back() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, service, server) = ((host(v6, 1), 4000), (host(v6, 50), 80), (host(v6, 2), 8080));
        let range = Range {
            ports: Some((8080, 8080)),
            ..to(server.0)
        };
        let request = nat(3, Nat::Destination(range));
        let mut packet = tcp(a, service, Tcp::new(SYN, 1, 0));
        assert_eq!(bench.pass(&request, &mut packet).state, NEW | DNAT);
        assert_eq!((ends(&packet), is_sound(&packet)), ((a, server), true));
        let mut packet = tcp(server, a, Tcp::new(SYN | ACK, 1, 2));
        assert_eq!(bench.pass(&existing(3), &mut packet).state, EST_REPLY | DNAT);
        assert_eq!((ends(&packet), is_sound(&packet)), ((service, a), true));
        let mut packet = tcp(a, service, Tcp::new(ACK, 2, 2));
        assert_eq!(
            bench.pass(&request, &mut packet).state,
            EST | DNAT,
            "a second commit keeps the translation"
        );
        assert_eq!(ends(&packet), (a, server));
        // The client has a direct connection to the server as well: two connections, two tuples.
        let mut packet = tcp(a, server, Tcp::new(SYN, 1, 0));
        let outcome = bench.pass(&commit(3), &mut packet);
        assert_eq!(outcome.refused, Some(Refusal::TupleTaken));
    }
}

#[test]
fn errors_are_translated_outside_and_inside() {
    for v6 in [false, true] {
        let (a, server, outside, router) = ((host(v6, 1), 4000), (host(v6, 2), 80), host(v6, 200), host(v6, 77));
        let (kind, code) = if v6 { (1, 4) } else { (3, 3) };
        let error = |from, to, inner: &[u8]| icmp(from, to, kind, code, 0, inner);
        let related = State::TRK | State::REL;
        let service = (host(v6, 50), 443);
        for with_tcp in [false, true] {
            let make = |a, b| match with_tcp {
                true => tcp(a, b, Tcp::new(SYN, 1, 0)),
                false => udp(a, b, b"payload"),
            };
            // A router answers a packet whose source was translated.
            let mut bench = Bench::new();
            let mut sent = make(a, server);
            bench.pass(&nat(0, Nat::Source(to(outside))), &mut sent);
            let header = if v6 { 40 } else { 20 };
            for cut in [sent.len(), header + 8] {
                let mut packet = error(router, outside, &sent[..cut]);
                let outcome = bench.pass(&existing(0), &mut packet);
                assert_eq!((outcome.state, outcome.translated), (related | State::RPL | SNAT, true));
                let expected = error(router, a.0, &make(a, server)[..cut]);
                // Behind the cut, the checksum of TCP is not there to be changed.
                assert_eq!(packet, expected, "v6 {v6} tcp {with_tcp} cut {cut}");
                assert!(is_sound(&packet));
            }
            // The client refuses the answer.
            let mut packet = error(a.0, server.0, &make(server, a));
            bench.pass(&existing(0), &mut packet);
            assert_eq!(packet, error(outside, server.0, &make(server, (outside, a.1))));
            // The server behind a translated destination refuses.
            let mut bench = Bench::new();
            let range = Range {
                ports: Some((server.1, server.1)),
                ..to(server.0)
            };
            bench.pass(&nat(0, Nat::Destination(range)), &mut make(a, service));
            let mut packet = error(server.0, a.0, &make(a, server));
            assert_eq!(bench.pass(&existing(0), &mut packet).state, related | State::RPL | DNAT);
            assert_eq!(packet, error(service.0, a.0, &make(a, service)));
        }
    }
}

#[test]
fn a_packet_is_translated_once_in_a_zone_and_again_in_another() {
    let mut bench = Bench::new();
    let (a, b, outside, other) = (
        (host(false, 1), 9),
        (host(false, 2), 53),
        host(false, 200),
        host(false, 201),
    );
    let mut bytes = udp(a, b, b"x");
    let first = bench.pass(&nat(1, Nat::Source(to(outside))), &mut bytes);
    let before = Before {
        state: first.state,
        zone: 1,
        connection: None,
        original: first.original.unwrap(),
    };
    let again = |bench: &mut Bench, zone, bytes: &mut Vec<u8>, range, kept| {
        let mut packet = Packet::new(bytes, false);
        packet.before = Some(Before {
            connection: kept,
            ..before
        });
        bench
            .tracker
            .track(&nat(zone, Nat::Source(to(range))), &mut packet, bench.now)
    };
    for kept in [None, first.connection] {
        let second = again(&mut bench, 1, &mut bytes, other, kept);
        assert_eq!((second.state, second.translated), (NEW | SNAT, false));
        assert_eq!(second.connection, first.connection);
    }
    assert_eq!(ends(&bytes).0.0, outside);
    let third = again(&mut bench, 2, &mut bytes, other, first.connection);
    assert_eq!((third.state, third.translated), (NEW | SNAT, true));
    assert_eq!(ends(&bytes), ((other, 9), b));
    // Back through both zones.
    let mut bytes = udp(b, (other, 9), b"x");
    bench.pass(&existing(2), &mut bytes);
    bench.pass(&existing(1), &mut bytes);
    assert_eq!(ends(&bytes), (b, a));
}

#[test]
fn a_client_reaches_itself_through_its_service() {
    // Hairpin: the destination is translated to the client, and the source in a second zone, so
    // that the answer passes both again.
    let mut bench = Bench::new();
    let (client, service, gateway) = ((host(false, 1), 4000), (host(false, 50), 80), host(false, 254));
    let range = Range {
        ports: Some((8080, 8080)),
        ..to(client.0)
    };
    let mut bytes = tcp(client, service, Tcp::new(SYN, 1, 0));
    bench.pass(&nat(1, Nat::Destination(range)), &mut bytes);
    bench.pass(&nat(2, Nat::Source(to(gateway))), &mut bytes);
    assert_eq!(ends(&bytes), ((gateway, 4000), (client.0, 8080)));
    let mut bytes = tcp((client.0, 8080), (gateway, 4000), Tcp::new(SYN | ACK, 1, 2));
    bench.pass(&existing(2), &mut bytes);
    bench.pass(&existing(1), &mut bytes);
    assert_eq!((ends(&bytes), is_sound(&bytes)), ((service, client), true));
}

#[test]
fn when_all_ports_are_taken_connections_are_refused_and_counted() {
    let mut bench = Bench::new();
    let range = Range {
        ports: Some((5000, 5009)),
        ..to(host(false, 200))
    };
    let request = nat(0, Nat::Source(range));
    let mut ports = BTreeMap::new();
    for n in 0..15 {
        let mut bytes = udp((host(false, n), 1), (host(false, 300), 53), b"");
        let outcome = bench.pass(&request, &mut bytes);
        match n < 10 {
            true => assert_eq!(ports.insert(ends(&bytes).0, n), None),
            false => assert_eq!(
                (outcome.refused, outcome.translated),
                (Some(Refusal::NatExhausted), false)
            ),
        }
    }
    assert!(
        ports
            .keys()
            .all(|(address, port)| *address == host(false, 200) && (5000..5010).contains(port))
    );
    // Another destination, another protocol and another zone have all ports.
    for (zone, to) in [(0, 301), (1, 300)] {
        let mut bytes = udp((host(false, 50), 1), (host(false, to), 53), b"");
        let request = Request { zone, ..request };
        assert_eq!(bench.pass(&request, &mut bytes).refused, None);
    }
    let counted = bench.tracker.conntrack().statistics();
    assert_eq!((counted.nat_exhausted, bench.tracker.conntrack().len()), (5, 12));
    // A port that becomes free is used again.
    let all = bench.all();
    let one = all
        .iter()
        .find(|c| c.zone == 0 && c.original.dst() == host(false, 300))
        .unwrap();
    bench.tracker.remove(one.id);
    let mut bytes = udp((host(false, 77), 1), (host(false, 300), 53), b"");
    assert_eq!(bench.pass(&request, &mut bytes).refused, None);
    assert_eq!(ends(&bytes).0.1, one.reply.dst_port());
}

#[test]
fn the_unspecified_source_changes_ports_only_where_tuples_collide() {
    let mut bench = Bench::new();
    let any = nat(0, Nat::Source(to([0, 0, 0, 0].into())));
    let (a, server, service) = ((host(false, 1), 4000), (host(false, 2), 80), (host(false, 50), 80));
    // The client has a connection to the service, which is the server.
    let range = Range {
        ports: Some((80, 80)),
        ..to(server.0)
    };
    bench.pass(&nat(0, Nat::Destination(range)), &mut udp(a, service, b""));
    let mut direct = udp(a, server, b"");
    bench.pass(&any, &mut direct);
    let ((src, port), dst) = ends(&direct);
    assert_eq!((src, dst), (a.0, server));
    assert_ne!(port, 4000);
    let mut answer = udp(server, (src, port), b"");
    bench.pass(&existing(0), &mut answer);
    assert_eq!(ends(&answer), (server, a));
    let mut other = udp((host(false, 3), 4000), server, b"");
    bench.pass(&any, &mut other);
    assert_eq!(ends(&other).0, (host(false, 3), 4000));
}

#[test]
fn a_checksum_that_a_device_completes_stays_one() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let (a, b, outside) = ((host(v6, 1), 4000), (host(v6, 2), 80), host(v6, 200));
        // The field has the folded sum of the pseudo header.
        let partial = |a: (IpAddr, u16), b: (IpAddr, u16)| {
            let mut packet = udp(a, b, b"data");
            let l4 = if v6 { 40 } else { 20 };
            let mut pseudo = if v6 {
                packet[8..40].to_vec()
            } else {
                packet[12..20].to_vec()
            };
            pseudo.extend(12u32.to_be_bytes());
            pseudo.extend([0, 0, 0, 17]);
            let sum = !testkit::checksum(&pseudo);
            packet[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
            packet
        };
        let mut bytes = partial(a, b);
        let mut packet = Packet::new(&mut bytes, v6);
        packet.checksum = Checksum::Partial;
        let outcome = bench
            .tracker
            .track(&nat(0, Nat::Source(to(outside))), &mut packet, bench.now);
        assert_eq!(outcome.state, NEW | SNAT);
        assert_eq!(bytes, partial((outside, 4000), b));
    }
}

/// Random clients, services and ranges: what a client sends arrives under a tuple of its own, and
/// what comes back reaches the client that sent it, from the address it sent to.
#[test]
fn every_answer_reaches_its_client_whatever_was_translated() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new();
        let v6 = seed % 3 == 0;
        let mut flows: BTreeMap<(u16, End, End), (End, End)> = BTreeMap::new();
        for _ in 0..1500 {
            let zone = rng.below(2) as u16;
            let client = (host(v6, rng.below(20) as u16), 1 + rng.below(3) as u16);
            let server = (host(v6, 100 + rng.below(3) as u16), 80);
            let (low, high) = (200 + rng.below(3) as u16, 203 + rng.below(3) as u16);
            let range = Range {
                addresses: rng.chance(80).then(|| (host(v6, low), host(v6, high))),
                ports: rng.chance(60).then_some((1, 1 + rng.below(9) as u16)),
                ports_by: *rng.pick(&[PortsBy::Hash, PortsBy::Random]),
                persistent: rng.chance(30),
            };
            let request = match rng.below(3) {
                0 => nat(zone, Nat::Source(range)),
                1 => nat(zone, Nat::Destination(range)),
                _ => commit(zone),
            };
            let request = Request {
                nat: request.nat.or(Some(Nat::Existing)),
                ..request
            };
            let mut bytes = udp(client, server, b"x");
            let outcome = bench.pass(&request, &mut bytes);
            assert!(is_sound(&bytes));
            if outcome.refused.is_some() {
                assert_eq!(ends(&bytes), (client, server));
                continue;
            }
            if outcome.state.has(State::RPL) {
                continue;
            }
            let (from, arrived) = ends(&bytes);
            let flow = (client, server);
            // The same tuple on the wire is the same connection.
            let known = flows.insert((zone, from, arrived), flow);
            assert!(known.is_none_or(|known| known == flow), "{known:?} {flow:?}");
            if rng.chance(70) {
                let mut answer = udp(arrived, from, b"y");
                let outcome = bench.pass(&existing(zone), &mut answer);
                assert!(outcome.state.has(EST_REPLY));
                assert_eq!(ends(&answer), (server, client));
                assert!(is_sound(&answer));
            }
            if rng.chance(1) {
                bench.tracker.flush(&Filter {
                    zone: Some(zone),
                    ..Filter::default()
                });
                flows.retain(|(own, ..), _| *own != zone);
            }
        }
        // No tuple belongs to two connections.
        let mut tuples = BTreeMap::new();
        for connection in bench.all() {
            for tuple in [connection.original, connection.reply] {
                let other = tuples.insert((connection.zone, tuple), connection.id);
                assert!(other.is_none_or(|other| other == connection.id));
            }
        }
    }
}

/// Address and port.
type End = (IpAddr, u16);
