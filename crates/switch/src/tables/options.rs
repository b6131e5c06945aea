//! The mapping of tunnel options to `tun_metadata` fields, and the place of these fields in a
//! state.
//!
//! A controller maps options to fields before it uses the fields. A field has as many bytes as its
//! option; shorter values in matches and actions are padded with zeros. A present field differs
//! from an absent one, and only present fields can meet a condition.

use super::words;
use super::{FlowTables, Rule, WORDS, check};
use classifier::{Classifier, Match};
use flow::{FlowState, MappedOption, MatchField, OPTION_UNITS, OPTIONS, OptionMap, option_present, option_unit};
use openflow::OfError;
use openflow::model::{self, FlowMod, Subfield, TlvMap, TlvTable, Value};
use std::sync::Arc;

/// Number of `tun_metadata` fields; controllers choose their numbers.
const FIELDS: u16 = 64;

/// Bytes of a unit.
const UNIT: usize = 4;

/// The commands of a change (`NXT_TLV_TABLE_MOD`).
const ADD: u16 = 0;
const DELETE: u16 = 1;
const CLEAR: u16 = 2;

/// The mapping of a bridge.
#[derive(Clone, Debug, Default)]
pub struct TunnelOptions {
    fields: Vec<Mapped>,
    /// The same for packets.
    packets: Arc<OptionMap>,
}

/// A field that is mapped to an option.
#[derive(Clone, Debug)]
struct Mapped {
    map: TlvMap,
    /// The bit that is set if the field is present.
    present: usize,
    /// The units that hold its bytes, the highest first.
    units: Vec<usize>,
}

impl TunnelOptions {
    /// The mapping as a message.
    pub fn table(&self) -> TlvTable {
        let mut maps: Vec<TlvMap> = self.fields.iter().map(|field| field.map).collect();
        maps.sort_by_key(|map| map.index);
        TlvTable {
            max_space: (OPTION_UNITS * UNIT) as u32,
            max_fields: FIELDS,
            maps,
        }
    }

    /// The mapping for packets: what reads their options, and writes them in the order of the
    /// fields' numbers.
    pub fn packets(&self) -> &Arc<OptionMap> {
        &self.packets
    }

    /// The mapping of a field.
    fn get(&self, number: u8) -> Option<&Mapped> {
        self.fields.iter().find(|field| field.map.index == u16::from(number))
    }

    fn of(&self, field: MatchField) -> Option<&Mapped> {
        self.get(number(field)?)
    }

    /// Checks that the match uses mapped fields only, with values that fit them.
    pub(super) fn check_match(&self, matching: &model::Match) -> Result<(), OfError> {
        matching.tun_metadata().iter().try_for_each(|condition| {
            let field = self.get(condition.number).ok_or(OfError::NxFmfcInvalidTlvField)?;
            match (field.fit(&condition.value), field.fit(&condition.mask)) {
                (Some(_), Some(_)) => Ok(()),
                _ => Err(OfError::BmcBadValue),
            }
        })
    }

    /// Checks that a part of a field can be read.
    pub(super) fn check_part(&self, part: &Subfield) -> Result<(), OfError> {
        let field = self.of(part.field()).ok_or(OfError::NxFmfcInvalidTlvField)?;
        match usize::from(part.ofs() + part.n_bits()) <= field.len() * 8 {
            true => Ok(()),
            false => Err(OfError::BacBadSetLen),
        }
    }

    /// Checks that a field can be set to a value. Any mapped field can be deleted.
    pub(super) fn check_value(
        &self,
        field: MatchField,
        value: Option<(&Value, Option<&Value>)>,
    ) -> Result<(), OfError> {
        let mapped = self.of(field).ok_or(OfError::NxFmfcInvalidTlvField)?;
        let fits = |value: &Value| matches!(value, Value::Wide(bytes) if mapped.fit(bytes).is_some());
        match value {
            Some((value, mask)) if !fits(value) || !mask.is_none_or(fits) => Err(OfError::BacBadSetLen),
            _ => Ok(()),
        }
    }

