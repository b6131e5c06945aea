//! Writing actions in Nicira's words.

use super::{DEBUG_RECIRC, DEBUG_SLOW, EXPERIMENTER, Encoder, NICIRA, ct, learn, put, to10};
use crate::buf::Writer;
use crate::model::{Action, Bundle, Controller, EncapProperty, Multipath, Sample, SampleDirection, Subfield, Value};
use crate::{Version, oxm};
use flow::MatchField;

/// Writes any action that the version has no words of its own for.
pub(super) fn encode(encoder: &mut Encoder, out: &mut Writer, action: &Action) {
    match action {
        Action::OutputReg { src, max_len } => output_reg(out, src, *max_len),
        Action::OutputTrunc { port, max_len } => nx(out, 39, |out| {
            out.u16(to10(*port));
            out.u32(*max_len);
        }),
        Action::Controller(controller) => encode_controller(out, controller),
        Action::Group(group) => nx(out, 40, |out| {
            out.zeros(2);
            out.u32(*group);
        }),
        Action::Bundle(bundle) => encode_bundle(out, bundle),
        Action::SetEcn(ecn) => load(out, &Subfield::whole(MatchField::NwEcn), (*ecn).into()),
        Action::SetTtl(ttl) => load(out, &Subfield::whole(MatchField::NwTtl), (*ttl).into()),
        Action::Move { src, dst } => nx(out, 6, |out| {
            out.u16(src.n_bits());
            out.u16(src.ofs());
            out.u16(dst.ofs());
            name(out, src.field());
            name(out, dst.field());
        }),
        Action::Load { dst, value } => load(out, dst, *value),
        Action::SetField { field, value, mask } => set_field(encoder, out, *field, value, mask.as_ref()),
        Action::Push(part) => stack(out, 27, part),
        Action::Pop(part) => stack(out, 28, part),
        Action::DecTtl(ids) if ids[..] == [0] => empty(out, 18),
        Action::DecTtl(ids) => nx(out, 21, |out| {
            out.u16(ids.len() as u16);
            out.zeros(4);
            ids.iter().for_each(|id| out.u16(*id));
        }),
        Action::SetMplsLabel(label) => nx(out, 30, |out| {
            out.zeros(2);
            out.u32(*label);
        }),
        Action::SetMplsTc(tc) => nx(out, 31, |out| out.u8(*tc)),
        Action::SetMplsTtl(ttl) => nx(out, 25, |out| out.u8(*ttl)),
        Action::DecMplsTtl => empty(out, 26),
        Action::PushMpls(ethertype) => nx(out, 23, |out| out.u16(*ethertype)),
        Action::PopMpls(ethertype) => nx(out, 24, |out| out.u16(*ethertype)),
        Action::SetTunnel { id, wide } => match u32::try_from(*id) {
            Ok(id) if !wide => nx(out, 2, |out| {
                out.zeros(2);
                out.u32(id);
            }),
            _ => nx(out, 9, |out| {
                out.zeros(6);
                out.u64(*id);
            }),
        },
        Action::SetQueue(queue) => nx(out, 4, |out| {
            out.zeros(2);
            out.u32(*queue);
        }),
        Action::PopQueue => empty(out, 5),
        Action::FinTimeout { idle, hard } => nx(out, 19, |out| {
            out.u16(*idle);
            out.u16(*hard);
        }),
        Action::Resubmit { in_port, table, ct } => nx(out, if *ct { 44 } else { 14 }, |out| {
            out.u16(to10(*in_port));
            out.u8(*table);
        }),
        Action::Learn(learn) => learn::encode(out, learn),
        Action::Conjunction { id, clause, n_clauses } => nx(out, 34, |out| {
            out.u8(*clause);
            out.u8(*n_clauses);
            out.u32(*id);
        }),
        Action::Multipath(multipath) => encode_multipath(out, multipath),
        Action::Note(bytes) => nx(out, 8, |out| {
            out.bytes(bytes);
            out.zeros(6usize.saturating_sub(bytes.len()));
        }),
        Action::Exit => empty(out, 17),
        Action::Sample(sample) => encode_sample(out, sample),
        Action::Ct(ct) => ct::encode(encoder, out, ct),
        Action::Nat(nat) => ct::encode_nat(out, nat),
        Action::CtClear => empty(out, 43),
        Action::Clone(actions) => {
            let mut inner = encoder.clone();
            nx(out, 42, |out| {
                out.zeros(6);
                inner.encode(out, actions);
            });
        }
        Action::CheckPktLarger { pkt_len, dst } => nx(out, 49, |out| {
            out.u16(*pkt_len);
            out.u16(dst.ofs());
            name(out, dst.field());
            out.zeros(6);
        }),
        Action::Encap {
            packet_type,
            hdr_size,
            properties,
        } => nx(out, 46, |out| {
            out.u16(*hdr_size);
            out.u32(*packet_type);
            properties.iter().for_each(|p| encode_property(out, p));
        }),
        Action::Decap(packet_type) => nx(out, 47, |out| {
            out.zeros(2);
            out.u32(*packet_type);
        }),
        Action::DecNshTtl => empty(out, 48),
        Action::DebugSlow => empty(out, DEBUG_SLOW),
        Action::DebugRecirc => empty(out, DEBUG_RECIRC),
        Action::DeleteField(field) => nx(out, 50, |out| {
            name(out, *field);
            out.zeros(10);
        }),
        Action::WriteMetadata { value, mask } => nx(out, 22, |out| {
            out.zeros(6);
            out.u64(*value);
            out.u64(*mask);
        }),
        // The version has its own action for these, or no version has one: then the list leaves
        // them out.
        Action::Output { .. }
        | Action::Enqueue { .. }
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::PopVlan
        | Action::StripVlan
        | Action::PushVlan(_)
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetTos(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::PushPbb(_)
        | Action::PopPbb
        | Action::Meter(_) => {}
    }
}

/// Writes one of Nicira's actions.
fn nx(out: &mut Writer, subtype: u16, body: impl FnOnce(&mut Writer)) {
    put(out, EXPERIMENTER, |out| {
        out.u32(NICIRA);
        out.u16(subtype);
        body(out);
    });
}

fn empty(out: &mut Writer, subtype: u16) {
    nx(out, subtype, |_| {});
}

/// Nicira's actions name fields the same in all versions.
fn name(out: &mut Writer, field: MatchField) {
    oxm::encode_name(out, field, Version::V10);
}

fn ofs_nbits(part: &Subfield) -> u16 {
    part.ofs() << 6 | (part.n_bits() - 1)
}

fn load(out: &mut Writer, dst: &Subfield, value: u64) {
    if oxm::name_len(dst.field(), Version::V10) > 4 {
        // The first form has no room for an experimenter's identifier.
        let bits = u128::MAX >> (128 - u32::from(dst.n_bits()));
        let mask = (!dst.is_whole()).then_some(Value::Word(bits << dst.ofs()));
        let value = Value::Word(u128::from(value) << dst.ofs());
        nx(out, 33, |out| {
            oxm::encode_set(out, dst.field(), Version::V10, &value, mask.as_ref());
        });
        return;
    }
    nx(out, 7, |out| {
        out.u16(ofs_nbits(dst));
        name(out, dst.field());
        out.u64(value);
    });
}

fn output_reg(out: &mut Writer, src: &Subfield, max_len: u16) {
    let long = oxm::name_len(src.field(), Version::V10) > 4;
    nx(out, if long { 32 } else { 15 }, |out| {
        out.u16(ofs_nbits(src));
        if long {
            out.u16(max_len);
            name(out, src.field());
        } else {
            name(out, src.field());
            out.u16(max_len);
            out.zeros(6);
        }
    });
}

fn stack(out: &mut Writer, subtype: u16, part: &Subfield) {
    nx(out, subtype, |out| {
        out.u16(part.ofs());
        name(out, part.field());
        out.u16(part.n_bits());
    });
}

/// Sets a field with loads: of 64 bits each, and of each run of ones in the mask. Fields too wide
/// for that are set with the second form.
fn set_field(encoder: &Encoder, out: &mut Writer, field: MatchField, value: &Value, mask: Option<&Value>) {
    let (Value::Word(word), None | Some(Value::Word(_))) = (value, mask) else {
        nx(out, 33, |out| {
            oxm::encode_set(out, field, encoder.version, value, mask);
        });
        return;
    };
    let mut left = match mask {
        Some(Value::Word(mask)) => *mask & u128::MAX >> (128 - field.part_bits()),
        _ => u128::MAX >> (128 - field.part_bits()),
    };
    while left != 0 {
        let ofs = left.trailing_zeros();
        let n_bits = (left >> ofs).trailing_ones().min(64);
        let run = u128::MAX >> (128 - n_bits);
        if let Some(part) = Subfield::new(field, ofs as u16, n_bits as u16) {
            load(out, &part, (word >> ofs & run) as u64);
        }
        left &= !(run << ofs);
    }
}

fn encode_controller(out: &mut Writer, controller: &Controller) {
    if controller.is_plain() {
        nx(out, 20, |out| {
            out.u16(controller.max_len);
            out.u16(controller.id);
            out.u8(controller.reason);
        });
        return;
    }
    let default = Controller::default();
    nx(out, 37, |out| {
        out.zeros(6);
        if controller.max_len != default.max_len {
            property(out, 0, |out| padded(out, &controller.max_len.to_be_bytes()));
        }
        if controller.id != default.id {
            property(out, 1, |out| padded(out, &controller.id.to_be_bytes()));
        }
        if controller.reason != default.reason {
            property(out, 2, |out| padded(out, &[controller.reason]));
        }
        if !controller.userdata.is_empty() {
            property(out, 3, |out| out.bytes(&controller.userdata));
        }
        if controller.pause {
            property(out, 4, |_| {});
        }
        if let Some(meter) = controller.meter {
            property(out, 5, |out| out.u32(meter));
        }
    });
}

/// A number in four bytes, at their beginning.
fn padded(out: &mut Writer, number: &[u8]) {
    out.bytes(number);
    out.zeros(4 - number.len());
}

/// Writes a property: type, length, value, zeros up to 8 bytes that the length does not count.
fn property(out: &mut Writer, kind: u16, body: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.patch_len(start + 2, start);
    out.pad8(start);
}

fn encode_bundle(out: &mut Writer, bundle: &Bundle) {
    nx(out, if bundle.dst.is_some() { 13 } else { 12 }, |out| {
        out.u16(bundle.algorithm as u16);
        out.u16(bundle.fields as u16);
        out.u16(bundle.basis);
        name(out, MatchField::InPort);
        out.u16(bundle.members.len() as u16);
        match &bundle.dst {
            Some(dst) => {
                out.u16(ofs_nbits(dst));
                name(out, dst.field());
            }
            None => out.zeros(6),
        }
        out.zeros(4);
        bundle.members.iter().for_each(|port| out.u16(to10(*port)));
    });
}

fn encode_multipath(out: &mut Writer, multipath: &Multipath) {
    nx(out, 10, |out| {
        out.u16(multipath.fields as u16);
        out.u16(multipath.basis);
        out.zeros(2);
        out.u16(multipath.algorithm as u16);
        out.u16(multipath.max_link);
        out.u32(multipath.arg);
        out.zeros(2);
        out.u16(ofs_nbits(&multipath.dst));
        name(out, multipath.dst.field());
    });
}

fn encode_sample(out: &mut Writer, sample: &Sample) {
    let plain = sample.sampling_port == crate::model::Port::ANY && sample.direction == SampleDirection::Default;
    let subtype = match sample.direction {
        _ if plain => 29,
        SampleDirection::Default => 38,
        _ => 41,
    };
    nx(out, subtype, |out| {
        out.u16(sample.probability);
        out.u32(sample.collector_set_id);
        out.u32(sample.obs_domain_id);
        out.u32(sample.obs_point_id);
        if !plain {
            out.u16(to10(sample.sampling_port));
            out.u8(sample.direction as u8);
        }
    });
}

fn encode_property(out: &mut Writer, property: &EncapProperty) {
    let start = out.len();
    out.u16(4);
    match property {
        EncapProperty::NshMdType(kind) => {
            out.bytes(&[1, 5, *kind]);
        }
        EncapProperty::NshTlv { class, kind, data } => {
            out.u8(2);
            // The length counts the padding of the data.
            out.u8((8 + data.len().next_multiple_of(8)) as u8);
            out.u16(*class);
            out.u8(*kind);
            out.u8(data.len() as u8);
            out.bytes(data);
        }
    }
    out.pad8(start);
}
