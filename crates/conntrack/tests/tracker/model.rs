//! Random packets through the tracker and through a plain model: one ordered map, one packet at a
//! time, TCP's rules as a list of conditions on whole numbers.

use crate::packets::*;
use conntrack::{Request, State};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use testkit::Rng;

/// A direction of a connection, in a zone.
pub(crate) type Way = (u16, u8, IpAddr, u16, IpAddr, u16);

fn back((zone, protocol, src, sport, dst, dport): Way) -> Way {
    (zone, protocol, dst, dport, src, sport)
}

/// A connection of the model.
#[derive(Clone, Debug)]
struct Known {
    forward: Way,
    ends_at: u64,
    mark: u32,
    label: u128,
    packets: [u64; 2],
    answered: bool,
    sides: [ModelSide; 2],
}

#[derive(Clone, Debug, Default)]
struct ModelSide {
    sent: u32,
    may_send: u32,
    window: u64,
    scale: Option<u32>,
    scale_unknown: bool,
    /// 0 silent, 1 has sent, 2 acknowledged, 3 FIN, 4 FIN acknowledged, 5 reset.
    progress: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Belongs(Option<u64>),
    StillNew(u64),
    Again,
    No,
}

/// The model.
#[derive(Default)]
pub(crate) struct Model {
    known: BTreeMap<Way, Known>,
}

/// `a - b` in sequence space.
fn distance(a: u32, b: u32) -> i64 {
    let forward = i64::from(a.wrapping_sub(b));
    if forward >= 1 << 31 {
        forward - (1 << 32)
    } else {
        forward
    }
}

fn rules(src: &mut ModelSide, dst: &mut ModelSide, packet: &Tcp) -> Says {
    let (syn, ack, fin, rst) = (
        packet.flags & SYN != 0,
        packet.flags & ACK != 0,
        packet.flags & FIN != 0,
        packet.flags & RST != 0,
    );
    if syn && !ack && src.progress >= 4 && dst.progress >= 4 {
        return Says::Again;
    }
    if syn && !ack && src.progress <= 1 {
        src.progress = 1;
        return Says::StillNew(30);
    }
    let mut shifts = match (src.scale, dst.scale) {
        _ if syn => (0, 0),
        (Some(own), Some(other)) => (own, other),
        _ if src.scale_unknown && dst.scale_unknown => (14, 14),
        _ => (0, 0),
    };
    let mut window = u64::from(packet.window);
    let (mut first, mut end) = (
        packet.seq,
        packet
            .seq
            .wrapping_add(packet.len as u32 + u32::from(syn) + u32::from(fin)),
    );
    let mut trust_ack = false;
    if src.progress == 0 {
        if syn && let Some(theirs) = dst.scale {
            if let Some(own) = packet.shift {
                src.scale = Some(u32::from(own).min(14));
                shifts = (u32::from(own).min(14), theirs);
                window = window.div_ceil(1 << shifts.0);
            } else {
                dst.window = (dst.window << theirs).min(0xffff);
                dst.scale = None;
            }
        }
        src.progress = 1;
        src.sent = first;
        let reach = end.wrapping_add(((dst.window << shifts.1) as u32).max(1));
        if src.may_send == 1 || distance(reach, src.may_send) >= 0 {
            src.may_send = reach;
            trust_ack = true;
        }
        src.window = src.window.max(window);
    }
    let acked = if !ack || (packet.ack == 0 && rst) {
        dst.sent
    } else {
        packet.ack
    };
    if first == end {
        (first, end) = (src.sent, src.sent);
    }
    let lag = if trust_ack { 0 } else { distance(dst.sent, acked) };
    let margin = 0xffff + 1500;
    let fits = distance(src.may_send, end) >= 0
        && distance(first, src.sent.wrapping_sub((dst.window << shifts.1) as u32)) >= 0
        && lag >= -margin
        && lag <= margin << shifts.0
        && (!rst || distance(packet.seq, src.sent).abs() <= 1);
    let near = (dst.progress == 0 || dst.progress >= 4 || src.progress >= 4)
        && distance(src.may_send.wrapping_add(margin as u32), end) >= 0
        && distance(first, src.sent.wrapping_sub(margin as u32)) >= 0;
    if !fits && !near {
        return Says::No;
    }
    src.window = src.window.max(window);
    if distance(end, src.sent) > 0 {
        src.sent = end;
    }
    let room = (window << shifts.0) as u32;
    if distance(acked.wrapping_add(room), dst.may_send) >= 0 {
        dst.may_send = acked.wrapping_add(room.max(1));
    }
    if fin && src.progress < 3 {
        src.progress = 3;
    }
    if fits && ack {
        dst.progress = match dst.progress {
            1 => 2,
            3 => 4,
            other => other,
        };
    }
    if rst {
        (src.progress, dst.progress) = (5, 5);
    }
    if !fits {
        return Says::Belongs(None);
    }
    let both = (src.progress.min(dst.progress), src.progress.max(dst.progress));
    Says::Belongs(Some(match both {
        (4.., _) => 30,
        (3, _) => 45,
        (0 | 1, _) => 30,
        (2, 3..) => 900,
        _ => 86_400,
    }))
}