    /// The fields that a rule with this match and these instructions uses, a bit each.
    ///
    /// # Errors
    /// A field is not mapped, or a value does not fit it.
    pub fn used_by(&self, change: &FlowMod) -> Result<u64, OfError> {
        let check = |options: &TunnelOptions| {
            options.check_match(&change.matching)?;
            check_actions(change, options)
        };
        check(self)?;
        let uses = |field: &&Mapped| {
            let mut others = self.clone();
            others.fields.retain(|other| other.map.index != field.map.index);
            check(&others) == Err(OfError::NxFmfcInvalidTlvField)
        };
        let used = self.fields.iter().filter(uses);
        Ok(used.fold(0, |used, field| used | 1 << field.map.index))
    }

    /// The words of a match. Conditions on unmapped fields are left out.
    pub(crate) fn match_words(&self, matching: &model::Match) -> Match<WORDS> {
        let mut words = words::match_words(matching);
        for condition in matching.tun_metadata() {
            let Some(field) = self.get(condition.number) else {
                continue;
            };
            let (word, bit) = option_present(field.present);
            words.require(word, 1 << bit, 1 << bit);
            let mask = match condition.exact {
                true => Some(vec![0xff; field.len()]),
                false => field.fit(&condition.mask),
            };
            let (Some(value), Some(mask)) = (field.fit(&condition.value), mask) else {
                continue;
            };
            for (unit, (value, mask)) in field.units.iter().zip(units(&value).zip(units(&mask))) {
                let (word, shift) = option_unit(*unit);
                words.require(word, u64::from(value & mask) << shift, u64::from(mask) << shift);
            }
        }
        words
    }

    /// The match of a rule, from its words.
    pub(crate) fn match_of(&self, words: &Match<WORDS>) -> model::Match {
        let mut matching = words::match_of(words);
        for field in self.fields.iter().filter(|field| field.is_in(words.mask())) {
            let (value, mask) = (field.read(words.value()), field.read(words.mask()));
            let exact = !mask.is_empty() && mask.iter().all(|byte| *byte == 0xff);
            let mask = (!exact).then_some(&mask[..]);
            // There is one condition on each field, and the value comes from words of its size.
            let _ = matching.add_tun_metadata(field.map.index as u8, &value, mask);
        }
        matching
    }

    /// Adds the options of a state to the metadata in a packet-in.
    pub(super) fn tell(&self, state: &FlowState, metadata: &mut model::Match) {
        for field in self.fields.iter().filter(|field| field.is_in(state.meta())) {
            let value = field.read(state.meta());
            if !value.is_empty() {
                let _ = metadata.add_tun_metadata(field.map.index as u8, &value, None);
            }
        }
    }

    /// Sets the fields of a state for which a match has exact values. Unmapped fields are left out.
    pub fn give(&self, matching: &model::Match, state: &mut FlowState) {
        for condition in matching.tun_metadata() {
            if let Some(field) = self.get(condition.number)
                && let Some(value) = field.fit(&condition.value)
            {
                field.write(state, &value, None);
            }
        }
    }

    /// Sets a field, or some of its bits.
    pub(super) fn set(&self, state: &mut FlowState, field: MatchField, value: &Value, mask: Option<&Value>) {
        let Some(mapped) = self.of(field) else { return };
        let bytes = |value: &Value| match value {
            Value::Wide(bytes) => mapped.fit(bytes),
            Value::Word(_) => None,
        };
        if let Some(value) = bytes(value) {
            mapped.write(state, &value, mask.and_then(bytes).as_deref());
        }
    }

    /// Deletes a field.
    pub(super) fn remove(&self, state: &mut FlowState, field: MatchField) {
        if let Some(mapped) = self.of(field) {
            mapped.write(state, &vec![0; mapped.len()], None);
            let (word, bit) = option_present(mapped.present);
            state.meta_mut()[word] &= !(1 << bit);
        }
    }

