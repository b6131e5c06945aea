//! The exporters of one bridge.

use super::ipfix::OfIpfix;
use super::rows::{Ipfix, Netflow, Sflow, Wanted};
use super::samples::Sample;
use super::targets::Collectors;
use super::{Facts, since_1970, tag_of};
use crate::state::State;
use dp::{PortNo, SampleData};
use export::netflow::{self, Counts, Flow};
use export::sflow::{self, BridgeCounters, Direction, FlowSample, LacpCounters, PortCounters, Source};
use nanos::Nanos;
use openflow::model::IpfixStats;
use protocols::lacp::Lacp;
use protocols::lacp::wire::State as LacpState;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;
use switch::FlowOutput;

telemetry::counters! {
    /// Packets that no flow of NetFlow could be found or made for: a bridge had too many.
    UNCOUNTED = "netflow_uncounted";
}

/// How often NetFlow takes the counts of flows.
const PERIOD: Duration = Duration::from_secs(1);

/// The exporters of a bridge.
#[derive(Default)]
pub(super) struct OfBridge {
    netflow: Option<OfNetflow>,
    sflow: Option<OfSflow>,
    ipfix: Option<OfIpfix>,
    /// By the ids of sets of collectors.
    sets: BTreeMap<u32, OfIpfix>,
}

struct OfNetflow {
    row: Netflow,
    exporter: netflow::Exporter,
    collectors: Collectors,
    /// When counts are taken next.
    due: Nanos,
    /// How long the switch knows flows without packets.
    unused: Duration,
}

struct OfSflow {
    row: Sflow,
    agent: sflow::Agent,
    collectors: Collectors,
}

impl OfBridge {
    /// Follows the rows. Exporters whose settings stay go on as they are.
    pub(super) fn follow(
        &mut self,
        wanted: &Wanted,
        idle: Duration,
        ports: Vec<u32>,
        sub_agents: &Cell<u32>,
        now: Nanos,
    ) {
        if wanted.netflow.as_ref() != self.netflow.as_ref().map(|netflow| &netflow.row)
            && let Some(mut gone) = self.netflow.take()
        {
            match &wanted.netflow {
                Some(row) => {
                    self.netflow = Some(OfNetflow {
                        row: row.clone(),
                        ..gone
                    })
                }
                None => gone.flush(now),
            }
        }
        if let Some(row) = &wanted.netflow {
            let netflow = self.netflow.get_or_insert_with(|| OfNetflow {
                row: row.clone(),
                exporter: netflow::Exporter::new(row.settings, now),
                collectors: Collectors::new("NetFlow"),
                due: now,
                unused: idle,
            });
            let settings = netflow::Settings {
                idle_timeout: idle,
                ..row.settings
            };
            netflow.exporter.set(settings);
            netflow.collectors.set(&row.targets);
            netflow.unused = 2 * idle + Duration::from_secs(60);
        }
        if wanted.sflow.as_ref() != self.sflow.as_ref().map(|sflow| &sflow.row) {
            if let Some(mut gone) = self.sflow.take() {
                gone.flush(now);
            }
            self.sflow = wanted.sflow.as_ref().and_then(|row| OfSflow::new(row, sub_agents, now));
        }
        if let Some(sflow) = &mut self.sflow {
            sflow.agent.set_ports(ports, now);
        }
        let all: Vec<u32> = self.sets.keys().chain(wanted.sets.keys()).copied().collect();
        for id in all {
            let mut of_set = self.sets.remove(&id);
            replace(&mut of_set, wanted.sets.get(&id), now);
            if let Some(of_set) = of_set {
                self.sets.insert(id, of_set);
            }
        }
        replace(&mut self.ipfix, wanted.ipfix.as_ref(), now);
    }

    fn ipfixes(&self) -> impl Iterator<Item = &OfIpfix> {
        self.ipfix.iter().chain(self.sets.values())
    }

    fn ipfixes_mut(&mut self) -> impl Iterator<Item = &mut OfIpfix> {
        self.ipfix.iter_mut().chain(self.sets.values_mut())
    }

