//! Sends a fixed number of packets from memory through a worker's pipeline, to count the
//! instructions for each exactly.
//!
//! `instructions CASE PACKETS`, under a program that counts (`cargo xtask instructions`); without
//! arguments, the cases. The difference of two runs with different numbers of packets is the cost
//! of the additional packets; everything else, warm caches included, is the same in both.

use conntrack::{Nat, Range, Request};
use dp::{Action, BondTable, Effect, FlowHash, PathLimit, PortNo, PuntReason, SetField, Slowpath, Track, Translation};
use dp::{TunnelPush, Upcall};
use dp_user::pipeline::{BATCH, Budget, Pipeline};
use flow::{Field, Mask, RecircId};
use nanos::Nanos;
use netdev::{Memory, Netdev, Spec};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tunnel::format::geneve::OptionsBuffer;
use tunnel::format::{Body, Encapsulation, FlowLabel, Format, Inner, Kind, Outer, Packet, SourcePorts};
use wire::{MacAddr, VlanTag};

/// A case: matches and actions.
struct Case {
    name: &'static str,
    flows: u32,
    fields: &'static [Field],
    /// Number of masks used for the addresses in turn.
    masks: u128,
    change: fn() -> Vec<Option<Action>>,
    /// Most megaflows.
    limit: usize,
    /// How often each packet is recirculated.
    recirculations: u32,
    /// What the tracker does with a packet before it is recirculated.
    track: Option<fn() -> Request>,
    /// Packets leave by two members of a bond.
    bond: bool,
    /// Packets are recirculated once by a hash, of which 16 values have a megaflow each.
    select: bool,
    /// Packets come with outer headers, which are taken off.
    pop: Option<Format>,
}

/// Packets before those that count, at least: more than the signature cache has places.
const WARM: usize = 32 * 1024;

/// The port of tunnels.
const TUNNEL: PortNo = PortNo(9);

/// The UDP ports of tunnels.
const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;

/// The number of a case's bond.
const BOND: u32 = 1;

const STATIONS: &[Field] = &[Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanTci0];

/// The fields that an access list matches.
const CONNECTIONS: &[Field] = &[
    Field::EthType,
    Field::IpProto,
    Field::IpFrag,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::TpSrc,
    Field::TpDst,
];

/// The fields by which outer packets find their tunnel, and inner ones the rules of its port.
const OUTER: &[Field] = &[
    Field::EthType,
    Field::IpProto,
    Field::IpFrag,
    Field::Ipv4Dst,
    Field::TpDst,
    Field::TunId,
    Field::TunSrc,
    Field::TunDst,
];

/// Every packet's connection is committed; it is new only once.
fn commit() -> Request {
    Request {
        zone: 1,
        commit: true,
        ..Request::default()
    }
}

/// The same, with a source of the connection's own.
fn translate() -> Request {
    let addresses = Some(([192, 0, 2, 1].into(), [192, 0, 2, 250].into()));
    let range = Range {
        addresses,
        ..Range::default()
    };
    Request {
        nat: Some(Nat::Source(range)),
        ..commit()
    }
}

const CASES: &[Case] = &[
    case("connections", 1000, CONNECTIONS, 1, none),
    case("connection", 1, CONNECTIONS, 1, none),
    Case {
        recirculations: 2,
        ..case("recirc", 1000, CONNECTIONS, 1, none)
    },
    Case {
        recirculations: 2,
        ..case("recirc-1", 1, CONNECTIONS, 1, none)
    },
    case("port", 1, &[], 1, none),
    case("port-10k", 10_000, &[], 1, none),
    case("stations", 1000, STATIONS, 1, none),
    case("stations-20k", 20_000, STATIONS, 1, none),
    case("masks", 20_000, STATIONS, 8, none),
    case("router", 1000, &[], 1, router),
    case("vlan", 1000, &[], 1, vlan),
    case("mirrored", 1000, &[], 1, mirrored),
    case("sampled", 1000, &[], 1, sampled),
    // Beside `stations` it shows what a member chosen by a hash costs.
    Case {
        bond: true,
        ..case("bond", 1000, STATIONS, 1, none)
    },
    // Select groups of many connections; a megaflow for each connection beside it.
    Case {
        select: true,
        ..case("select", 1000, &[], 1, none)
    },
    Case {
        select: true,
        ..case("select-20k", 20_000, &[], 1, none)
    },
    case("connections-20k", 20_000, CONNECTIONS, 1, none),
    case("vxlan-push", 1000, &[Field::EthType], 1, push_vxlan),
    case("geneve-push", 1000, &[Field::EthType], 1, push_geneve),
    Case {
        pop: Some(Format::Vxlan { gbp: false, gpe: false }),
        ..case("vxlan-pop", 1000, OUTER, 1, none)
    },
    Case {
        pop: Some(Format::Geneve),
        ..case("geneve-pop", 1000, OUTER, 1, none)
    },
    Case {
        recirculations: 1,
        track: Some(commit),
        ..case("tracked", 1000, &[Field::EthType, Field::CtState], 1, none)
    },
    Case {
        recirculations: 1,
        track: Some(translate),
        ..case("translated", 1000, &[Field::EthType, Field::CtState], 1, none)
    },
    Case {
        limit: 500,
        ..case("misses", 20_000, STATIONS, 1, none)
    },
];

