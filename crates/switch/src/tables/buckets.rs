//! Groups on the packet under translation: the buckets that run (OpenFlow 1.3.5 §5.6).

use super::action_set::ordered;
use super::budget::cost;
use super::freeze::Why;
use super::group::Group;
use super::packet::Owner;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::selection::{Method, Selector};
use crate::dep::Read;
use dp::{DropCause, FieldsHash, FlowHash};
use flow::{Field, Home, Key, RecircId};
use openflow::model::{Action, GroupType};
use smallvec::SmallVec;
use std::sync::Arc;

impl Pipeline<'_> {
    /// The action `group`.
    pub(super) fn group(&mut self, id: u32) {
        let Some(bridge) = self.packet.place.bridge else { return };
        let Some(group) = bridge.tables.group(id) else {
            self.depend(Read::Group(bridge.id, id));
            return self.dropped(DropCause::NoDestination);
        };
        // A selection depends on parts of the group.
        if group.kind != GroupType::Select {
            self.depend_in_bridge(|bridge| Read::Group(bridge, group.id));
        }
        if !self.deeper(1) {
            return;
        }
        let owner = std::mem::replace(&mut self.packet.place.of, Owner::Group);
        match group.kind {
            GroupType::All | GroupType::Indirect => {
                self.credit_bucket(group, None);
                for at in 0..group.buckets.len() {
                    self.bucket(group, at);
                }
            }
            GroupType::FastFailover => {
                let live = (0..group.buckets.len())
                    .find(|at| self.spend(cost::PORT) && self.is_bucket_live(&group.buckets[*at]));
                self.one_bucket(group, live);
            }
            GroupType::Select => {
                let chosen = self.select(group);
                self.one_bucket(group, chosen);
            }
        }
        self.packet.place.of = owner;
        self.shallower(1);
    }

    fn one_bucket(&mut self, group: &Group, chosen: Option<usize>) {
        let Some(at) = chosen else {
            self.detail(|_| String::from("no live bucket"));
            return self.dropped(DropCause::PortDown);
        };
        self.detail(|_| format!("using bucket {}", group.buckets[at].id));
        // As in Open vSwitch, what none of them is for is not counted.
        self.credit_bucket(group, None);
        self.bucket(group, at);
    }

    /// Runs a bucket on a copy of the packet, as an action set.
    fn bucket(&mut self, group: &Group, at: usize) {
        let Some(bucket) = group.buckets.get(at) else { return };
        if self.failed || self.exit || !self.spend(4 * bucket.actions.len()) {
            return;
        }
        self.credit_bucket(group, Some(at));
        let list = ordered(&bucket.actions);
        self.open(Kind::Bucket, |_| format!("bucket {}", bucket.id));
        self.on_copy(|copy| {
            copy.packet.place.action_set.clear();
            copy.run_rest(&list, None);
            copy.settle_frozen();
        });
        self.close(1);
    }

    /// Selects one of the live buckets by a hash of the packet. All packets of a flow get the same
    /// bucket; when a bucket dies, only its flows move.
    fn select(&mut self, group: &Group) -> Option<usize> {
        let selector = group.selector.as_ref()?;
        if selector.distributes() {
            return self.select_slot(group, selector);
        }
        self.depend_in_bridge(|bridge| Read::Group(bridge, group.id));
        if selector.len() == 1 {
            let only = selector.bucket(0)?;
            return self.is_bucket_live(&group.buckets[only]).then_some(only);
        }
        self.select_by_score(group, selector)
    }

    /// The bucket of the slot that the packet's hash selects, or of the next one whose bucket is
    /// live.
    fn select_slot(&mut self, group: &Group, selector: &Selector) -> Option<usize> {
        self.depend_in_bridge(|bridge| Read::GroupHash(bridge, group.id));
        let wanted = self.flow_hash(selector);
        let slots = selector.len();
        let hash = match RecircId(self.original.get(Field::RecircId) as u32).hash() {
            Some(hash) if self.hash.as_ref() == Some(&wanted) => {
                self.consult(Field::RecircId, slots as u128 - 1);
                hash
            }
            _ => self.read_for(&wanted, FlowHash::short),
        };
        let mut dead = SmallVec::<[usize; 8]>::new();
        // As in Open vSwitch, a trace does not tell which buckets are passed over.
        let report = self.report.take();
        let found = (0..slots)
            .map(|n| (usize::from(hash) + n) & (slots - 1))
            .find_map(|slot| {
                self.depend_in_bridge(|bridge| Read::GroupSlot(bridge, group.id, (slots as u16, slot as u8)));
                let at = selector.bucket(slot)?;
                if dead.contains(&at) {
                    return None;
                }
                let is_live = self.spend(cost::PORT) && self.is_bucket_live(&group.buckets[at]);
                dead.push(at);
                is_live.then_some(at)
            });
        self.report = report;
        found
    }

    /// The bucket with the highest score, where there are not enough slots for the weights.
    fn select_by_score(&mut self, group: &Group, selector: &Selector) -> Option<usize> {
        let mut live = Vec::new();
        for (at, bucket) in group.buckets.iter().enumerate() {
            if !self.spend(cost::PORT) {
                return None;
            }
            if bucket.weight > 0 && self.is_bucket_live(bucket) {
                live.push(at);
            }
        }
        if live.len() < 2 {
            return live.first().copied();
        }
        let wanted = self.flow_hash(selector);
        let hash = self.read_for(&wanted, FlowHash::of);
        let score = |at: &usize| {
            let bucket = &group.buckets[*at];
            // A random number between 0 and 1 to the power of 1 / weight, as its logarithm: the
            // highest wins in proportion to the weights.
            let random = (flow::mix(hash, bucket.id.into()) >> 11) as f64 + 0.5;
            (random / (1u64 << 53) as f64).ln() / f64::from(bucket.weight)
        };
        live.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))
    }

    /// The hash of the packet as it is now, with all that it depends on read.
    fn read_for<T>(&mut self, hash: &FlowHash, value: fn(&FlowHash, &Key) -> T) -> T {
        let key = self.packet.state.key;
        for (field, bits) in hash.reads(&key) {
            self.consult(field, bits);
        }
        value(hash, &key)
    }

    /// Whether an action needs a hash of the packet that only the datapath computes without one
    /// megaflow for each flow: the packet recirculates with it before the action.
    pub(super) fn needs_hash(&mut self, action: &Action) -> bool {
        let (Action::Group(id), Some(bridge)) = (action, self.packet.place.bridge) else {
            return false;
        };
        let group = bridge.tables.group(*id);
        let selector = group.and_then(|group| group.selector.as_ref());
        let (Some(group), Some(selector)) = (group, selector.filter(|selector| selector.distributes())) else {
            return false;
        };
        let wanted = self.flow_hash(selector);
        if self.hash.as_ref() == Some(&wanted) || !self.may_recirculate_for(selector) {
            return false;
        }
        self.depend_in_bridge(|bridge| Read::GroupHash(bridge, group.id));
        self.line(Kind::Action, |p| p.text_of_action(action));
        // In Open vSwitch's words: the bucket shows when the packet comes back.
        self.detail(|_| String::from("no live bucket"));
        self.freeze(Why::Hash(wanted));
        true
    }

    /// Whether a packet may recirculate for a hash. Otherwise this translation selects the bucket:
    /// where exports or captures name the port that the packet leaves by, where the bridge has no
    /// free handle, and in a trace by named fields, as Open vSwitch does.
    fn may_recirculate_for(&mut self, selector: &Selector) -> bool {
        let Some(bridge) = self.packet.place.bridge else {
            return false;
        };
        let received_by = self.exported.bridge.unwrap_or(bridge);
        let is_named = bridge.names_members() || received_by.names_members();
        if is_named || self.report.is_some() && matches!(selector.method, Method::Fields(_)) {
            return false;
        }
        if self.switch.contexts.is_full(bridge.id) {
            self.depend(Read::Handles(bridge.id));
            return false;
        }
        true
    }

    /// What a packet's hash depends on. A field that the datapath's packet does not have counts as
    /// a constant: all packets of the megaflow have its value.
    fn flow_hash(&mut self, selector: &Selector) -> FlowHash {
        let selection = match &selector.method {
            Method::Flow(hash) => return hash.clone(),
            Method::Fields(selection) => selection,
        };
        let mut basis = flow::mix(0, selection.param);
        let mut fields = Vec::new();
        for (field, mask) in &selection.fields {
            let info = field.info();
            if !self.meets(info.prerequisite) {
                continue;
            }
            let mask = mask.low() & info.valid;
            match info.home {
                Home::Key { field, shift } if self.has_in_datapath(field) => fields.push((field, mask << shift)),
                home => {
                    if let Home::Key { field, shift } = home {
                        self.consult(field, mask << shift);
                    }
                    let value = self.packet.state.get(*field) & mask;
                    basis = flow::mix(flow::mix(basis, (value >> 64) as u64), value as u64);
                }
            }
        }
        FlowHash::Fields(Arc::new(FieldsHash { basis, fields }))
    }

    /// Whether the datapath's packet has a field as tables see it.
    fn has_in_datapath(&self, field: Field) -> bool {
        match field {
            _ if field.is_of_tunnel() => self.packet.own_tunnel,
            _ if field.is_of_connection() => self.packet.tracked,
            Field::SkbPriority | Field::RecircId | Field::InPort => false,
            _ => true,
        }
    }

    /// Depends on something of the bridge.
    fn depend_in_bridge(&mut self, read: impl FnOnce(u32) -> Read) {
        if let Some(bridge) = self.packet.place.bridge {
            self.depend(read(bridge.id));
        }
    }
}
