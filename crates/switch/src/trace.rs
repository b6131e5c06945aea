//! `ofproto/trace`: the translation of a packet, step by step, in Open vSwitch's words.
//!
//! The translator that answers upcalls writes the trace: it fills a report as it goes.

mod ct;
mod text;

use crate::port::Ingress;
use crate::switch::Switch;
use crate::tables::{Context, ForController, Forked, Patience, Pipeline, Report, Start, Translated};
use dp::{Action as Step, ActionList, Key, PortNo, PuntReason, ToController, UserData};
use flow::{Field, FlowState, Mask, MatchField, PORT_UNSET, RecircId};
use nanos::Nanos;
use openflow::model::Action;
use openflow::text::{Names, Style};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use wire::EtherType;

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
    /// What the connection tracker is to say of the packet, pass by pass: bits of `ct_state`. Where
    /// there is no more, it begins a connection.
    pub ct_next: &'a [u32],
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
            ct_next: &[],
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

/// Most passes of a trace. Rules may track a packet again and again.
const MOST_PARTS: usize = 128;

impl Traced {
    /// Adds the effects of a later part.
    fn add(&mut self, part: Translated, switch: &Switch, now: Nanos) {
        let own = &mut self.translated;
        own.translation.effects.extend(part.translation.effects);
        own.contexts = part.contexts;
        own.controllers.extend(part.controllers);
        own.work += part.work;
        own.ran_out = own.ran_out.or(part.ran_out);
        own.news = switch.news(&own.translation.effects, &own.contexts, now);
    }
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
        let device = self
            .bridges
            .get(&id)
            .and_then(|bridge| bridge.device_of(port))
            .map_or(0, |device| device.0);
        key.set(Field::InPort, device.into());
        let start = match request.actions {
            Some(actions) => Start::Actions(id, request.state, actions),
            None => Start::At(id, request.state),
        };
        let (mut traced, forked) =
            self.trace_part(request, (request.bridge, &key), &start, Vec::new(), now, patience)?;
        let mut waiting: VecDeque<Forked> = forked.into();
        let mut next = request.ct_next.iter();
        let mut parts = 0;
        while let Some(fork) = waiting.pop_front() {
            parts += 1;
            let name = self.bridge_ids.iter().find(|(_, id)| **id == fork.bridge);
            let Some((name, _)) = name.filter(|_| parts <= MOST_PARTS) else {
                break;
            };
            let (state, head) = ct::resumed(&fork, next.next().copied());
            traced.text += &head;
            let contexts = std::mem::take(&mut traced.translated.contexts);
            let (part, forked) = self.trace_part(
                request,
                (name, &state.key),
                &Start::At(fork.bridge, state),
                contexts,
                now,
                patience,
            )?;
            waiting.extend(forked);
            traced.text += &part.text;
            traced.add(part.translated, self, now);
        }
        Some(traced)
    }

    /// Traces from a start to the end, or to where copies pass the connection tracker, which are
    /// returned. `contexts` are those of earlier parts.
    fn trace_part(
        &self,
        request: &Request<'_>,
        (bridge, key): (&str, &Key),
        start: &Start<'_>,
        contexts: Vec<(u32, Arc<Context>)>,
        now: Nanos,
        patience: Patience<'_>,
    ) -> Option<(Traced, Vec<Forked>)> {
        let (Start::At(_, state) | Start::Actions(_, state, _)) = start;
        let names = request.names.iter();
        let names = names.filter_map(|(name, names)| Some((*self.bridge_ids.get(name)?, names.clone())));
        let report = Report::new(names.collect(), request.effective);
        let mut pipeline = Pipeline::new(self, key, patience);
        pipeline.know(contexts);
        pipeline.watch(report);
        pipeline.run_from(start);
        let (mut report, last) = pipeline.take_report();
        let forked = report.take_forked();
        let translated = pipeline.finish(now)?;

        let style = Style {
            names: request.names.get(bridge),
            ..Style::PLAIN
        };
        let flow = text::flow(state, style);
        let mut out = format!("Flow: {flow}\n{}\n", report.text());
        let mut last = last.unwrap_or(*state);
        last.key.set(Field::RecircId, state.key.get(Field::RecircId));
        last.set(MatchField::DpHash, state.get(MatchField::DpHash));
        // The output of an action set is not printed, and counts.
        let output = |state: &FlowState| state.get(MatchField::ActsetOutput);
        let outputs = output(&last) != output(state) && output(&last) != u128::from(PORT_UNSET);
        let left = report.leave_tunnel(&mut last);
        let last = text::flow(&last, style);
        let unchanged = last == flow && !outputs && !left;
        let _ = writeln!(out, "Final flow: {}", if unchanged { "unchanged" } else { &last });
        let mask = shown(&translated.translation.mask, report.shown(), &state.key);
        let _ = writeln!(out, "Megaflow: {}", text::megaflow(&mask, state, style));
        let device_name = |port: PortNo| request.devices.get(&port.0).cloned();
        let user_data = |handle: u32| {
            let (_, context) = translated.contexts.iter().find(|(known, _)| *known == handle)?;
            Some(match user_data(handle, context)? {
                UserData::Controller(to) => UserData::Controller(ToController {
                    dont_send: !request.effective,
                    ..to
                }),
                other => other,
            })
        };
        let mut shown = whole_labels(&translated.translation.actions, key);
        // In Open vSwitch the slow path itself looks at these packets.
        let mut slow: BTreeSet<&str> = shown.iter().filter_map(slow_path).collect();
        slow.extend(report.slow_path().then_some(NOT_IN_DATAPATH));
        shown.retain(|step| slow_path(step).is_none());
        let actions = ActionList::new(&shown, key)
            .with_names(&device_name)
            .with_user_data(&user_data);
        let _ = writeln!(out, "Datapath actions: {actions}");
        if !slow.is_empty() {
            out.push_str("This flow is handled by the userspace slow path because it:\n");
        }
        for reason in slow {
            let _ = writeln!(out, "  - {reason}");
        }
        if let Some(error) = report.error() {
            let _ = writeln!(out, "Translation failed ({}), packet is dropped.", text::failure(error));
        }
        Some((Traced { text: out, translated }, forked))
    }

    /// The bridge and the OpenFlow port of a packet that a datapath port has received.
    ///
    /// # Errors
    /// There is none, in Open vSwitch's words.
    pub fn attachment(&self, key: &Key) -> Result<(&str, u32), String> {
        let port = key.in_port();
        if self.tunnels.is_device(port) {
            let at = self.tunnels.find(key);
            let place = at.and_then(|at| self.place_of(at));
            return place.ok_or_else(|| String::from("no OpenFlow tunnel port for this packet"));
        }
        let place = self.attachments.get(&port).and_then(|at| self.place_of(*at));
        place.ok_or_else(|| format!("no OpenFlow port for datapath port {port}"))
    }

    fn place_of(&self, at: Ingress) -> Option<(&str, u32)> {
        let (name, _) = self.bridge_ids.iter().find(|(_, id)| **id == at.bridge)?;
        let port = self.bridges.get(&at.bridge)?.ports.get(&at.port)?;
        let number = port.members.get(at.interface)?.number;
        Some((name, number))
    }

    /// What a datapath action with this handle tells the switch.
    pub fn user_data(&self, handle: u32) -> Option<UserData> {
        user_data(handle, self.contexts.get(handle)?)
    }

    /// Whether packets continue under a recirculation id.
    pub fn continues(&self, id: u32) -> bool {
        matches!(
            self.contexts.get(RecircId(id).base().0).map(|context| &**context),
            Some(Context::Recirculation(_))
        )
    }
}

