//! Matches.

use crate::OfError;
use flow::{Field, FlowState, Home, Maskable, MatchField, MatchPrerequisite, StateMatch, port_from_of10};

/// A condition on one canonical field: its bits in `mask` equal those in `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// A canonical field of at most 128 bits.
    pub field: MatchField,
    /// The bits to match; zero outside the mask.
    pub value: u128,
    /// The mask; never zero.
    pub mask: u128,
}

impl Entry {
    /// Whether the mask has all bits of the field.
    pub(crate) fn is_exact(&self) -> bool {
        self.mask == self.field.info().valid
    }
}

/// A condition on a tunnel metadata field. The switch's map of tunnel options gives its width, up
/// to 124 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunMetadata {
    /// The field's number, 0 to 63.
    pub number: u8,
    /// The bits to match, the last byte is the lowest. Empty if the field only has to be present.
    pub value: Vec<u8>,
    /// The mask, as long as the value.
    pub mask: Vec<u8>,
    /// Whether the mask has all bits of the field, including those beyond the value's bytes.
    pub exact: bool,
}

/// A match: a set of conditions, all of which must hold.
///
/// Conditions are stored by canonical fields in order, so that equivalent matches are equal. A
/// condition on a view (`vlan_vid`, `ip_dscp`, `xreg0`, `in_port`) is stored as one on the fields
/// that own its bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    entries: Vec<Entry>,
    tun_metadata: Vec<TunMetadata>,
}

/// The bit of `vlan_tci` for the presence of a tag.
pub(crate) const TAGGED: u128 = 0x1000;

/// The Ethernet types that prerequisites name.
mod ethertype {
    pub(super) const IPV4: u128 = 0x0800;
    pub(super) const ARP: u128 = 0x0806;
    pub(super) const RARP: u128 = 0x8035;
    pub(super) const IPV6: u128 = 0x86dd;
    pub(super) const MPLS: u128 = 0x8847;
    pub(super) const MPLS_MULTICAST: u128 = 0x8848;
    pub(super) const PBB: u128 = 0x88e7;
    pub(super) const NSH: u128 = 0x894f;
}

impl Match {
    /// The match of every packet.
    pub const ANY: Match = Match {
        entries: Vec::new(),
        tun_metadata: Vec::new(),
    };

    /// The match of every packet, with room for some conditions.
    pub(crate) fn with_capacity(conditions: usize) -> Match {
        Match {
            entries: Vec::with_capacity(conditions),
            tun_metadata: Vec::new(),
        }
    }

    /// Its conditions on canonical fields, in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Its conditions on tunnel metadata, by number.
    pub fn tun_metadata(&self) -> &[TunMetadata] {
        &self.tun_metadata
    }

    /// Whether there are no conditions.
    pub fn is_any(&self) -> bool {
        self.entries.is_empty() && self.tun_metadata.is_empty()
    }

    /// The condition on a field of at most 128 bits, canonical or a view: value and mask; `None` if
    /// no bit is in the mask. For `in_port`, as for `in_port_oxm`, the value is the 32-bit port.
    pub fn get(&self, field: MatchField) -> Option<(u128, u128)> {
        if field.info().canonical {
            return self.entry(field).map(|entry| (entry.value, entry.mask));
        }
        let (mut value, mut mask) = (0, 0);
        for piece in pieces(field) {
            if let Some(entry) = self.entry(piece.field) {
                value |= place(entry.value, &piece);
                mask |= place(entry.mask, &piece);
            }
        }
        (mask != 0).then_some((value, mask))
    }

    /// The value of a field whose whole width is matched.
    pub fn exact(&self, field: MatchField) -> Option<u128> {
        if field.info().canonical {
            return self
                .entry(field)
                .filter(|entry| entry.is_exact())
                .map(|entry| entry.value);
        }
        let (value, mask) = self.get(field)?;
        let all = match field {
            MatchField::InPort => u128::from(u32::MAX),
            _ => field.info().valid,
        };
        (mask == all).then_some(value)
    }