const fn case(
    name: &'static str,
    flows: u32,
    fields: &'static [Field],
    masks: u128,
    change: fn() -> Vec<Option<Action>>,
) -> Case {
    Case {
        name,
        flows,
        fields,
        masks,
        change,
        limit: 1_000_000,
        recirculations: 0,
        track: None,
        bond: false,
        select: false,
        pop: None,
    }
}

fn none() -> Vec<Option<Action>> {
    Vec::new()
}

fn router() -> Vec<Option<Action>> {
    let set = |field, value| SetField::new(field, value, u128::MAX).map(Action::SetField);
    vec![
        set(Field::EthDst, 0x0200_0000_0001),
        set(Field::EthSrc, 0x0200_0000_0002),
        set(Field::IpTtl, 63),
    ]
}

fn vlan() -> Vec<Option<Action>> {
    vec![Some(Action::PushVlan(VlanTag { tpid: 0x8100, tci: 7 }))]
}

/// A copy to the output of a mirror. Beside `port` it shows what a mirror costs, and that packets
/// without one do not pay for it.
fn mirrored() -> Vec<Option<Action>> {
    vec![Some(Action::Output(PortNo(3)))]
}

/// Samples of one packet in 1000 for sFlow. Beside `port` it shows what they cost.
fn sampled() -> Vec<Option<Action>> {
    let probability = u32::MAX / 1000;
    let punt = Action::Punt {
        reason: PuntReason::Sample,
        handle: 1,
        max_len: 128,
    };
    vec![Some(Action::Sample { probability, steps: 1 }), Some(punt)]
}

/// The outer headers of a tunnel between two hosts; Geneve has an option, as OVN sends it.
fn headers(geneve: bool) -> Option<Encapsulation> {
    let mut options = OptionsBuffer::default();
    options.push(0x102, 0x80, &[0, 1, 0, 2]).ok()?;
    let outer = Outer {
        ethernet: Some((MacAddr([2, 4, 0, 0, 0, 1]), MacAddr([2, 4, 0, 0, 0, 2]))),
        src: [172, 31, 0, 2].into(),
        dst: [172, 31, 0, 1].into(),
        tos: 0,
        ttl: 64,
        df: true,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let body = match geneve {
        false => Body::Vxlan {
            port: VXLAN,
            csum: false,
            id: 42,
            gbp: None,
            gpe: false,
        },
        true => Body::Geneve {
            port: GENEVE,
            csum: false,
            id: 42,
            oam: false,
            options: options.options(),
        },
    };
    Encapsulation::new(&outer, &body, Inner::Ethernet).ok()
}

fn push(geneve: bool) -> Vec<Option<Action>> {
    let push = headers(geneve).map(|headers| TunnelPush {
        port: TUNNEL,
        underlay: PortNo(4),
        kind: if geneve { Kind::Geneve } else { Kind::Vxlan },
        headers,
        sequence: None,
        limit: Some(PathLimit {
            mtu: 1500,
            fragments: false,
            id: Some(42),
            answers: true,
        }),
    });
    vec![push.map(|push| Action::TunnelPush(push.into()))]
}

fn push_vxlan() -> Vec<Option<Action>> {
    push(false)
}

fn push_geneve() -> Vec<Option<Action>> {
    push(true)
}

impl Slowpath for &'static Case {
    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let mut mask = Mask::exact(Field::InPort);
        self.fields.iter().for_each(|field| mask.add(*field));
        if self.masks > 1 {
            mask.add_bits(Field::Ipv4Src, upcall.key.get(Field::EthSrc) % self.masks);
        }
        let number = upcall.key.get(Field::RecircId) as u32;
        let pop = self.pop.filter(|_| upcall.key.in_port() != TUNNEL);
        let pop = pop.map(|format| Action::TunnelPop { port: TUNNEL, format });
        let output = match number < self.recirculations {
            true => Action::Recirc(number + 1),
            false if self.select && number == 0 => Action::RecircByHash {
                id: RecircId::hashed(1),
                hash: FlowHash::SymmetricL4 { basis: 0 },
            },
            false if self.bond => Action::OutputBond(BOND),
            false => Action::Output(PortNo(2)),
        };
        match self.select && number != 0 {
            true => mask.add_bits(Field::RecircId, u128::from(!RecircId::HASH_BITS | 0xf)),
            false => mask.add(Field::RecircId),
        }
        let track = self.track.filter(|_| number < self.recirculations).map(|request| {
            let (request, fragments) = (request(), false);
            Action::Ct(Arc::new(Track { request, fragments }))
        });
        let actions: Vec<Action> = (self.change)()
            .into_iter()
            .chain([track, Some(pop.unwrap_or(output))])
            .flatten()
            .collect();
        Translation {
            actions: Arc::from(actions),
            mask,
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}
}

