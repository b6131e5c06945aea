//! `ofproto/trace`: the translation of a packet, step by step, in Open vSwitch's words.
//!
//! The translator that answers upcalls writes the trace: it fills a report as it goes.

mod text;

use crate::switch::Switch;
use crate::tables::{Patience, Pipeline, Report, Start, Translated};
use dp::{ActionList, Key, PortNo, ToController};
use flow::{Field, FlowState, MatchField};
use nanos::Nanos;
use openflow::model::{Action, Match};
use openflow::text::{Names, Style};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The packet to trace, and how to print it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The name of the bridge that the packet enters.
    pub bridge: &'a str,
    /// The packet and its metadata, with the OpenFlow number of its ingress port. The ingress port
    /// of the key is ignored. A recirculation id continues from its context.
    pub state: FlowState,
    /// Actions to run instead of the bridge's tables.
    pub actions: Option<&'a [Action]>,
    /// Names of ports for the text, bridge by bridge; numbers are printed where there are none.
    pub names: BTreeMap<String, Names>,
    /// Names of datapath ports, for the same.
    pub devices: BTreeMap<u32, String>,
    /// Whether there is a packet, so that the caller applies its effects.
    pub effective: bool,
}

impl<'a> Request<'a> {
    /// A packet that enters a bridge by a port, printed with numbers.
    pub fn new(bridge: &'a str, key: Key, port: u32) -> Request<'a> {
        Request {
            bridge,
            state: FlowState::new(key, port),
            actions: None,
            names: BTreeMap::new(),
            devices: BTreeMap::new(),
            effective: false,
        }
    }
}

/// A trace.
#[derive(Debug)]
pub struct Traced {
    /// The text.
    pub text: String,
    /// The translation.
    pub translated: Translated,
}

impl Switch {
    /// Traces a packet; changes nothing. `None` where there is no such bridge, `Some(None)` as
    /// [`Switch::translate`].
    pub fn trace(&self, request: &Request<'_>, now: Nanos, patience: Patience<'_>) -> Option<Option<Traced>> {
        let id = *self.bridge_ids.get(request.bridge)?;
        Some(self.trace_in(id, request, now, patience))
    }

    fn trace_in(&self, id: u32, request: &Request<'_>, now: Nanos, patience: Patience<'_>) -> Option<Traced> {
        let mut key = request.state.key;
        let port = request.state.get(MatchField::InPortOxm) as u32;
        let device = self.device(id, port).map_or(0, |device| device.0);
        key.set(Field::InPort, device.into());
        let names = request.names.iter();
        let names = names.filter_map(|(name, names)| Some((*self.bridge_ids.get(name)?, names.clone())));
        let report = Report::new(names.collect(), request.effective);

        let start = match request.actions {
            Some(actions) => Start::Actions(id, request.state, actions),
            None => Start::At(id, request.state),
        };
        let mut pipeline = Pipeline::new(self, &key, patience);
        pipeline.watch(report);
        pipeline.run_from(&start);
        let (report, last) = pipeline.take_report();
        let translated = pipeline.finish(now)?;

        let style = Style {
            names: request.names.get(request.bridge),
            ..Style::PLAIN
        };
        let flow = text::flow(&request.state, style);
        let mut out = format!("Flow: {flow}\n{}\n", report.text());
        let last = last.map_or_else(|| flow.clone(), |last| text::flow(&last, style));
        let unchanged = last == flow;
        let _ = writeln!(out, "Final flow: {}", if unchanged { "unchanged" } else { &last });
        let _ = writeln!(out, "Megaflow: {}", self.megaflow(&request.state, &translated, style));
        let device_name = |port: PortNo| request.devices.get(&port.0).cloned();
        let controller = |handle: u32| {
            let (_, to) = translated.controllers.iter().find(|(known, _)| *known == handle)?;
            Some(ToController {
                reason: to.reason,
                dont_send: !request.effective,
                continuation: to.continuation.is_some(),
                recirc_id: handle,
                cookie: to.cookie,
                controller_id: to.controller,
                max_len: Some(to.max_len),
            })
        };
        let actions = ActionList::new(&translated.translation.actions, &key)
            .with_names(&device_name)
            .with_controllers(&controller);
        let _ = writeln!(out, "Datapath actions: {actions}");
        if let Some(error) = report.error() {
            let _ = writeln!(out, "Translation failed ({}), packet is dropped.", text::failure(error));
        }
        Some(Traced { text: out, translated })
    }

    /// The bridge and the OpenFlow port of a datapath port.
    pub fn attachment(&self, port: PortNo) -> Option<(&str, u32)> {
        let at = self.attachments.get(&port)?;
        let (name, _) = self.bridge_ids.iter().find(|(_, id)| **id == at.bridge)?;
        let port = self.bridges.get(&at.bridge)?.ports.get(&at.port)?;
        let number = port.members.get(at.interface)?.number;
        Some((name, number))
    }

    fn device(&self, bridge: u32, port: u32) -> Option<PortNo> {
        let (at, interface) = *self.bridges.get(&bridge)?.of_ports.get(&port)?;
        let own = |at: &crate::port::Ingress| (at.bridge, at.port, at.interface);
        let found = self
            .attachments
            .iter()
            .find(|(_, there)| own(there) == (bridge, at, interface));
        found.map(|(device, _)| *device)
    }

    fn megaflow(&self, state: &FlowState, translated: &Translated, style: Style<'_>) -> String {
        let mask = &translated.translation.mask;
        let mut matching = Match::ANY;
        for field in MatchField::ALL.iter().filter(|field| field.info().canonical) {
            if let flow::Home::Key { field: home, shift } = field.info().home {
                let bits = mask.get(home) >> shift & field.info().valid;
                if *field != MatchField::RecircId && bits != 0 {
                    matching.set(*field, state.get(*field) & bits, bits);
                }
            }
        }
        matching.set(
            MatchField::InPortOxm,
            state.get(MatchField::InPortOxm),
            MatchField::InPortOxm.info().valid,
        );
        let recirc_id = match state.key.get(Field::RecircId) {
            0 => String::from("0"),
            id => format!("{id:#x}"),
        };
        format!(
            "recirc_id={recirc_id},eth,{}",
            text::condition(&matching.normalized(), state, mask, style)
        )
    }
}
