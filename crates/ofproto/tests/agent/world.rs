//! A switch, an agent of its one bridge, and peers that talk to it.

use dp::Change;
use nanos::Nanos;
use ofproto::{Agent, Config, ConnId, Env, Event, Kind, Options, PortCounters, PortInfo, QueueInfo, Run};
use openflow::model::{Body, CtFlush, FlowMod, Instructions, Message, Port};
use openflow::{Codec, ErrorKind, Framer, Hello, OfError, Version, Versions};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use switch::tables::{MeterChange, Patience, Translated};
use switch::{Attach, BridgeConfig, InterfaceConfig, LinkState, PortConfig, Punts, Switch, SwitchConfig};
use telemetry::budget::Budget;
use wire::MacAddr;

pub(crate) const BRIDGE: &str = "br0";

/// The world around an agent.
pub(crate) struct World {
    pub(crate) switch: RefCell<Switch>,
    pub(crate) now: Cell<Nanos>,
    /// Packets sent, with the datapath port that they came in on.
    pub(crate) sent: RefCell<Vec<(u32, Vec<u8>)>>,
    /// Whether ports cannot be taken up or down.
    pub(crate) stubborn: Cell<bool>,
    /// Queues by interface.
    pub(crate) queues: RefCell<BTreeMap<String, Vec<QueueInfo>>>,
    /// How often the switch was changed.
    pub(crate) changes: Cell<usize>,
    /// Connections that were flushed.
    pub(crate) flushed: RefCell<Vec<CtFlush>>,
}

impl Env for World {
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R {
        look(&self.switch.borrow())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R {
        self.changes.set(self.changes.get() + 1);
        change(&mut self.switch.borrow_mut(), self.now.get()).0
    }

    fn change_meters(
        &self,
        change: impl FnOnce(&mut Switch, Nanos) -> Result<(Vec<Change>, Vec<MeterChange>), OfError>,
    ) -> Result<(), OfError> {
        let mut switch = self.switch.borrow_mut();
        let (_, told) = change(&mut switch, self.now.get())?;
        switch.meters_deleted(&told);
        Ok(())
    }

    fn meter_stats(&self, _number: u32) -> dp::MeterStats {
        dp::MeterStats::default()
    }

    fn push_statistics(&self) {}

    fn port_counters(&self, _interface: &str) -> Option<PortCounters> {
        None
    }

    fn queues(&self, interface: &str) -> Vec<QueueInfo> {
        self.queues.borrow().get(interface).cloned().unwrap_or_default()
    }

    fn send(
        &self,
        in_port: dp::PortNo,
        packet: &[u8],
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool {
        let translated = translate(&self.switch.borrow(), Nanos::ZERO, Patience::Whole);
        if translated.is_some() {
            self.sent.borrow_mut().push((in_port.0, packet.to_vec()));
        }
        translated.is_some()
    }

    fn flush_connections(&self, flush: &CtFlush) {
        self.flushed.borrow_mut().push(*flush);
    }

    fn set_port_up(&self, _interface: &str, _up: bool) -> Result<(), String> {
        match self.stubborn.get() {
            true => Err("it stays as it is".to_owned()),
            false => Ok(()),
        }
    }
}

/// A switch with a bridge of ports 1 to 3, and its agent.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) agent: Agent,
    peers: BTreeMap<ConnId, Framer>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab::with_budget(Budget::new(1 << 30, 1 << 20))
    }

    pub(crate) fn with_budget(budget: Budget) -> Lab {
        let mut switch = Switch::new(1);
        let names = ["p1", "p2", "p3"];
        let ports = names.iter().enumerate().map(|(n, name)| {
            let interface = InterfaceConfig {
                name: (*name).to_owned(),
                ofport: n as u16 + 1,
                attach: Attach::Device(dp::PortNo(n as u32 + 1)),
                link: LinkState::UP,
                punts: Punts::default(),
            };
            let port = PortConfig {
                interfaces: vec![interface],
                ..PortConfig::default()
            };
            ((*name).to_owned(), port)
        });
        let bridge = BridgeConfig {
            ports: ports.collect(),
            ..BridgeConfig::default()
        };
        let mut config = SwitchConfig::default();
        config.bridges.insert(BRIDGE.to_owned(), bridge);
        switch.configure(config, Nanos(0));
        let mut lab = Lab {
            world: World {
                switch: RefCell::new(switch),
                now: Cell::new(Nanos(1)),
                sent: RefCell::default(),
                stubborn: Cell::new(false),
                queues: RefCell::default(),
                changes: Cell::new(0),
                flushed: RefCell::default(),
            },
            agent: Agent::new(
                Config {
                    bridge: BRIDGE.to_owned(),
                    datapath_id: 7,
                    ..Config::default()
                },
                budget,
            ),
            peers: BTreeMap::new(),
        };
        let port = |(n, name): (usize, &&str)| PortInfo {
            port: Port(n as u32 + 1),
            name: (**name).to_owned(),
            hw_addr: MacAddr([2, 0, 0, 0, 0, n as u8 + 1]),
            admin_up: true,
            link_up: true,
            alive: true,
            speed: Some(10_000_000_000),
            full_duplex: true,
            device: Some(dp::PortNo(n as u32 + 1)),
            since: Nanos(0),
            tree: None,
        };
        lab.agent
            .set_ports(names.iter().enumerate().map(port).collect(), &lab.world);
        lab
    }