/// A file of an UDP packet for each flow, with outer headers where they are taken off.
fn capture(flows: u32, pop: Option<Format>) -> Vec<u8> {
    let headers = pop.and_then(|format| headers(format == Format::Geneve));
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for flow in 0..flows {
        let id = flow.to_be_bytes();
        let mut packet = [0; 60];
        packet[0] = 2;
        packet[2..6].copy_from_slice(&id);
        packet[6..8].copy_from_slice(&[2, 1]);
        packet[8..12].copy_from_slice(&id);
        packet[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
        packet[22..24].copy_from_slice(&[64, 17]);
        packet[26..30].copy_from_slice(&id);
        packet[30..40].copy_from_slice(&[192, 0, 2, 1, 0, 7, 0, 53, 0, 26]);
        let sum = wire::checksum::checksum(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        let mut packet = [vec![0; headers.as_ref().map_or(0, Encapsulation::len)], packet.to_vec()].concat();
        if let Some(headers) = &headers {
            let own = Packet {
                hash: flow.wrapping_mul(0x9e37_79b9),
                ..Packet::default()
            };
            // A packet of this length fits.
            let _ = headers.write(&mut packet, &own);
        }
        let len = (packet.len() as u32).to_le_bytes();
        file.extend([0; 8]);
        file.extend([len, len].concat());
        file.extend(packet);
    }
    file
}

fn run(case: &'static Case, packets: usize) -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("instructions-{}.pcap", std::process::id()));
    std::fs::write(&path, capture(case.flows, case.pop))?;
    let options = BTreeMap::from([
        ("rx_pcap".to_owned(), path.to_string_lossy().into_owned()),
        ("infinite_rx".to_owned(), "true".to_owned()),
    ]);
    let source = Memory::pcap("source", &options);
    std::fs::remove_file(&path)?;
    let mut queues = source?.open_rx()?;
    let mut pipeline = Pipeline::new(case.limit, Duration::from_secs(10), Arc::new(case), Arc::default());
    for (port, name) in [(PortNo(2), "sink"), (PortNo(3), "watcher")] {
        let sink = netdev::open(&Spec::Null { name: name.to_owned() })?;
        pipeline.add_port(port, sink);
    }
    if case.bond {
        let members = std::array::from_fn(|bucket| Some(PortNo(2 + bucket as u32 % 2)));
        pipeline.set_bond(BOND, Some(BondTable { basis: 0, members }));
    }
    let mut rx_queue = Pipeline::rx_queue(PortNo(1), queues.remove(0), Budget::new(BATCH as u32, 256));
    // Until all megaflows are there, whose upcalls are only so many a turn, and known by one hash.
    let warm = (2 * case.flows as usize).max(WARM);
    for _ in 0..(warm + packets) / BATCH {
        pipeline.receive(&mut rx_queue, false, Nanos(1))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args[..] {
        [name, packets] => {
            let case = CASES.iter().find(|case| case.name == name);
            case.zip(packets.parse().ok()).map(|(case, packets)| run(case, packets))
        }
        [] => {
            CASES.iter().for_each(|case| println!("{}", case.name));
            return ExitCode::SUCCESS;
        }
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: instructions [CASE PACKETS]; without them: the cases");
            ExitCode::FAILURE
        }
    }
}