    /// Adds a condition as in a message: its prerequisites must precede it, and each field may
    /// occur once.
    ///
    /// # Errors
    /// The specification's error for the fault.
    pub fn add(&mut self, field: MatchField, value: u128, mask: u128) -> Result<(), OfError> {
        let info = field.info();
        if info.home == Home::Elsewhere {
            return Err(OfError::BmcBadField);
        }
        if mask & !info.valid != 0 && mask != mask_of_width(field)
            || info.maskable == Maskable::Exact && mask & info.valid != info.valid && mask != 0
        {
            return Err(OfError::BmcBadMask);
        }
        if value & !mask != 0 {
            return Err(OfError::BmcBadWildcards);
        }
        // The range between normal and reserved ports is invalid.
        let no_port = field == MatchField::InPortOxm && matches!(value, 0xff00..=0xffff_feff);
        if value & !info.valid != 0 || no_port {
            return Err(OfError::BmcBadValue);
        }
        if !self.meets(info.prerequisite) {
            return Err(OfError::BmcBadPrereq);
        }
        if info.canonical && !matches!(field, MatchField::VlanTci) {
            return match self.find(field) {
                Ok(_) => Err(OfError::BmcDupField),
                Err(at) => {
                    let mask = mask & info.valid;
                    if mask != 0 {
                        let value = value & mask;
                        self.entries.insert(at, Entry { field, value, mask });
                    }
                    Ok(())
                }
            };
        }
        if pieces(field)
            .into_iter()
            .any(|p| self.get_bits(p.field) & p.mask() != 0)
        {
            return Err(OfError::BmcDupField);
        }
        self.set(field, value, mask);
        Ok(())
    }

    /// Adds a condition on tunnel metadata; without a mask on the whole field. A mask of zeros only
    /// asks for the presence of the field.
    ///
    /// # Errors
    /// As [`Match::add`].
    pub fn add_tun_metadata(&mut self, number: u8, value: &[u8], mask: Option<&[u8]>) -> Result<(), OfError> {
        if number > 63 {
            return Err(OfError::BmcBadField);
        }
        let exact = mask.is_none();
        let mask = mask.map_or_else(|| vec![0xff; value.len()], <[u8]>::to_vec);
        if value.is_empty() && exact || value.len() > 124 || mask.len() != value.len() {
            return Err(OfError::BmcBadLen);
        }
        if value.iter().zip(&mask).any(|(v, m)| v & !m != 0) {
            return Err(OfError::BmcBadWildcards);
        }
        // Bytes before the masked ones have no effect.
        let unsaid = mask.iter().take_while(|byte| !exact && **byte == 0).count();
        let (value, mask) = (value[unsaid..].to_vec(), mask[unsaid..].to_vec());
        match self.tun_metadata.binary_search_by_key(&number, |t| t.number) {
            Ok(_) => Err(OfError::BmcDupField),
            Err(at) => {
                self.tun_metadata.insert(
                    at,
                    TunMetadata {
                        number,
                        value,
                        mask,
                        exact,
                    },
                );
                Ok(())
            }
        }
    }

    /// Removes the condition on a tunnel metadata field.
    pub fn clear_tun_metadata(&mut self, number: u8) {
        self.tun_metadata.retain(|t| t.number != number);
    }

