//! A datapath that is slow and plain: every step is done on bytes of its own, segments are cut
//! before anything else. What workers do must be the same.

use super::*;
use crate::rewrite::model::{Sums, any_model};

/// What came of a packet.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// By port, in order.
    sent: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Handle, and what the controller gets.
    controllers: Vec<(u32, Vec<u8>)>,
    /// Number, bytes, queue and mark of recirculated packets.
    again: Vec<(u32, Vec<u8>, u32, u32)>,
}

/// A packet on its way.
#[derive(Clone)]
struct Plain {
    bytes: Vec<u8>,
    queue: u32,
    mark: u32,
    limit: Option<usize>,
}

impl Plain {
    fn run(mut self, actions: &[Action], outcome: &mut Outcome) {
        let mut at = 0;
        while let Some(action) = actions.get(at) {
            at += 1;
            let range = |at: usize, len: u32| at.min(actions.len())..(at + len as usize).min(actions.len());
            match action {
                Action::Output(port) => {
                    let len = self.limit.take().map_or(usize::MAX, |limit| limit.max(14));
                    let cut = self.bytes[..len.min(self.bytes.len())].to_vec();
                    if port.0 <= 3 {
                        outcome.sent.entry(port.0).or_default().push(cut);
                    }
                }
                Action::OutputBond(1) => {
                    let key = flow::extract(&self.bytes, &PortNo(9).into()).unwrap_or(Key::ZERO);
                    let member = super::bond().members[usize::from(super::bond().bucket(&key))];
                    let len = self.limit.take().map_or(usize::MAX, |limit| limit.max(14));
                    if let Some(port) = member {
                        let cut = self.bytes[..len.min(self.bytes.len())].to_vec();
                        outcome.sent.entry(port.0).or_default().push(cut);
                    }
                }
                Action::OutputBond(_) => self.limit = None,
                Action::Punt { handle, max_len, .. } => {
                    let len = usize::from(*max_len).min(self.bytes.len());
                    outcome.controllers.push((*handle, self.bytes[..len].to_vec()));
                }
                Action::RecircByHash { id, hash } => {
                    let key = flow::extract(&self.bytes, &PortNo(9).into()).unwrap_or(Key::ZERO);
                    let id = id.with_hash(hash.short(&key)).0;
                    outcome.again.push((id, self.bytes.clone(), self.queue, self.mark));
                }
                Action::Recirc(id) => {
                    outcome.again.push((*id, self.bytes.clone(), self.queue, self.mark));
                }
                Action::Clone(len) => {
                    let copy = Plain {
                        limit: None,
                        ..self.clone()
                    };
                    copy.run(&actions[range(at, *len)], outcome);
                    at += *len as usize;
                }
                // All or (nearly) none: tests choose no other probability.
                Action::Sample { probability, steps } => {
                    if *probability == u32::MAX {
                        let copy = Plain {
                            limit: None,
                            ..self.clone()
                        };
                        copy.run(&actions[range(at, *steps)], outcome);
                    }
                    at += *steps as usize;
                }
                Action::IfLonger { len, then, otherwise } => {
                    let copy = Plain {
                        limit: None,
                        ..self.clone()
                    };
                    let branch = match self.bytes.len() - super::padding(&self.bytes) > usize::from(*len) {
                        true => range(at, *then),
                        false => range(at + *then as usize, *otherwise),
                    };
                    copy.run(&actions[branch], outcome);
                    at += (then + otherwise) as usize;
                }
                Action::Trunc(len) => self.limit = Some(*len as usize),
                Action::SetQueue(queue) => self.queue = *queue,
                _ => self.change(action),
            }
        }
    }

