//! The effect of actions on a packet: its tags, its labels, the rest of its key.

use dp::{Action, SetField};
use flow::{Field, Key, Mask};
use wire::VlanTag;

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    tags: Vec<VlanTag>,
    labels: Vec<u32>,
    kind: u16,
    queue: u32,
    key: Key,
}

const LABELS: [Field; 3] = [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2];

impl Frame {
    pub(crate) fn new(key: &Key) -> Frame {
        let mut key = *key;
        let tags = [key.tag(0), key.tag(1)].into_iter().flatten().collect();
        key.set_tag(0, None);
        key.set_tag(1, None);
        let kind = key.get(Field::EthType) as u16;
        let mut labels = Vec::new();
        if matches!(kind, 0x8847 | 0x8848) {
            for field in LABELS {
                labels.push(key.get(field) as u32);
                if labels.last().is_some_and(|lse| lse & 0x100 != 0) {
                    break;
                }
            }
        }
        LABELS.iter().for_each(|field| key.set(*field, 0));
        Frame {
            tags,
            labels,
            kind,
            queue: 0,
            key,
        }
    }

    fn set(&mut self, set: &SetField) {
        if set.field() == Field::VlanTci0 {
            if let Some(tag) = self.tags.first_mut() {
                tag.tci = tag.tci & !set.mask() as u16 | set.value() as u16;
            }
            return;
        }
        let old = self.key.get(set.field());
        self.key.set(set.field(), old & !set.mask() | set.value());
    }

    fn show(&self, cut: Option<u32>) -> String {
        let mut key = self.key;
        key.set(Field::EthType, self.kind.into());
        format!(
            "{:?} {:x?} queue {} cut {cut:?} {}",
            self.tags,
            self.labels,
            self.queue,
            key.display(&Mask::full())
        )
    }
}

/// The packets that leave and their ports, sorted; `long` says whether the packet is longer than
/// every length that the actions check.
pub(crate) fn run(actions: &[Action], frame: &Frame, long: bool) -> Vec<(u32, String)> {
    let mut out = Vec::new();
    go(actions, frame.clone(), long, &mut out);
    out.sort();
    out
}

/// A port for packets to controllers.
const CONTROLLER: u32 = u32::MAX;

fn go(actions: &[Action], mut frame: Frame, long: bool, out: &mut Vec<(u32, String)>) {
    let mut rest = actions;
    let mut cut = None;
    while let [action, behind @ ..] = rest {
        rest = behind;
        match action {
            Action::Output(port) => out.push((port.0, frame.show(cut.take()))),
            Action::Punt { max_len, .. } => {
                // Packets to controllers go through no queue.
                let packet = Frame {
                    queue: 0,
                    ..frame.clone()
                };
                let limit = (*max_len < u16::MAX).then_some((*max_len).into());
                out.push((CONTROLLER, packet.show(limit.or(cut.take()))));
            }
            Action::Trunc(len) => cut = Some(*len),
            Action::PushVlan(tag) => frame.tags.insert(0, *tag),
            Action::PopVlan => drop(frame.tags.remove(0)),
            Action::SetField(set) => frame.set(set),
            Action::PushMpls { ethertype, lse } => {
                frame.labels.insert(0, *lse);
                frame.kind = *ethertype;
            }
            Action::PopMpls { ethertype } => {
                frame.labels.remove(0);
                frame.kind = *ethertype;
            }
            Action::SetMpls { lse, mask } => frame.labels[0] = frame.labels[0] & !mask | lse & mask,
            Action::SetQueue(queue) => frame.queue = *queue,
            Action::Clone(steps) => {
                let (copy, behind) = rest.split_at(*steps as usize);
                go(copy, frame.clone(), long, out);
                rest = behind;
            }
            Action::IfLonger { then, otherwise, .. } => {
                let (longer, behind) = rest.split_at(*then as usize);
                let (shorter, behind) = behind.split_at(*otherwise as usize);
                go(if long { longer } else { shorter }, frame.clone(), long, out);
                rest = behind;
            }
            Action::Recirc(_) => out.push((CONTROLLER - 1, frame.show(None))),
            Action::Meter(_) => {}
            other => panic!("no rule asks for {other}"),
        }
    }
}
