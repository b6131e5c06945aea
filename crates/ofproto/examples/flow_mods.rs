//! Has an agent carry out as many flow-mods as is said, as they come in on a connection, for
//! measurements of what one costs: `flow_mods 1.0|1.3|1.4|bundle 20000`.
//! `valgrind --tool=callgrind --toggle-collect='*carry_out*'` counts that alone.

use dp::Change;
use flow::MatchField as F;
use nanos::Nanos;
use ofproto::{Agent, Config, ConnId, Env, Kind, Options, PortCounters, QueueInfo, Run};
use openflow::model::{Action, Body, BundleAdd, BundleControl, FlowMod, Instructions, Message, Port};
use openflow::{Codec, Hello, OfError, Version, Versions};
use std::cell::RefCell;
use switch::tables::{MeterChange, Patience, Translated};
use switch::{BridgeConfig, FailMode, Switch, SwitchConfig};

const NOW: Nanos = Nanos(1_000_000_000);

struct World(RefCell<Switch>);

impl Env for World {
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R {
        look(&self.0.borrow())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R {
        change(&mut self.0.borrow_mut(), NOW).0
    }

    fn change_meters(
        &self,
        _change: impl FnOnce(&mut Switch, Nanos) -> Result<(Vec<Change>, Vec<MeterChange>), OfError>,
    ) -> Result<(), OfError> {
        Ok(())
    }

    fn meter_stats(&self, _number: u32) -> dp::MeterStats {
        dp::MeterStats::default()
    }

    fn push_statistics(&self) {}

    fn port_counters(&self, _interface: &str) -> Option<PortCounters> {
        None
    }

    fn queues(&self, _interface: &str) -> Vec<QueueInfo> {
        Vec::new()
    }

    fn send(
        &self,
        _in_port: dp::PortNo,
        _packet: &[u8],
        _translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool {
        false
    }

    fn flush_connections(&self, _flush: &openflow::model::CtFlush) {}

    fn set_port_up(&self, _interface: &str, _up: bool) -> Result<(), String> {
        Ok(())
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let how = args.next().unwrap_or_else(|| "1.0".to_owned());
    let count: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let version = match how.as_str() {
        "1.0" => Version::V10,
        "1.3" => Version::V13,
        _ => Version::V14,
    };
    let codec = Codec::new(version);
    let bundled = how == "bundle";
    let mut messages = Vec::new();
    let mut say = |xid, body| messages.push(codec.encode(&Message { xid, body }));
    let (bundle, flags) = (1, 3);
    let control = |kind| Body::BundleControl(BundleControl { bundle, kind, flags });
    if bundled {
        say(1, control(0));
    }
    for n in 0..count {
        let change = Body::FlowMod(Box::new(flow_mod(n)));
        if bundled {
            let message = codec.encode(&Message { xid: n, body: change });
            let add = BundleAdd { bundle, flags, message };
            say(n, Body::BundleAdd(add));
        } else {
            say(n, change);
        }
    }
    if bundled {
        say(2, control(4));
    }
    say(3, Body::BarrierRequest);
    let bytes = messages.concat();

    let world = World(RefCell::new(a_switch()));
    let config = Config {
        bridge: "br0".to_owned(),
        ..Config::default()
    };
    let mut agent = Agent::new(config, telemetry::budget::Budget::new(1 << 30, 0));
    let id = agent.connect(Options::new(Kind::Service, "peer".to_owned()), NOW);
    let hello = Hello {
        version: version.number(),
        bitmap: Some([version].into_iter().collect::<Versions>()),
    };
    let hello = codec.encode(&Message {
        xid: 0,
        body: Body::Hello(hello),
    });
    carry_out(&mut agent, id, &world, &hello);
    let said = carry_out(&mut agent, id, &world, &bytes);
    let rules = world.look(|switch| switch.bridge("br0").map_or(0, |bridge| bridge.tables().len()));
    println!("{rules} rules, {said} bytes of answers");
}

/// Has the agent do what messages ask for. Bytes of its answers.
#[inline(never)]
fn carry_out(agent: &mut Agent, id: ConnId, world: &World, bytes: &[u8]) -> usize {
    let mut said = 0;
    for part in bytes.chunks(65536) {
        agent.receive(id, part);
        while matches!(agent.run(id, world, NOW, 64), Run::Busy | Run::Full) {
            said += agent.transmit(id).len();
        }
    }
    said + agent.transmit(id).len()
}

fn flow_mod(n: u32) -> FlowMod {
    let mut change = FlowMod {
        table: Some(0),
        new_cookie: Some(0),
        priority: 100,
        instructions: Instructions::apply(vec![Action::Output {
            port: Port(1 + n % 4),
            max_len: 0,
        }]),
        ..FlowMod::default()
    };
    change.matching.set(F::EthType, 0x0800, 0xffff);
    change
        .matching
        .set(F::IpSrc, u128::from(0x0a00_0000 + n % 1000), u32::MAX.into());
    change
        .matching
        .set(F::IpDst, u128::from(0x0b00_0000 + n), u32::MAX.into());
    change
}

fn a_switch() -> Switch {
    let mut switch = Switch::new(7);
    let bridge = BridgeConfig {
        fail_mode: FailMode::Secure,
        ..BridgeConfig::default()
    };
    let mut config = SwitchConfig::default();
    config.bridges.insert("br0".into(), bridge);
    switch.configure(config, Nanos::ZERO);
    switch
}
