//! OpenFlow actions on the packet under translation.

use super::budget::cost;
use super::freeze::Why;
use super::look_up::{LookUp, Ran};
use super::pipeline::Pipeline;
use super::report::Kind;
use super::{Credited, Group};
use flow::{Field, MatchField, MatchPrerequisite, TAG_PRESENT};
use openflow::model::{Action, Controller, Port, Subfield};

/// The packet-in reason of an expired time to live.
const INVALID_TTL: u8 = 2;

impl Pipeline<'_> {
    /// Runs actions in order.
    pub(super) fn run_list(&mut self, list: &[Action]) -> Ran {
        for (at, action) in list.iter().enumerate() {
            if !self.spend(cost::ACTION) {
                return Ran::Through;
            }
            if self.hides(action) || self.needs_hash(action) {
                return Ran::Frozen(at);
            }
            self.line(Kind::Action, |p| p.text_of_action(action));
            let goes_on = self.act(action);
            if self.freezing.is_some() {
                return Ran::Frozen(at + 1);
            }
            if !goes_on {
                return Ran::Stopped;
            }
            if self.exit || self.failed {
                return Ran::Through;
            }
        }
        Ran::Through
    }

    /// Runs one action. Whether the list continues.
    fn act(&mut self, action: &Action) -> bool {
        self.packet.untouched &= leaves_packet(action);
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len),
            Action::OutputReg { src, max_len } => self.output_reg(src, *max_len),
            Action::OutputTrunc { port, max_len } => self.output_cut(*port, *max_len),
            Action::Enqueue { port, queue } => self.enqueue(*port, *queue),
            Action::Controller(to) if to.pause => self.freeze(Why::Pause(to.clone())),
            Action::Controller(to) => self.hand_over(to, None),
            Action::Group(group) => self.group(*group),
            Action::Bundle(bundle) => self.bundle(bundle),
            Action::Multipath(multipath) => self.multipath(multipath),
            Action::SetVlanVid(vid) => self.set_tci((*vid & 0xfff) | TAG_PRESENT, 0xfff | TAG_PRESENT),
            Action::SetVlanPcp(pcp) => self.set_tci(u16::from(*pcp) << 13 | TAG_PRESENT, 0xe000 | TAG_PRESENT),
            Action::PopVlan | Action::StripVlan => self.pop_vlan(),
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::SetEthSrc(mac) => self.write(MatchField::EthSrc, mac.to_u64().into(), u128::MAX),
            Action::SetEthDst(mac) => self.write(MatchField::EthDst, mac.to_u64().into(), u128::MAX),
            Action::SetIpv4Src(addr) => self.write_ip(MatchField::IpSrc, addr.to_bits().into(), u128::MAX),
            Action::SetIpv4Dst(addr) => self.write_ip(MatchField::IpDst, addr.to_bits().into(), u128::MAX),
            Action::SetTos(tos) => self.write(MatchField::NwTos, (*tos).into(), 0xfc),
            Action::SetEcn(ecn) => self.write(MatchField::NwEcn, (*ecn).into(), 3),
            Action::SetTtl(ttl) => self.write_ip(MatchField::NwTtl, (*ttl).into(), u128::MAX),
            Action::SetTpSrc(port) => self.write_port(Field::TpSrc, *port),
            Action::SetTpDst(port) => self.write_port(Field::TpDst, *port),
            Action::Move { src, dst } => self.move_bits(src, dst),
            Action::Load { dst, value } => {
                self.warn_unmet(dst.field());
                self.show_protocol(dst.field());
                self.write_bits(dst, (*value).into());
            }
            Action::SetField { field, value, mask } => {
                self.warn_unmet(*field);
                self.show_protocol(*field);
                self.set_field(*field, value, mask.as_ref());
            }
            Action::DeleteField(field) => self.delete_field(*field),
            Action::Push(src) => self.push_bits(src),
            Action::Pop(dst) => match self.packet.stack.pop() {
                Some(bits) => {
                    self.write_bits(dst, bits);
                    self.detail_of_bits(dst);
                }
                None => self.error(|_| String::from("stack underflow")),
            },
            Action::DecTtl(controllers) => return self.dec_ttl(controllers),
            Action::SetMplsLabel(label) => self.set_lse(label << 12, 0xffff_f000),
            Action::SetMplsTc(tc) => self.set_lse(u32::from(*tc) << 9, 0xe00),
            Action::SetMplsTtl(ttl) => self.set_lse((*ttl).into(), 0xff),
            Action::DecMplsTtl => return self.dec_mpls_ttl(),
            Action::PushMpls(ethertype) => self.push_mpls(*ethertype),
            Action::PopMpls(ethertype) => self.pop_mpls(*ethertype),
            Action::CopyTtlOut => self.copy_ttl_out(),
            Action::CopyTtlIn => self.copy_ttl_in(),
            Action::PushPbb(_) => self.push_pbb(),
            Action::PopPbb => self.pop_pbb(),
            Action::Encap {
                packet_type,
                properties,
                ..
            } => self.encap(*packet_type, properties),
            Action::Decap(behind) => self.decap(*behind),
            Action::DecNshTtl => return self.dec_nsh_ttl(),
            Action::SetQueue(queue) => self.set_queue(*queue),
            Action::SetTunnel { id, .. } => self.write(MatchField::TunId, (*id).into(), u128::MAX),
            Action::PopQueue => {
                let original = self.original.get(Field::SkbPriority) as u32;
                if self.read(Field::SkbPriority) as u32 != original {
                    self.detail(|_| format!("queue = {original:#x}").replace("0x0", "0"));
                }
                self.set_queue(original);
                self.packet.default_queue = false;
            }
            Action::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard),
            Action::Resubmit { ct: true, .. } if !self.may_resubmit_ct() => {}
            Action::Resubmit { in_port, table, ct } => {
                let table = if *table == 255 { self.packet.place.table } else { *table };
                let port = (*in_port != Port::IN_PORT).then_some(in_port.0);
                self.resubmit(table, LookUp { in_port: port, ct: *ct });
            }
            Action::Ct(ct) => self.ct(ct),
            Action::CtClear => self.ct_clear(),
            Action::Learn(learn) => self.learn(learn),
            Action::Clone(list) => self.on_copy(|copy| {
                copy.run_rest(list, None);
                // `exit` ends the lists around the clone too, but its action set runs.
                let exit = copy.exit;
                copy.settle_of(false);
                copy.exit |= exit;
            }),
            Action::CheckPktLarger { pkt_len, dst } => self.freeze(Why::Length(*pkt_len, *dst)),
            Action::DebugRecirc => self.freeze(Why::Recirculate),
            Action::DebugSlow => self.ask_for_slow_path(),
            Action::Exit => self.exit = true,
            Action::Meter(meter) => self.meter(*meter),
            Action::WriteMetadata { value, mask } => self.write(MatchField::Metadata, (*value).into(), (*mask).into()),
            Action::Sample(sample) => self.sample_flow(sample),
            Action::Conjunction { .. } => self.error(|_| String::from("executing no-op conjunction action")),
            // Flow-mods with actions that are not allowed are refused; `note` does nothing.
            _ => {}
        }
        true
    }

    /// Puts bits on the stack.
    fn push_bits(&mut self, src: &Subfield) {
        if self.has_room_on_stack() {
            let bits = self.read_bits(src);
            self.packet.stack.push(bits);
        }
    }

    /// Chooses the queue of later outputs.
    pub(super) fn set_queue(&mut self, queue: u32) {
        self.consult(Field::SkbPriority, u128::MAX);
        self.packet.state.key.set(Field::SkbPriority, queue.into());
        self.packet.default_queue = queue == 0;
    }

    /// Writes a whole field of an IP header.
    fn write_ip(&mut self, field: MatchField, value: u128, mask: u128) {
        self.show_protocol(field);
        self.write(field, value, mask);
    }

    /// Reports a write that has no effect.
    fn warn_unmet(&mut self, field: MatchField) {
        if self.report.is_some() && !self.meets(field.info().prerequisite) {
            self.warning(|_| format!("unmet prerequisites for {field}, set_field ignored"));
        }
    }

    /// Decrements the time to live; the list ends where it expires.
    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        self.show(Field::IpProto, u128::MAX);
        self.show(Field::IpTtl, u128::MAX);
        if !self.meets(MatchPrerequisite::Ip) {
            return true;
        }
        let ttl = self.read(Field::IpTtl);
        if ttl > 1 {
            self.packet.state.key.set(Field::IpTtl, ttl - 1);
            return true;
        }
        let version = if self.read(Field::EthType) == 0x0800 { 4 } else { 6 };
        self.warning(|_| format!("IPv{version} decrement TTL exception"));
        for controller in controllers {
            self.ttl_over(*controller);
        }
        false
    }

    /// Punts a packet with an expired time to live to a controller.
    pub(super) fn ttl_over(&mut self, controller: u16) {
        self.hand_over(
            &Controller {
                id: controller,
                reason: INVALID_TTL,
                ..Controller::default()
            },
            None,
        );
    }

    /// The action and the instruction `meter`.
    pub(super) fn meter(&mut self, id: u32) {
        // Deleting a meter deletes the rules that use it.
        if let Some(meter) = self.packet.place.bridge.and_then(|bridge| bridge.tables.meter(id)) {
            self.commit();
            self.actions.push(dp::Action::Meter(meter.number));
        }
    }

    /// Counts a packet of a group, or of the bucket at a place of it.
    pub(super) fn credit_bucket(&mut self, group: &Group, bucket: Option<usize>) {
        let Some(bridge) = self.packet.place.bridge else { return };
        let serial = bucket.map_or(Some(group.serial), |at| group.serials.get(at).copied());
        let credited = Credited::Bucket {
            bridge: bridge.id,
            group: group.id,
            serial: serial.unwrap_or_default(),
            bucket: bucket.map(|at| at as u16),
        };
        self.credits.push(credited.credit());
    }
}

/// Whether an action leaves every packet as it is. A controller that pauses a packet may change
/// anything.
fn leaves_packet(action: &Action) -> bool {
    match action {
        Action::Learn(learn) => learn.result.is_none(),
        Action::Bundle(bundle) => bundle.dst.is_none(),
        Action::Controller(to) => !to.pause,
        Action::Output { .. }
        | Action::OutputReg { .. }
        | Action::OutputTrunc { .. }
        | Action::Enqueue { .. }
        | Action::Group(_)
        | Action::Meter(_)
        | Action::Sample(_)
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::FinTimeout { .. }
        | Action::Resubmit { .. }
        | Action::Clone(_)
        | Action::Conjunction { .. }
        | Action::Note(_)
        | Action::Exit => true,
        _ => false,
    }
}