    fn kind(&self, at: usize) -> u16 {
        self.bytes
            .get(at..at + 2)
            .map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]))
    }

    /// Where the type behind all tags is.
    fn type_at(&self) -> usize {
        let mut at = 12;
        while matches!(self.kind(at), 0x8100 | 0x88a8) {
            at += 4;
        }
        at
    }

    /// Where the times to live of the outermost label and of the header behind it are, and where
    /// that header is, if it is of IPv4. The type of the packet is at `at`.
    fn ttls(&self, at: usize) -> Option<(usize, usize, Option<std::ops::Range<usize>>)> {
        let label = at + 2;
        if !matches!(self.kind(at), 0x8847 | 0x8848) || self.bytes.len() < label + 4 {
            return None;
        }
        let next = label + 4;
        let len = self.bytes.len() - next;
        if self.bytes[label + 2] & 1 == 0 {
            return (len >= 4).then_some((label + 3, next + 3, None));
        }
        match self.bytes.get(next)? {
            first @ 0x45..=0x4f => {
                let header = next..next + usize::from(first & 15) * 4;
                let right = testkit::checksum(self.bytes.get(header.clone())?) == 0;
                right.then_some((label + 3, next + 8, Some(header)))
            }
            0x60..=0x6f if len >= 40 + usize::from(self.kind(next + 4)) => Some((label + 3, next + 7, None)),
            _ => None,
        }
    }

    fn change(&mut self, action: &Action) {
        let at = self.type_at();
        match action {
            Action::PushVlan(tag) => {
                self.bytes.splice(12..12, tag.to_bytes());
            }
            // A tag is whole with the type behind it.
            Action::PopVlan if matches!(self.kind(12), 0x8100 | 0x88a8) && self.bytes.len() >= 18 => {
                self.bytes.drain(12..16);
            }
            // What has a length in its type's place, or ends within a tag, has no type that the
            // label's could take the place of.
            Action::PushMpls { ethertype, lse } if self.kind(at) >= 0x600 => {
                self.bytes.splice(
                    at..at + 2,
                    [ethertype.to_be_bytes().as_slice(), &lse.to_be_bytes()].concat(),
                );
            }
            Action::PopMpls { ethertype } if matches!(self.kind(at), 0x8847 | 0x8848) && self.bytes.len() >= at + 6 => {
                self.bytes.splice(at..at + 6, ethertype.to_be_bytes());
            }
            Action::SetMpls { lse, mask } if matches!(self.kind(at), 0x8847 | 0x8848) && self.bytes.len() >= at + 6 => {
                let entry: &mut [u8; 4] = self.bytes[at + 2..].first_chunk_mut().unwrap();
                *entry = (u32::from_be_bytes(*entry) & !mask | lse & mask).to_be_bytes();
            }
            Action::CopyTtlOut => {
                if let Some((label, next, _)) = self.ttls(at) {
                    self.bytes[label] = self.bytes[next];
                }
            }
            Action::CopyTtlIn => {
                if let Some((label, next, ip)) = self.ttls(at) {
                    self.bytes[next] = self.bytes[label];
                    if let Some(header) = ip.map(|ip| &mut self.bytes[ip]) {
                        header[10..12].copy_from_slice(&[0, 0]);
                        let sum = testkit::checksum(header);
                        header[10..12].copy_from_slice(&sum.to_be_bytes());
                    }
                }
            }
            Action::PushPbb { tci } => {
                let header = [&self.bytes[..12], &[0x88, 0xe7], &tci.to_be_bytes()].concat();
                self.bytes.splice(..0, header);
            }
            Action::PopPbb if self.kind(at) == 0x88e7 && self.bytes.len() >= at + 6 + 14 => {
                let addresses: Vec<u8> = self.bytes.drain(at..at + 18).skip(6).collect();
                self.bytes[..12].copy_from_slice(&addresses);
            }
            Action::SetField(set) => {
                // Writes are compared with a model of their own.
                let mut frame = Frame::from_slice(&self.bytes);
                (frame.meta.mark, frame.meta.priority) = (self.mark, self.queue);
                let mut layers = Layers::UNKNOWN;
                set_field(&mut frame, &mut layers, set);
                self.bytes = frame.data().to_vec();
                (self.mark, self.queue) = (frame.meta.mark, frame.meta.priority);
            }
            _ => {}
        }
    }
}