const NOT_IN_DATAPATH: &str = "Uses action(s) not supported by datapath.";

/// Why Open vSwitch's slow path handles a packet that a control protocol gets, in its words.
fn slow_path(step: &Step) -> Option<&'static str> {
    let Step::Punt { reason, .. } = step else { return None };
    match reason {
        PuntReason::Bfd => Some("Consists of BFD packets."),
        PuntReason::Cfm => Some("Consists of CFM packets."),
        PuntReason::Lacp => Some("Consists of LACP packets."),
        PuntReason::Lldp => Some("Consists of LLDP packets."),
        PuntReason::Stp => Some("Consists of STP packets."),
        PuntReason::Igmp => Some(NOT_IN_DATAPATH),
        PuntReason::Controller | PuntReason::PathMtu | PuntReason::Sample | PuntReason::Capture => None,
    }
}

fn user_data(handle: u32, context: &Context) -> Option<UserData> {
    match context {
        Context::Controller(to) => Some(UserData::Controller(shown_controller(handle, to))),
        Context::Sampled(sampled) => Some(UserData::Sample(sampled.data)),
        _ => None,
    }
}

fn shown_controller(handle: u32, to: &ForController) -> ToController {
    ToController {
        reason: to.reason,
        dont_send: false,
        continuation: to.continuation.is_some(),
        recirc_id: handle,
        cookie: to.cookie,
        controller_id: to.controller,
        max_len: Some(to.max_len),
    }
}

/// The actions with labels in full where only bits of a label are written.
fn whole_labels(actions: &[Step], key: &Key) -> Vec<Step> {
    let mut now = Some(key.get(Field::MplsLse0) as u32);
    let whole = |action: &Step| match (action, now) {
        (Step::PushMpls { lse, .. }, _) => {
            now = Some(*lse);
            action.clone()
        }
        (Step::SetMpls { lse, mask }, Some(old)) => {
            let lse = old & !mask | lse;
            now = Some(lse);
            Step::SetMpls { lse, mask: u32::MAX }
        }
        (Step::PopMpls { .. } | Step::Clone(_), _) => {
            now = None;
            action.clone()
        }
        _ => action.clone(),
    };
    actions.iter().map(whole).collect()
}

/// The bits of a megaflow as Open vSwitch shows them: always the EtherType and whether an IP packet
/// is a fragment, never headers that the packet does not have.
fn shown(mask: &Mask, more: &[(Field, u128)], key: &Key) -> Mask {
    let kind = EtherType(key.get(Field::EthType) as u16);
    let is_ip = matches!(kind, EtherType::IPV4 | EtherType::IPV6);
    let mut all = *mask;
    more.iter().for_each(|(field, bits)| all.add_bits(*field, *bits));
    all.add(Field::EthType);
    if is_ip {
        all.add(Field::IpFrag);
    }
    let has = |field: Field| match field {
        Field::VlanTci0 | Field::VlanTpid0 => key.tag(0).is_some(),
        Field::VlanTci1 | Field::VlanTpid1 => key.tag(1).is_some(),
        Field::MplsLse0 | Field::MplsLse1 | Field::MplsLse2 => {
            matches!(kind, EtherType::MPLS | EtherType::MPLS_MULTICAST)
        }
        // Later fragments have no ports.
        Field::TpSrc | Field::TpDst | Field::IcmpType | Field::IcmpCode => key.get(Field::IpFrag) & 2 == 0,
        Field::IpFrag => is_ip,
        field if field.is_of_tunnel() => key.tunnel_addresses().is_some(),
        _ => true,
    };
    let mut shown = Mask::EMPTY;
    for field in Field::ALL.iter().copied().filter(|field| has(*field)) {
        shown.add_bits(field, all.get(field));
    }
    shown
}
