//! Groups on the packet under translation: the buckets that run (OpenFlow 1.3.5 §5.6).

use super::action_set::ordered;
use super::budget::cost;
use super::group::Group;
use super::packet::Owner;
use super::pipeline::Pipeline;
use super::report::Kind;
use crate::dep::Read;
use dp::DropCause;
use flow::{Field, Home, MatchPrerequisite};
use openflow::model::{GroupType, HashFields, Selection};

/// The bucket number of packets that count for the group alone.
const NO_BUCKET: u16 = u16::MAX;

/// The algorithm in the upper half of the parameter of `dp_hash` that gives both directions of a
/// connection the same hash. OVN sets it where the datapath's `max_hash_alg` allows it. The ports
/// of UDP count, as in Open vSwitch's kernel datapath.
const SYMMETRIC: u64 = 1;

impl Pipeline<'_> {
    /// The action `group`.
    pub(super) fn group(&mut self, id: u32) {
        let Some(bridge) = self.packet.place.bridge else { return };
        self.depend(Read::Group(bridge.id, id));
        let Some(group) = bridge.tables.group(id) else {
            return self.dropped(DropCause::NoDestination);
        };
        if !self.deeper(1) {
            return;
        }
        let owner = std::mem::replace(&mut self.packet.place.of, Owner::Group);
        match group.kind {
            GroupType::All | GroupType::Indirect => {
                self.credit_bucket(group, NO_BUCKET);
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
        self.credit_bucket(group, NO_BUCKET);
        self.bucket(group, at);
    }

    /// Runs a bucket on a copy of the packet, as an action set.
    fn bucket(&mut self, group: &Group, at: usize) {
        let Some(bucket) = group.buckets.get(at) else { return };
        if self.failed || self.exit || !self.spend(4 * bucket.actions.len()) {
            return;
        }
        self.credit_bucket(group, at as u16);
        let list = ordered(&bucket.actions);
        self.open(Kind::Bucket, |_| format!("bucket {}", bucket.id));
        self.on_copy(|copy| {
            copy.packet.place.action_set.clear();
            copy.run_rest(&list, None);
            copy.settle_frozen();
        });
        self.close(1);
    }

    /// Selects one of the live buckets by weight and a hash of the packet. All packets of a flow
    /// get the same bucket; when a bucket dies, only its flows move.
    fn select(&mut self, group: &Group) -> Option<usize> {
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
        let hash = self.hash_for(group.selection.as_ref());
        let score = |at: &usize| {
            let bucket = &group.buckets[*at];
            // A random number between 0 and 1 to the power of 1 / weight, as its logarithm: the
            // highest wins in proportion to the weights.
            let random = (flow::mix(hash, bucket.id.into()) >> 11) as f64 + 0.5;
            (random / (1u64 << 53) as f64).ln() / f64::from(bucket.weight)
        };
        live.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))
    }

    /// The hash for the selection: of the fields that the controller has named, or of addresses,
    /// protocol and ports. It has no secret seed, so connections keep their bucket after a restart.
    /// A controller sets its own `selection_method_param` if senders must not predict the choice.
    fn hash_for(&mut self, selection: Option<&Selection>) -> u64 {
        let basis = selection.map_or(0, |selection| selection.param);
        if selection.is_some_and(|selection| selection.method == "dp_hash" && selection.param >> 32 == SYMMETRIC) {
            return self.hash_of(HashFields::SymmetricL3L4Udp, basis);
        }
        let mut hash = flow::mix(0, basis);
        let mut add = |value: u128| hash = flow::mix(flow::mix(hash, (value >> 64) as u64), value as u64);
        let named = selection.filter(|selection| selection.method == "hash" && !selection.fields.is_empty());
        if let Some(selection) = named {
            for (field, mask) in &selection.fields {
                let info = field.info();
                if !self.meets(info.prerequisite) {
                    continue;
                }
                let mask = mask.low() & info.valid;
                if let Home::Key { field, shift } = info.home {
                    self.consult(field, mask << shift);
                }
                add(self.packet.state.get(*field) & mask);
            }
            return hash;
        }
        use Field as F;
        let kind = self.read(F::EthType);
        match kind {
            0x0800 | 0x86dd => {
                let (src, dst) = match kind {
                    0x0800 => (F::Ipv4Src, F::Ipv4Dst),
                    _ => (F::Ipv6Src, F::Ipv6Dst),
                };
                for field in [src, dst, F::IpProto] {
                    add(self.read(field));
                }
                use MatchPrerequisite as P;
                if [P::Tcp, P::Udp, P::Sctp]
                    .into_iter()
                    .any(|transport| self.meets(transport))
                {
                    add(self.read(F::TpSrc));
                    add(self.read(F::TpDst));
                }
            }
            _ => {
                for field in [F::EthSrc, F::EthDst] {
                    add(self.read(field));
                }
                add(kind);
            }
        }
        hash
    }
}