impl Model {
    fn find(&self, way: Way, now: u64) -> Option<(Way, bool)> {
        let lives = |way: &Way| self.known.get(way).is_some_and(|known| known.ends_at > now);
        // An echo request is never the answer of another one with its identifier.
        let answer = if way.1 == 1 {
            (way.0, way.1, way.4, way.3 ^ 1, way.2, way.5)
        } else {
            back(way)
        };
        if lives(&way) {
            Some((way, false))
        } else if lives(&answer) {
            Some((answer, true))
        } else {
            None
        }
    }

    pub(crate) fn pass(&mut self, request: &Request, way: Way, tcp: Option<&Tcp>, now: u64) -> (State, u32, u128) {
        let mut found = self.find(way, now);
        if let Some((key, true)) = found
            && request.force
        {
            self.known.remove(&key);
            found = None;
        }
        if let Some((key, reply)) = found {
            let known = self.known.get_mut(&key).unwrap();
            let says = match tcp {
                Some(packet) => {
                    let mut sides = known.sides.clone();
                    if reply {
                        sides.swap(0, 1);
                    }
                    let [mut src, mut dst] = sides;
                    let says = rules(&mut src, &mut dst, packet);
                    known.sides = if reply { [dst, src] } else { [src, dst] };
                    says
                }
                None => {
                    known.answered |= reply;
                    let icmp = way.1 == 1;
                    match (known.answered, icmp) {
                        (true, _) => Says::Belongs(Some(30)),
                        (false, _) => Says::StillNew(60),
                    }
                }
            };
            let (bits, seconds) = match says {
                Says::Belongs(seconds) => (if reply { 0x2a } else { 0x22 }, seconds),
                Says::StillNew(seconds) => (0x21, Some(seconds)),
                Says::No => return (INVALID, known.mark, known.label),
                Says::Again => {
                    self.known.remove(&key);
                    return self.begin(request, way, tcp, now);
                }
            };
            known.packets[usize::from(reply)] += 1;
            if let Some(seconds) = seconds {
                known.ends_at = now + seconds * 1000;
            }
            if let Some((value, mask)) = request.mark {
                known.mark = known.mark & !mask | value & mask;
            }
            if let Some((value, mask)) = request.label {
                known.label = known.label & !mask | value & mask;
            }
            return (State::from_bits(bits), known.mark, known.label);
        }
        self.begin(request, way, tcp, now)
    }

    fn begin(&mut self, request: &Request, way: Way, tcp: Option<&Tcp>, now: u64) -> (State, u32, u128) {
        let mut sides = [ModelSide::default(), ModelSide::default()];
        let mut seconds = 60;
        if let Some(packet) = tcp {
            let syn = packet.flags & SYN != 0;
            if syn && packet.flags & ACK != 0 {
                return (INVALID, 0, 0);
            }
            seconds = 30;
            let fin = packet.flags & FIN != 0;
            let shift = packet.shift.filter(|_| syn).map(|shift| u32::from(shift).min(14));
            let beyond = packet.len as u32 + 1 + u32::from(syn) + u32::from(fin);
            sides[0] = ModelSide {
                sent: packet.seq,
                may_send: packet.seq.wrapping_add(beyond),
                window: u64::from(packet.window.max(1)).div_ceil(1 << shift.unwrap_or(0)),
                scale: shift,
                scale_unknown: !syn,
                progress: 1,
            };
            sides[1] = ModelSide {
                may_send: 1,
                window: 1,
                scale_unknown: !syn,
                ..ModelSide::default()
            };
        } else if way.1 == 1 && way.3 & 1 == 1 {
            return (INVALID, 0, 0);
        }
        if !request.commit {
            return (NEW, 0, 0);
        }
        let mark = request.mark.map_or(0, |(value, mask)| value & mask);
        let label = request.label.map_or(0, |(value, mask)| value & mask);
        // What has timed out gives way.
        self.known.retain(|_, known| known.ends_at > now);
        self.known.insert(
            way,
            Known {
                forward: way,
                ends_at: now + seconds * 1000,
                mark,
                label,
                packets: [1, 0],
                answered: false,
                sides,
            },
        );
        (NEW, mark, label)
    }
}