/// A packet that ends with its type, which `kind` is, in a backbone header that is taken off before
/// a label is put on.
fn bare(kind: u16) -> (Outcome, Outcome) {
    let inner = [&[3; 6][..], &[4; 6], &kind.to_be_bytes()].concat();
    let bytes = [&[1; 6][..], &[2; 6], &[0x88, 0xe7, 0, 0, 0, 5], &inner].concat();
    let label = Action::PushMpls {
        ethertype: 0x8847,
        lse: 0x0001_0140,
    };
    let actions = [Action::PopPbb, label, Action::PopVlan, output(1)];
    let mut expected = Outcome::default();
    let plain = Plain {
        bytes: bytes.clone(),
        queue: 0,
        mark: 0,
        limit: None,
    };
    plain.run(&actions, &mut expected);
    (ours(Frame::from_slice(&bytes), &actions).0, expected)
}

#[test]
fn a_label_goes_behind_a_type_and_not_into_a_length_or_half_a_tag() {
    for (kind, len) in [(0x0800, 18), (0x0046, 14), (0x8100, 14), (0x88a8, 14)] {
        let (outcome, expected) = bare(kind);
        assert_eq!(outcome, expected, "{kind:x}");
        assert_eq!(outcome.sent[&1][0].len(), len, "{kind:x}");
    }
}

/// Actions that change or show a packet, and always show it in the end.
fn actions(of_segments: bool) -> impl Strategy<Value = Vec<Action>> {
    let field = (0..Field::ALL.len(), any::<u128>(), any::<u128>());
    let tpid = || prop_oneof![Just(0x8100u16), Just(0x88a8)];
    let mpls = || prop_oneof![Just(0x8847u16), Just(0x8848)];
    let kind = prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x8847), Just(0x0806)];
    let action = prop_oneof![
        3 => (1..5u32).prop_map(output),
        6 => field.prop_filter_map("writable", move |(field, value, mask)| {
            // What a device makes of flags is not the same for each part.
            let kept = of_segments && Field::ALL[field] == Field::TcpFlags;
            let set = SetField::new(Field::ALL[field], value, mask).filter(|_| !kept);
            set.map(Action::SetField)
        }),
        2 => (tpid(), any::<u16>()).prop_map(|(tpid, tci)| Action::PushVlan(VlanTag { tpid, tci })),
        2 => Just(Action::PopVlan),
        1 => (mpls(), any::<u32>()).prop_map(|(ethertype, lse)| Action::PushMpls { ethertype, lse }),
        1 => kind.prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(lse, mask)| Action::SetMpls { lse, mask }),
        1 => Just(Action::CopyTtlOut),
        1 => Just(Action::CopyTtlIn),
        1 => (0..200u32).prop_map(Action::Trunc),
        1 => (0..200u16).prop_map(|max_len| Action::Punt { reason: dp::PuntReason::Controller, handle: 1, max_len }),
        1 => (0..6u32).prop_map(Action::Clone),
        1 => (prop_oneof![Just(0), Just(u32::MAX)], 0..6u32)
            .prop_map(|(probability, steps)| Action::Sample { probability, steps }),
        1 => (50..200u16, 0..4u32, 0..4u32).prop_map(|(len, then, otherwise)| Action::IfLonger { len, then, otherwise }),
        1 => (1..3u32).prop_map(Action::Recirc),
        1 => (1..3u32, any::<bool>()).prop_map(|(id, symmetric)| Action::RecircByHash {
            id: flow::RecircId::hashed(id),
            hash: match symmetric {
                true => dp::FlowHash::SymmetricL4 { basis: id },
                false => dp::FlowHash::L4 { basis: id },
            },
        }),
        1 => (1..3u32).prop_map(Action::OutputBond),
        1 => any::<u32>().prop_map(Action::SetQueue),
        1 => any::<u32>().prop_map(|tci| Action::PushPbb { tci }),
        1 => Just(Action::PopPbb),
    ];
    prop::collection::vec(action, 0..25).prop_map(|mut actions| {
        // There is room for some headers only.
        let mut room = 100usize;
        actions.retain(|action| {
            let takes = match action {
                Action::PushVlan(_) | Action::PushMpls { .. } => 4,
                Action::PushPbb { .. } => 18,
                _ => 0,
            };
            let fits = takes <= room;
            room -= if fits { takes } else { 0 };
            fits
        });
        actions.push(output(1));
        actions
    })
}