    /// Reads up to 128 bits of a field.
    pub(super) fn read_bits(&self, state: &FlowState, part: &Subfield) -> u128 {
        let Some(mapped) = self.of(part.field()) else { return 0 };
        let bytes = mapped.read(state.meta());
        (0..part.n_bits().min(128)).fold(0, |bits, n| {
            let at = usize::from(part.ofs() + n);
            let byte = bytes.len().checked_sub(1 + at / 8).and_then(|byte| bytes.get(byte));
            bits | u128::from(byte.copied().unwrap_or(0) >> (at % 8) & 1) << n
        })
    }

    /// Writes up to 128 bits of a field.
    pub(super) fn write_bits(&self, state: &mut FlowState, part: &Subfield, bits: u128) {
        if let Some(mapped) = self.of(part.field()) {
            let (value, mask) = mapped.place(part, bits);
            mapped.write(state, &value, Some(&mask));
        }
    }

    /// Adds a condition on up to 128 bits of a field to a match.
    pub(super) fn require(&self, matching: &mut model::Match, part: &Subfield, bits: u128) {
        let Some(mapped) = self.of(part.field()) else { return };
        let number = mapped.map.index as u8;
        let (mut value, mut mask) = mapped.place(part, bits);
        if let Some(before) = matching.tun_metadata().iter().find(|there| there.number == number) {
            let (old, known) = (mapped.fit(&before.value), mapped.fit(&before.mask));
            let both = old.into_iter().flatten().zip(known.into_iter().flatten());
            for ((value, mask), (old, known)) in value.iter_mut().zip(&mut mask).zip(both) {
                *value |= old & !*mask;
                *mask |= known;
            }
        }
        matching.clear_tun_metadata(number);
        let _ = matching.add_tun_metadata(number, &value, Some(&mask));
    }

    /// The mapping after a change.
    fn changed(&self, command: u16, maps: &[TlvMap]) -> Result<TunnelOptions, OfError> {
        let mut new = self.clone();
        match command {
            ADD => maps.iter().try_for_each(|map| new.add(*map))?,
            DELETE => new
                .fields
                .retain(|field| maps.iter().all(|map| map.index != field.map.index)),
            CLEAR => new.fields.clear(),
            _ => return Err(OfError::NxTtmfcBadCommand),
        }
        new.packets = Arc::new(new.for_packets());
        Ok(new)
    }

    fn for_packets(&self) -> OptionMap {
        let mut fields: Vec<&Mapped> = self.fields.iter().collect();
        fields.sort_by_key(|field| field.map.index);
        OptionMap::new(fields.into_iter().map(|field| MappedOption {
            class: field.map.class,
            kind: field.map.kind,
            present: field.present,
            units: field.units.clone(),
        }))
    }

    fn add(&mut self, map: TlvMap) -> Result<(), OfError> {
        if self.fields.iter().any(|field| field.map.index == map.index) {
            return Err(OfError::NxTtmfcAlreadyMapped);
        }
        let same = |field: &Mapped| (field.map.class, field.map.kind) == (map.class, map.kind);
        if self.fields.iter().any(same) {
            return Err(OfError::NxTtmfcDupEntry);
        }
        let free = |unit: &usize| self.fields.iter().all(|field| !field.units.contains(unit));
        let wanted = usize::from(map.len) / UNIT;
        let units: Vec<usize> = (0..OPTION_UNITS).filter(free).take(wanted).collect();
        let unused = |bit: &usize| self.fields.iter().all(|field| field.present != *bit);
        match (0..OPTIONS).find(unused) {
            Some(present) if units.len() == wanted => self.fields.push(Mapped { map, present, units }),
            _ => return Err(OfError::NxTtmfcTableFull),
        }
        Ok(())
    }
}

impl Mapped {
    fn len(&self) -> usize {
        self.units.len() * UNIT
    }

    /// A value padded to the size of the field; `None` if it is too large.
    fn fit(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (over, bytes) = value.split_at(value.len().saturating_sub(self.len()));
        let fits = over.iter().all(|byte| *byte == 0);
        fits.then(|| [&vec![0; self.len() - bytes.len()], bytes].concat())
    }