    /// Sets the condition on the bits of a field in `mask` to `value`. Replaces an earlier
    /// condition on these bits and does not check prerequisites; [`Match::normalized`] removes
    /// conditions without them. Ignores bits that must be zero, and tunnel metadata fields.
    pub fn set(&mut self, field: MatchField, value: u128, mask: u128) {
        let info = field.info();
        if info.canonical && info.home != Home::Elsewhere {
            return self.set_bits(field, value & info.valid, mask & info.valid, info.valid);
        }
        for piece in pieces(field) {
            let (value, mask) = match field {
                MatchField::InPort if mask == 0 => (0, 0),
                MatchField::InPort => (port_from_of10(value as u16).into(), u32::MAX.into()),
                _ => (take(value, &piece), take(mask, &piece)),
            };
            // Conditions on a tag's id or priority imply that the tag is present, except on the
            // id's own presence bit.
            let (value, mask) = match field {
                MatchField::DlVlan | MatchField::DlVlanPcp | MatchField::VlanPcp if mask != 0 => {
                    (value | TAGGED, mask | TAGGED)
                }
                _ => (value, mask),
            };
            self.set_bits(piece.field, value, mask, piece.mask());
        }
    }

    /// Removes all conditions on the bits of a field.
    pub fn clear(&mut self, field: MatchField) {
        for piece in pieces(field) {
            self.set_bits(piece.field, 0, 0, piece.mask());
        }
    }

    /// Whether the match meets the prerequisites of a field.
    pub fn meets(&self, prerequisite: MatchPrerequisite) -> bool {
        use MatchPrerequisite as P;
        if prerequisite == P::None {
            return true;
        }
        let eth_type = self.eth_type();
        let eth = |types: &[u128]| eth_type.is_some_and(|t| types.contains(&t));
        let ip = || eth(&[ethertype::IPV4, ethertype::IPV6]);
        let proto = |proto: u128| self.exact(MatchField::NwProto) == Some(proto);
        let transport = |number: u128| {
            let later = self.get(MatchField::IpFrag).is_some_and(|(v, _)| v & 2 != 0);
            ip() && proto(number) && !later
        };
        let discovery = |types: &[u128]| {
            let kind = self.exact(MatchField::Icmpv6Type);
            let code = self.get(MatchField::Icmpv6Code).map_or(0, |(v, _)| v);
            self.meets(P::Icmpv6) && kind.is_some_and(|t| types.contains(&t)) && code == 0
        };
        match prerequisite {
            P::None => true,
            P::Ethernet => matches!(self.get(MatchField::PacketType), None | Some((0, _))),
            P::VlanVid => self.get(MatchField::VlanTci).is_some_and(|(v, _)| v & TAGGED != 0),
            P::Arp => eth(&[ethertype::ARP, ethertype::RARP]),
            P::Ipv4 => eth(&[ethertype::IPV4]),
            P::Ipv6 => eth(&[ethertype::IPV6]),
            P::Ip => ip(),
            P::Mpls => eth(&[ethertype::MPLS, ethertype::MPLS_MULTICAST]),
            P::Pbb => eth(&[ethertype::PBB]),
            P::Nsh => eth(&[ethertype::NSH]),
            P::Tcp => transport(6),
            P::Udp => transport(17),
            P::Sctp => transport(132),
            P::Icmpv4 => self.meets(P::Ipv4) && proto(1),
            P::Icmpv6 => self.meets(P::Ipv6) && proto(58),
            P::Nd => discovery(&[135, 136]),
            P::NdSolicit => discovery(&[135]),
            P::NdAdvert => discovery(&[136]),
            P::Ct => ip() && self.tracked(),
            P::CtIpv4 => self.meets(P::Ipv4) && self.tracked(),
            P::CtIpv6 => self.meets(P::Ipv6) && self.tracked(),
            P::CtPorts => {
                let proto = self.exact(MatchField::CtNwProto);
                self.meets(P::Ct) && matches!(proto, Some(6 | 17 | 132))
            }
        }
    }

    /// The Ethernet type of all packets of the match, if there is one; for packets without an
    /// Ethernet header, the type from the packet type.
    pub fn eth_type(&self) -> Option<u128> {
        match self.exact(MatchField::PacketType) {
            Some(kind) if kind >> 16 == 1 => Some(kind & 0xffff),
            _ => self.exact(MatchField::EthType),
        }
    }