/// What workers make of a frame.
fn ours(frame: Frame, actions: &[Action]) -> (Outcome, Fixture) {
    let mut fixture = Fixture::new();
    let budget = fixture.rx_queue.source.punts.as_mut().unwrap();
    budget.begin(false);
    let sent = fixture.run(frame, actions);
    let sent = (1..).zip(sent).filter(|(_, sent)| !sent.is_empty());
    let mut outcome = Outcome {
        sent: sent.collect(),
        ..Outcome::default()
    };
    let taken = std::mem::take(&mut *fixture.controllers.taken.lock());
    outcome.controllers = taken.into_iter().map(|(handle, _, bytes, _)| (handle, bytes)).collect();
    for frame in std::mem::take(&mut fixture.actor.recirculated) {
        for packet in gso::segment(frame).unwrap() {
            let (bytes, meta) = (packet.data().to_vec(), &packet.meta);
            outcome.again.push((meta.recirc_id, bytes, meta.priority, meta.mark));
        }
    }
    (outcome, fixture)
}

/// The two forms of a sum that is zero are the same.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differs = |at: &usize| a[*at] != b[*at];
    a.len() == b.len()
        && (0..a.len()).filter(differs).all(|at| {
            let word = |bytes: &[u8], from: usize| bytes.get(from..from + 2).map(|word| [word[0], word[1]]);
            [at, at.saturating_sub(1)].iter().any(|from| {
                let words = [word(a, *from), word(b, *from)];
                words == [Some([0, 0]), Some([0xff, 0xff])] || words == [Some([0xff, 0xff]), Some([0, 0])]
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_become_what_plain_steps_make_of_them(
        model in any_model().prop_filter("has a type", |model| !model.is_snap()), actions in actions(false),
    ) {
        let bytes = model.bytes(Sums::Whole);
        let mut expected = Outcome::default();
        let plain = Plain { bytes: bytes.clone(), queue: 0, mark: 0, limit: None };
        plain.run(&actions, &mut expected);
        let (outcome, fixture) = ours(Frame::from_slice(&bytes), &actions);
        prop_assert_eq!(fixture.dropped(DropCause::Malformed), 0);
        prop_assert_eq!(outcome, expected);
    }

    #[test]
    fn segments_become_what_plain_steps_make_of_their_packets(
        payload in 0..4000usize, size in 500..1500u16, pending: bool, actions in actions(true),
    ) {
        let bytes = tcp(7, &vec![5; payload]);
        let mut frame = Frame::from_slice(&bytes);
        frame.offload = Offload { gso: Gso::Tcp4, gso_size: size, hdr_len: 54, ..Offload::default() };
        if pending {
            let pseudo = wire::checksum::pseudo_ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, 20 + payload as u32);
            frame.data_mut()[50..52].copy_from_slice(&pseudo.fold().to_be_bytes());
            frame.offload.csum = Csum::Partial { start: 34, offset: 16 };
        }
        let mut expected = Outcome::default();
        for packet in gso::segment(frame.duplicate()).unwrap() {
            let plain = Plain { bytes: packet.data().to_vec(), queue: 0, mark: 0, limit: None };
            plain.run(&actions, &mut expected);
        }
        let (mut outcome, fixture) = ours(frame, &actions);
        prop_assert_eq!(fixture.dropped(DropCause::Malformed), 0);
        // Several outputs of a whole segment come one after the other, those of its packets in
        // turn.
        for outcome in [&mut outcome, &mut expected] {
            outcome.sent.values_mut().for_each(|sent| sent.sort());
            outcome.again.sort();
            outcome.controllers.clear();
        }
        prop_assert_eq!(outcome.sent.len(), expected.sent.len());
        for (port, sent) in &outcome.sent {
            prop_assert_eq!(sent.len(), expected.sent[port].len());
            for (a, b) in sent.iter().zip(&expected.sent[port]) {
                prop_assert!(same(a, b), "{:x?}\n{:x?}", a, b);
            }
        }
        prop_assert_eq!(outcome.again.len(), expected.again.len());
        for (a, b) in outcome.again.iter().zip(&expected.again) {
            prop_assert!(same(&a.1, &b.1) && (a.0, a.2, a.3) == (b.0, b.2, b.3));
        }
    }
}