    /// The bits of a part of the field, placed in its bytes, and their mask.
    fn place(&self, part: &Subfield, bits: u128) -> (Vec<u8>, Vec<u8>) {
        let (mut value, mut mask) = (vec![0; self.len()], vec![0; self.len()]);
        for n in 0..part.n_bits().min(128) {
            let at = usize::from(part.ofs() + n);
            if let Some(byte) = self.len().checked_sub(1 + at / 8) {
                value[byte] |= ((bits >> n & 1) as u8) << (at % 8);
                mask[byte] |= 1 << (at % 8);
            }
        }
        (value, mask)
    }

    fn is_in(&self, meta: &[u64]) -> bool {
        let (word, bit) = option_present(self.present);
        meta[word] >> bit & 1 != 0
    }

    fn read(&self, meta: &[u64]) -> Vec<u8> {
        let units = self.units.iter().map(|unit| option_unit(*unit));
        units
            .flat_map(|(word, shift)| ((meta[word] >> shift) as u32).to_be_bytes())
            .collect()
    }

    /// Sets the field, or some of its bits; value and mask have the field's size.
    fn write(&self, state: &mut FlowState, value: &[u8], mask: Option<&[u8]>) {
        let meta = state.meta_mut();
        let (word, bit) = option_present(self.present);
        meta[word] |= 1 << bit;
        for (n, (unit, value)) in self.units.iter().zip(units(value)).enumerate() {
            let mask = mask.and_then(|mask| units(mask).nth(n)).unwrap_or(u32::MAX);
            let (word, shift) = option_unit(*unit);
            let kept = meta[word] & !(u64::from(mask) << shift);
            meta[word] = kept | u64::from(value & mask) << shift;
        }
    }
}

fn units(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes
        .chunks_exact(UNIT)
        .map(|unit| unit.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

/// The number of a `tun_metadata` field.
pub(super) fn number(field: MatchField) -> Option<u8> {
    let number = (field as u8).checked_sub(MatchField::TunMetadata0 as u8)?;
    (number < 64).then_some(number)
}

/// Whether a flow mod names `tun_metadata` fields, which the mapping then has to have.
pub fn names_tunnel_options(change: &FlowMod) -> bool {
    let without = TunnelOptions::default();
    !change.matching.tun_metadata().is_empty() || check_actions(change, &without) == Err(OfError::NxFmfcInvalidTlvField)
}

fn check_actions(change: &FlowMod, options: &TunnelOptions) -> Result<(), OfError> {
    let instructions = &change.instructions;
    check::actions_of(&instructions.apply, options)?;
    check::actions_of(&instructions.write, options)
}

impl FlowTables {
    /// The mapping of tunnel options to fields.
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// Maps options to fields, or removes mappings: all of the request, or nothing. The fields of
    /// `held`, a bit each, keep their mappings.
    ///
    /// # Errors
    /// The error of the first mapping that fails; [`OfError::NxTtmfcInvalidTlvDel`] if rules use a
    /// field whose mapping would be removed, or it is held.
    pub fn change_options(&mut self, command: u16, maps: &[TlvMap], held: u64) -> Result<(), OfError> {
        let new = self.options.changed(command, maps)?;
        let gone = |field: &&Mapped| new.get(field.map.index as u8).is_none();
        let gone: Vec<&Mapped> = self.options.fields.iter().filter(gone).collect();
        if gone.iter().any(|field| held >> field.map.index & 1 != 0) {
            return Err(OfError::NxTtmfcInvalidTlvDel);
        }
        if !gone.is_empty() {
            let all = self.chosen(None).flat_map(|(number, table)| {
                let rules: &Classifier<Rule, WORDS> = &table.rules;
                let entries = rules.iter();
                entries.map(move |entry| (number, entry))
            });
            for (number, entry) in all {
                let matched = gone.iter().any(|field| field.is_in(entry.matching().mask()));
                let acted = check::instructions(&entry.rule.instructions, number, &new);
                if matched || acted == Err(OfError::NxFmfcInvalidTlvField) {
                    return Err(OfError::NxTtmfcInvalidTlvDel);
                }
            }
        }
        self.options = Arc::new(new);
        Ok(())
    }
}