    /// Whether the match on the connection's state implies that the original addresses are known.
    fn tracked(&self) -> bool {
        const INVALID: u128 = 0x10;
        const TRACKED: u128 = 0x20;
        let (value, mask) = self.get(MatchField::CtState).unwrap_or((0, 0));
        value & !(INVALID | TRACKED) != 0 || value & TRACKED != 0 && mask & INVALID != 0 && value & INVALID == 0
    }

    /// Whether all conditions meet their prerequisites.
    pub fn is_normal(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| self.meets(entry.field.info().prerequisite))
    }

    /// The match without conditions that lack their prerequisites.
    #[must_use]
    pub fn normalized(&self) -> Match {
        let mut result = self.clone();
        result.normalize();
        result
    }

    /// Removes the conditions that lack their prerequisites.
    pub(crate) fn normalize(&mut self) {
        // Fields follow their prerequisites, so one pass is enough.
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            match self.meets(entry.field.info().prerequisite) {
                true => at += 1,
                false => drop(self.entries.remove(at)),
            }
        }
    }

    /// The condition as a state; `None` if there are conditions on tunnel metadata, which a state
    /// does not hold.
    pub fn to_state(&self) -> Option<StateMatch> {
        let mut state = StateMatch::ANY;
        for entry in &self.entries {
            state.require(entry.field, entry.value, entry.mask);
        }
        self.tun_metadata.is_empty().then_some(state)
    }

    /// The match that a condition on a state came from.
    pub fn from_state(state: &StateMatch) -> Match {
        let canonical = MatchField::ALL.iter().filter(|field| field.info().canonical);
        Match::from_fields(canonical.map(|field| (*field, state.value().get(*field), state.mask().get(*field))))
    }

    /// The match of conditions on canonical fields: value and mask of each, in the order of
    /// [`MatchField::ALL`]. Leaves out conditions that lack their prerequisites.
    pub fn from_fields(fields: impl Iterator<Item = (MatchField, u128, u128)>) -> Match {
        let mut result = Match::ANY;
        for (field, value, mask) in fields {
            if mask != 0 && result.meets(field.info().prerequisite) {
                result.set_bits(field, value, mask, field.info().valid);
            }
        }
        result
    }

    /// The match of a packet-in: the ingress port, and the metadata fields of a state that are not
    /// zero.
    pub fn metadata_of(state: &FlowState) -> Match {
        let mut result = Match::ANY;
        for field in MatchField::ALL.iter().filter(|f| f.info().canonical) {
            let value = state.get(*field);
            let unset = *field == MatchField::ActsetOutput && value == u128::from(flow::PORT_UNSET);
            let ingress = matches!(field, MatchField::InPort | MatchField::InPortOxm);
            if Match::is_metadata(*field) && (value != 0 || ingress) && !unset {
                result.set(*field, value, field.info().valid);
            }
        }
        result
    }

    /// Whether a packet-in carries a field beside the packet: metadata that any packet may have,
    /// and that the packet's bytes do not hold.
    pub fn is_metadata(field: MatchField) -> bool {
        let info = field.info();
        let meta = match info.home {
            Home::Meta { .. } => true,
            Home::Key { field, .. } => {
                let sent = !matches!(field, Field::TunFlags | Field::TunTtl | Field::TunTos);
                sent && field.is_of_tunnel() || field == Field::PacketType
            }
            Home::Elsewhere => false,
        };
        meta && info.canonical && info.prerequisite == MatchPrerequisite::None
    }

    fn entry(&self, field: MatchField) -> Option<&Entry> {
        self.entries.get(self.find(field).ok()?)
    }

    /// The position of the condition on a field, or where to insert it.
    fn find(&self, field: MatchField) -> Result<usize, usize> {
        // Most matches have few conditions: linear search is faster than binary search.
        const FEW: usize = 8;
        if self.entries.len() > FEW {
            return self.entries.binary_search_by_key(&field, |entry| entry.field);
        }
        let at = self.entries.iter().position(|entry| entry.field >= field);
        match at {
            Some(at) if self.entries[at].field == field => Ok(at),
            _ => Err(at.unwrap_or(self.entries.len())),
        }
    }

    fn get_bits(&self, field: MatchField) -> u128 {
        self.entry(field).map_or(0, |e| e.mask)
    }

    /// Replaces the bits in `area` (and those in `mask`) of a canonical field's condition.
    fn set_bits(&mut self, field: MatchField, value: u128, mask: u128, area: u128) {
        let valid = field.info().valid;
        let area = area | mask;
        let found = self.find(field);
        let old = found.map_or((0, 0), |at| (self.entries[at].value, self.entries[at].mask));
        let mask = (old.1 & !area | mask) & valid;
        let value = (old.0 & !area | value) & mask;
        match (found, mask) {
            (Ok(at), 0) => drop(self.entries.remove(at)),
            (Ok(at), _) => self.entries[at] = Entry { field, value, mask },
            (Err(_), 0) => {}
            (Err(at), _) => self.entries.insert(at, Entry { field, value, mask }),
        }
    }
}