    /// The statistics of the bridge's IPFIX, or of its sets of collectors.
    pub(super) fn ipfix_statistics(&self, sets: bool) -> Vec<IpfixStats> {
        match sets {
            false => self.ipfix.iter().map(|ipfix| ipfix.statistics(0)).collect(),
            true => self.sets.iter().map(|(id, ipfix)| ipfix.statistics(*id)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.netflow.is_none() && self.sflow.is_none() && self.ipfixes().next().is_none()
    }

    /// The addresses of all collectors.
    pub(super) fn targets(&self) -> Vec<SocketAddr> {
        let netflow = self.netflow.iter().flat_map(|netflow| &netflow.row.targets);
        let sflow = self.sflow.iter().flat_map(|sflow| &sflow.row.targets);
        let ipfix = self.ipfixes().flat_map(|ipfix| &ipfix.row.targets);
        netflow.chain(sflow).chain(ipfix).copied().collect()
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> Nanos {
        let netflow = self
            .netflow
            .iter()
            .map(|netflow| netflow.due.min(netflow.exporter.next()));
        let sflow = self.sflow.iter().map(|sflow| sflow.agent.next());
        let ipfix = self.ipfixes().map(OfIpfix::next);
        netflow.chain(sflow).chain(ipfix).min().unwrap_or(Nanos::MAX)
    }

    /// Notes a sample that is left out.
    pub(super) fn skip(&mut self, data: &SampleData) {
        if let (SampleData::Sflow { .. }, Some(sflow)) = (data, &mut self.sflow) {
            sflow.agent.skip();
        }
    }

    /// Takes a sample. `wall` is the time since 1970.
    pub(super) fn take(&mut self, sample: &Sample, ports: &HashMap<PortNo, Facts>, now: Nanos, wall: Duration) {
        match sample.meaning.data {
            SampleData::Sflow { .. } => {}
            SampleData::Ipfix { .. } => {
                if let Some(ipfix) = &mut self.ipfix {
                    ipfix.take(sample, ports, now, wall);
                }
            }
            SampleData::Flow(flow) => {
                if let Some(set) = self.sets.get_mut(&flow.collector_set) {
                    set.take(sample, ports, now, wall);
                }
            }
        }
        if let (SampleData::Sflow { tci, output, labels }, Some(sflow)) = (sample.meaning.data, &mut self.sflow) {
            let input = ports.get(&sample.in_port).map_or(0, |facts| facts.ifindex);
            let flow = FlowSample {
                input,
                output,
                tci_in: tag_of(&sample.packet),
                labels_out: labels.entries(),
                tunnel_in: sample.tunnel_in(),
                tunnel_out: sample.tunnel_out(),
                tci_out: tci,
                len: sample.total_len,
                header: &sample.packet,
            };
            sflow.agent.sample(&flow, now);
        }
    }

    /// Sends what is due. `lost` samples were dropped since the last call.
    pub(super) fn run(&mut self, state: &State, name: &str, ports: &HashMap<PortNo, Facts>, lost: u32, now: Nanos) {
        if let Some(netflow) = &mut self.netflow {
            netflow.run(state, name, now);
        }
        if let Some(sflow) = &mut self.sflow {
            sflow.agent.lost(lost);
            for source in sflow.agent.due(now) {
                sflow.tell(state, name, source, ports, now);
            }
            let datagrams = sflow.agent.run(now);
            sflow.collectors.send(&datagrams);
        }
        self.ipfixes_mut().for_each(|ipfix| ipfix.run(now));
    }

    /// Sends what waits, before the exporters go.
    pub(super) fn flush(&mut self, now: Nanos) {
        if let Some(netflow) = &mut self.netflow {
            netflow.flush(now);
        }
        if let Some(sflow) = &mut self.sflow {
            sflow.flush(now);
        }
        self.ipfixes_mut().for_each(|ipfix| ipfix.flush(now));
    }
}

/// Follows a row of IPFIX. An exporter whose settings stay goes on as it is.
fn replace(of: &mut Option<OfIpfix>, row: Option<&Ipfix>, now: Nanos) {
    if of.as_ref().map(|of| &of.row) == row {
        return;
    }
    if let Some(mut gone) = of.take() {
        gone.flush(now);
    }
    *of = row.map(|row| OfIpfix::new(row, now));
}

impl OfNetflow {
    fn run(&mut self, state: &State, name: &str, now: Nanos) {
        if now >= self.due {
            self.due = now + PERIOD;
            let mut counts = switch::FlowCounts::default();
            state.shared.update(|switch, now| {
                counts = switch.take_flows(name, now, self.unused);
                Vec::new()
            });
            if counts.uncounted > 0 {
                UNCOUNTED.add(counts.uncounted);
            }
            for (record, carried) in counts.flows {
                let key = record.key;
                let flow = Flow {
                    input: key.in_port as u16,
                    src: key.src,
                    dst: key.dst,
                    protocol: key.protocol,
                    tos: key.tos,
                    src_port: key.src_port,
                    dst_port: key.dst_port,
                };
                let counts = Counts {
                    output: match record.output {
                        FlowOutput::Dropped => Counts::DROPPED,
                        FlowOutput::Several => Counts::SEVERAL,
                        FlowOutput::Flooded => Counts::FLOODED,
                        FlowOutput::Port(number) => number as u16,
                    },
                    packets: carried.packets,
                    bytes: carried.bytes,
                    tcp_flags: key.tcp_flags,
                    used: carried.used,
                };
                self.exporter.update(flow, &counts, now);
            }
        }
        let datagrams = self.exporter.run(now, since_1970());
        self.collectors.send(&datagrams);
    }

    fn flush(&mut self, now: Nanos) {
        let datagrams = self.exporter.flush(now, since_1970());
        self.collectors.send(&datagrams);
    }
}

impl OfSflow {
    fn new(row: &Sflow, sub_agents: &Cell<u32>, now: Nanos) -> Option<OfSflow> {
        let sub_agent = sub_agents.replace(sub_agents.get().wrapping_add(1));
        let settings = sflow::Settings {
            agent: row.agent?,
            sub_agent,
            sampling: row.sampling,
            polling: row.polling,
        };
        let mut collectors = Collectors::new("sFlow");
        collectors.set(&row.targets);
        Some(OfSflow {
            row: row.clone(),
            agent: sflow::Agent::new(settings, now),
            collectors,
        })
    }

    fn flush(&mut self, now: Nanos) {
        let datagrams = self.agent.flush(now);
        self.collectors.send(&datagrams);
    }

    fn tell(&mut self, state: &State, name: &str, source: Source, ports: &HashMap<PortNo, Facts>, now: Nanos) {
        match source {
            Source::Bridge => {
                let counters = of_process(state);
                self.agent.counters(&sflow::Counters::Bridge(&counters), now);
            }
            Source::Port(ifindex) => {
                let is_it = |facts: &Facts| facts.ifindex == ifindex && facts.bridge == name;
                let Some((port, facts)) = ports.iter().find(|(_, facts)| is_it(facts)) else {
                    return;
                };
                if let Some(counters) = of_port(state, *port, facts) {
                    self.agent.counters(&sflow::Counters::Port(&counters), now);
                }
            }
        }
    }
}

fn of_port(state: &State, port: PortNo, facts: &Facts) -> Option<PortCounters> {
    /// The speed of ports that do not tell theirs, in bits a second.
    const UNKNOWN: u64 = 100_000_000;
    let counters = state.dp().port_counters(port)?;
    let bridges = state.bridges.borrow();
    let link = bridges.interface(&facts.name)?.link.as_ref()?;
    let datapath = bridges.state().get(&facts.bridge)?.datapath_id;
    let lacp = state.protocols.look(|services| {
        let (lacp, member) = services.aggregations.lacp(&facts.bridge, &facts.name)?;
        of_lacp(lacp, member)
    });
    Some(PortCounters {
        ifindex: facts.ifindex,
        name: facts.name.clone(),
        speed: link.speed.unwrap_or(UNKNOWN),
        full_duplex: link.full_duplex,
        admin_up: link.admin_up,
        oper_up: link.carrier,
        datapath,
        of_port: facts.of_port,
        received: Direction {
            bytes: Some(counters.rx_bytes),
            packets: Some(counters.rx_packets),
            dropped: Some(counters.rx_dropped),
            errors: Some(counters.rx_errors),
        },
        multicast: None,
        sent: Direction {
            bytes: Some(counters.tx_bytes),
            packets: Some(counters.tx_packets),
            dropped: Some(counters.tx_dropped),
            errors: Some(counters.tx_errors),
        },
        alignment_errors: Some(0),
        crc_errors: Some(0),
        lacp,
    })
}

/// LACP of a member.
fn of_lacp(lacp: &Lacp, number: u32) -> Option<LacpCounters> {
    let (config, member) = (lacp.config(), lacp.member(number)?);
    let counters = member.counters;
    let others = counters.rx_bad + counters.rx_markers + counters.rx_marker_responses;
    let configured = LacpState::default()
        .with(LacpState::ACTIVITY, config.active)
        .with(LacpState::TIMEOUT, config.fast)
        .with(LacpState::AGGREGATION, true);
    Some(LacpCounters {
        actor_system: member.actor.system.0,
        partner_system: member.partner.system.0,
        aggregator: lacp.key().unwrap_or_default().into(),
        // LACPDUs do not tell how the other end is configured.
        states: [configured.0, member.actor.state.0, 0, member.partner.state.0],
        rx: (counters.rx - others) as u32,
        rx_markers: counters.rx_markers as u32,
        rx_marker_responses: counters.rx_marker_responses as u32,
        rx_illegal: counters.rx_bad as u32,
        tx: counters.tx as u32,
        tx_marker_responses: counters.tx_marker_responses as u32,
    })
}

fn of_process(state: &State) -> BridgeCounters {
    let cache = state.dp().cache_stats();
    let (user_ms, system_ms, memory) = process_use();
    BridgeCounters {
        user_ms,
        system_ms,
        memory,
        hits: (cache.exact_hits + cache.megaflow_hits) as u32,
        misses: cache.upcalls as u32,
        lost: cache.lost as u32,
        flows: cache.flows as u32,
    }
}

/// The time of this process in its own code and in the kernel, in milliseconds, and its memory in
/// bytes (`proc(5)`, `/proc/PID/stat`).
fn process_use() -> (u32, u32, u64) {
    /// Of the times, in milliseconds.
    const TICK: u64 = 10;
    const PAGE: u64 = 4096;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may have spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let field = |number: usize| -> u64 {
        let text = fields.get(number - 2);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    ((field(14) * TICK) as u32, (field(15) * TICK) as u32, field(24) * PAGE)
}
