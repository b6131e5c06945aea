//! A masked write to a header field.

use flow::Field;

/// A write to some bits of a header field.
///
/// Kept in words so that an [`Action`](crate::Action) that holds one stays small enough to be
/// copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetField {
    value: [u64; 2],
    mask: [u64; 2],
    field: Field,
}

impl SetField {
    /// The bits of a VLAN tag that can be written: all but the one that means "present" in a key.
    /// Writing to a tag clears its drop eligible indicator ([`flow::TAG_PRESENT`]).
    const VLAN: u128 = 0xefff;

    /// Writes the bits of `value` that `mask` has; bits beyond the field's width are ignored.
    /// `None` for a field that is not in packets, or that determines the packet's structure: the
    /// type of the next header, lengths, fragments.
    pub const fn new(field: Field, value: u128, mask: u128) -> Option<SetField> {
        if !SetField::writable(field) {
            return None;
        }
        let mut mask = mask & field.max_value();
        if matches!(field, Field::VlanTci0) {
            mask &= SetField::VLAN;
        }
        let value = value & mask;
        Some(SetField {
            value: [(value >> 64) as u64, value as u64],
            mask: [(mask >> 64) as u64, mask as u64],
            field,
        })
    }

    /// Whether a field can be written to.
    pub const fn writable(field: Field) -> bool {
        use Field as F;
        matches!(
            field,
            F::EthDst
                | F::EthSrc
                | F::VlanTci0
                | F::IpTos
                | F::IpTtl
                | F::Ipv6Label
                | F::Ipv4Src
                | F::Ipv4Dst
                | F::Ipv6Src
                | F::Ipv6Dst
        ) || matches!(
            field,
            F::TpSrc | F::TpDst | F::TcpFlags | F::IcmpType | F::IcmpCode | F::NdTarget | F::NdSll | F::NdTll
        ) || matches!(field, F::ArpSpa | F::ArpTpa | F::ArpSha | F::ArpTha | F::ArpOp)
            || matches!(
                field,
                F::NshFlags | F::NshTtl | F::NshSpi | F::NshSi | F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4
            )
            || matches!(
                field,
                F::PktMark | F::SkbPriority | F::NdReserved | F::NdOptionsType | F::MplsLse0 | F::PbbIsid | F::PbbUca
            )
    }

    /// The field.
    #[inline(always)]
    pub const fn field(&self) -> Field {
        self.field
    }

    /// The value; bits outside the mask are zero.
    #[inline(always)]
    pub const fn value(&self) -> u128 {
        (self.value[0] as u128) << 64 | self.value[1] as u128
    }

    /// The mask of the bits to write.
    #[inline(always)]
    pub const fn mask(&self) -> u128 {
        (self.mask[0] as u128) << 64 | self.mask[1] as u128
    }

    /// Both writes as one; both must be to the same field.
    #[must_use]
    pub fn then(&self, later: &SetField) -> Option<SetField> {
        let value = self.value() & !later.mask() | later.value();
        (self.field == later.field).then(|| SetField::new(self.field, value, self.mask() | later.mask()))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;

    #[test]
    fn an_action_stays_small() {
        assert!(size_of::<Action>() <= 40);
    }

    #[test]
    fn only_what_stands_in_a_packet_can_be_written() {
        for field in [
            Field::InPort,
            Field::RecircId,
            Field::EthType,
            Field::IpProto,
            Field::IpFrag,
        ] {
            assert_eq!(SetField::new(field, 0, 0), None);
        }
        let set = SetField::new(Field::Ipv6Dst, u128::MAX, 1 << 127 | 1).unwrap();
        assert_eq!((set.value(), set.mask()), (1 << 127 | 1, 1 << 127 | 1));
        let set = SetField::new(Field::VlanTci0, u128::MAX, u128::MAX).unwrap();
        assert_eq!((set.value(), set.mask()), (0xefff, 0xefff));
    }

    #[test]
    fn two_writes_to_a_field_are_one() {
        let set = |value, mask| SetField::new(Field::TpDst, value, mask).unwrap();
        assert_eq!(
            set(0xab00, 0xff00).then(&set(0x00cd, 0x0fff)),
            Some(set(0xa0cd, 0xffff))
        );
        let other = SetField::new(Field::TpSrc, 0, 1).unwrap();
        assert_eq!(set(0, 1).then(&other), None);
    }
}