/// The mapping of bits of a canonical field to bits of a view.
#[derive(Clone, Copy)]
struct Piece {
    field: MatchField,
    /// The lowest bit in the canonical field.
    at: u32,
    /// The lowest bit in the view.
    from: u32,
    /// The bits, from 0 up.
    bits: u128,
}

impl Piece {
    /// The bits in the canonical field.
    fn mask(&self) -> u128 {
        self.bits << self.at
    }
}

/// The bits of a view's value, where the canonical field has them.
fn take(value: u128, piece: &Piece) -> u128 {
    (value >> piece.from & piece.bits) << piece.at
}

/// The bits of a canonical field's value, where the view has them.
fn place(value: u128, piece: &Piece) -> u128 {
    (value >> piece.at & piece.bits) << piece.from
}

/// At most four pieces.
#[derive(Clone, Copy, Default)]
struct Pieces {
    pieces: [Option<Piece>; 4],
}

impl Pieces {
    fn one(field: MatchField, at: u32, from: u32, bits: u128) -> Pieces {
        let piece = Piece { field, at, from, bits };
        Pieces {
            pieces: [Some(piece), None, None, None],
        }
    }
}

impl IntoIterator for Pieces {
    type Item = Piece;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Piece>, 4>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

/// The canonical fields that a field's bits belong to; of a canonical field, itself.
fn pieces(field: MatchField) -> Pieces {
    use MatchField as F;
    let info = field.info();
    if info.home == Home::Elsewhere {
        return Pieces::default();
    }
    if info.canonical {
        return Pieces::one(field, 0, 0, info.valid);
    }
    let number = field as u8;
    let registers = |first: u8, count: u8| {
        let mut pieces = Pieces::default();
        for (n, piece) in (0..count).zip(&mut pieces.pieces) {
            *piece = F::reg(first + n).map(|field| Piece {
                field,
                at: 0,
                from: 32 * u32::from(count - 1 - n),
                bits: u32::MAX.into(),
            });
        }
        pieces
    };
    match field {
        F::InPort => Pieces::one(F::InPortOxm, 0, 0, u32::MAX.into()),
        F::IpDscp => Pieces::one(F::NwTos, 2, 0, info.valid),
        F::VlanVid | F::DlVlan => Pieces::one(F::VlanTci, 0, 0, info.valid),
        F::VlanPcp | F::DlVlanPcp => Pieces::one(F::VlanTci, 13, 0, info.valid),
        _ if number >= F::Xxreg0 as u8 => registers(4 * (number - F::Xxreg0 as u8), 4),
        _ => registers(2 * (number - F::Xreg0 as u8), 2),
    }
}

/// All bits of a field's bytes in a message.
fn mask_of_width(field: MatchField) -> u128 {
    u128::MAX >> (128 - u32::from(field.info().bits).min(128))
}

#[cfg(test)]
mod tests;