/// One random packet, near what its connection would send, and how the model names it.
pub(crate) fn packet(rng: &mut Rng, zone: u16, model: &Model, v6: bool) -> (Vec<u8>, Way, Option<Tcp>) {
    let (mut a, mut b) = ((host(v6, rng.below(2) as u16), 1), (host(v6, 7), 80));
    if rng.chance(50) {
        std::mem::swap(&mut a, &mut b);
    }
    match rng.below(10) {
        0 | 1 => (udp(a, b, b"x"), (zone, 17, a.0, a.1, b.0, b.1), None),
        2 => {
            let reply = rng.chance(50);
            // The identifier stands in the first port with the direction as its lowest bit.
            let way = (zone, 1, a.0, 6 | u16::from(reply), b.0, 0);
            (echo(a.0, b.0, reply, 3), way, None)
        }
        _ => {
            let way = (zone, 6, a.0, a.1, b.0, b.1);
            let sides = match (model.known.get(&way), model.known.get(&back(way))) {
                (Some(known), _) => known.sides.clone(),
                (_, Some(known)) => [known.sides[1].clone(), known.sides[0].clone()],
                _ => Default::default(),
            };
            let near = |rng: &mut Rng, number: u32| match rng.below(12) {
                0 => number.wrapping_add(rng.below(3000) as u32).wrapping_sub(1500),
                1 => number.wrapping_add(rng.below(1 << 20) as u32).wrapping_sub(1 << 19),
                2 => rng.number() as u32,
                3 => 0,
                _ => number,
            };
            let base = if sides[0].progress == 0 {
                0xffff_ff00
            } else {
                sides[0].sent
            };
            let mut fields = Tcp {
                flags: *rng.pick(&[SYN, SYN | ACK, ACK, ACK, ACK, ACK, ACK | FIN, RST, RST | ACK]),
                seq: near(rng, base),
                ack: near(rng, sides[1].sent),
                window: *rng.pick(&[0, 1, 500, 1000, 0xffff]),
                len: *rng.pick(&[0, 0, 1, 100, 1000]),
                shift: *rng.pick(&[None, Some(0), Some(2), Some(7), Some(20)]),
            };
            if sides.iter().all(|side| side.progress == 0) && rng.chance(80) {
                fields.flags = SYN;
            }
            (tcp(a, b, fields), way, Some(fields))
        }
    }
}

fn run(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut bench = Bench::new();
    let mut model = Model::default();
    for step in 0..steps {
        let zone = rng.below(3) as u16;
        let v6 = rng.chance(30);
        let (mut bytes, way, fields) = packet(&mut rng, zone, &model, v6);
        let commits = rng.chance(60);
        let request = Request {
            zone,
            commit: commits,
            force: commits && rng.chance(3),
            mark: (commits && rng.chance(20)).then(|| (rng.number() as u32, rng.number() as u32)),
            label: (commits && rng.chance(20))
                .then(|| (u128::from(rng.number()) << 50, u128::from(rng.number()) << 40)),
            ..Request::default()
        };
        let outcome = bench.pass(&request, &mut bytes);
        let expected = model.pass(&request, way, fields.as_ref(), bench.now.as_millis());
        let got = (outcome.state, outcome.mark, outcome.label);
        assert_eq!(
            got, expected,
            "seed {seed}, step {step}: {way:?} {fields:?} {request:?}"
        );
        if rng.chance(2) {
            bench.now += Duration::from_secs(rng.below(40) as u64);
        }
        if rng.chance(1) {
            bench.sweep();
        }
        if step % 50 == 0 {
            compare(&mut bench, &model, seed);
        }
    }
}

/// The same connections with the same counts and times.
fn compare(bench: &mut Bench, model: &Model, seed: u64) {
    let now = bench.now.as_millis();
    let mut ours: Vec<_> = bench
        .all()
        .into_iter()
        .map(|c| {
            let (port, other) = match c.original.is_icmp() {
                true => (6, 0),
                false => (c.original.src_port(), c.original.dst_port()),
            };
            let protocol = if c.original.is_icmp() { 1 } else { c.original.protocol() };
            let way: Way = (c.zone, protocol, c.original.src(), port, c.original.dst(), other);
            (way, c.mark, c.label, c.packets, c.expires_in.as_millis() as u64)
        })
        .collect();
    let live = model.known.values().filter(|known| known.ends_at > now);
    let mut theirs: Vec<_> = live
        .map(|k| (k.forward, k.mark, k.label, k.packets, k.ends_at - now))
        .collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs, "seed {seed}");
}

#[test]
fn random_packets_have_the_states_of_the_model() {
    for seed in 0..40 {
        run(seed, 3000);
    }
}