    /// A connection on which nothing was said.
    pub(crate) fn connect(&mut self, kind: Kind) -> ConnId {
        let id = self
            .agent
            .connect(Options::new(kind, "peer".to_owned()), self.world.now.get());
        self.peers.insert(id, Framer::new());
        id
    }

    /// A connection of a version.
    pub(crate) fn open(&mut self, kind: Kind, version: Version) -> ConnId {
        let id = self.connect(kind);
        let hello = Hello {
            version: version.number(),
            bitmap: Some([version].into_iter().collect::<Versions>()),
        };
        self.say(id, version, 1, Body::Hello(hello));
        let heard = self.hear_raw(id);
        assert_eq!(heard.len(), 1, "our hello");
        assert_eq!(self.agent.version(id), Some(version));
        id
    }

    /// Gives the agent a message, and has it work.
    pub(crate) fn say(&mut self, id: ConnId, version: Version, xid: u32, body: Body) {
        let bytes = Codec::new(version).encode(&Message { xid, body });
        self.say_bytes(id, &bytes);
    }

    pub(crate) fn say_bytes(&mut self, id: ConnId, bytes: &[u8]) -> Run {
        self.agent.receive(id, bytes);
        self.work(id)
    }

    /// Has the agent work until it has nothing to do, with a peer that reads.
    pub(crate) fn work(&mut self, id: ConnId) -> Run {
        for _ in 0..100_000 {
            let run = self.agent.run(id, &self.world, self.world.now.get(), 8);
            let bytes = self.agent.transmit(id);
            self.peers.entry(id).or_default().push(&bytes);
            if !matches!(run, Run::Busy | Run::Full) {
                return run;
            }
        }
        panic!("the agent does not come to an end");
    }

    /// The messages that a peer has got.
    pub(crate) fn hear_raw(&mut self, id: ConnId) -> Vec<Vec<u8>> {
        let bytes = self.agent.transmit(id);
        let peer = self.peers.entry(id).or_default();
        peer.push(&bytes);
        let mut heard = Vec::new();
        while let Some(message) = peer.next().expect("what the agent sends is framed") {
            heard.push(message.to_vec());
        }
        heard
    }

    /// The messages that a peer has got, which all make sense.
    pub(crate) fn hear(&mut self, id: ConnId, version: Version) -> Vec<Message> {
        let decode = |bytes: &Vec<u8>| {
            Codec::new(version)
                .decode(bytes)
                .expect("what the agent sends can be read")
        };
        self.hear_raw(id).iter().map(decode).collect()
    }

    /// How many rules there are.
    pub(crate) fn rules(&self) -> usize {
        self.world
            .look(|switch| switch.bridge(BRIDGE).map_or(0, |bridge| bridge.tables().len()))
    }

    /// Has the agent do what closed connections have left behind. In how many slices.
    pub(crate) fn background(&mut self) -> usize {
        for slices in 0..100_000 {
            if !self.agent.events().contains(&Event::Background) {
                return slices;
            }
            let before = self.world.changes.get();
            self.agent.background(&self.world, self.world.now.get());
            let changes = self.world.changes.get() - before;
            // The rules of a slice, the end of the bundle, events.
            assert!(changes <= 3, "{changes} changes in one slice");
        }
        panic!("the agent does not come to an end");
    }

    /// The connections that the agent calls ready.
    pub(crate) fn ready(&mut self) -> Vec<ConnId> {
        let events = self.agent.events().into_iter();
        let ready = |event| match event {
            Event::Ready(id) => Some(id),
            Event::Greeted(_) | Event::Admitted(_) | Event::Reconnect | Event::Background => None,
        };
        events.filter_map(ready).collect()
    }

    pub(crate) fn disconnect(&mut self, id: ConnId) {
        self.agent.disconnect(id, &self.world, self.world.now.get());
        self.peers.remove(&id);
    }
}

/// A rule that drops, of a priority.
pub(crate) fn rule(priority: u16) -> FlowMod {
    FlowMod {
        priority,
        table: Some(0),
        new_cookie: Some(0),
        instructions: Instructions::default(),
        ..FlowMod::default()
    }
}

/// The errors among messages, with the numbers of what they answer.
pub(crate) fn errors(messages: &[Message]) -> Vec<(u32, OfError)> {
    let error = |message: &Message| match &message.body {
        Body::Error(error) => match error.kind {
            ErrorKind::Known(kind) => Some((message.xid, kind)),
            ErrorKind::Unknown { .. } => panic!("{error:?}"),
        },
        _ => None,
    };
    messages.iter().filter_map(error).collect()
}
