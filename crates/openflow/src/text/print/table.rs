//! Tables: statistics, features, descriptions, changes.

use super::Printer;
use super::lists::{Fields, action_names, field_names};
use super::name::Name;
use crate::buf::Reader;
use crate::{OfError, Version};
use flow::{MatchField, OxmClass};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Instructions, in the order in which they are listed, with their numbers.
const INSTRUCTIONS: [(&str, u16); 6] = [
    ("meter", 6),
    ("apply_actions", 4),
    ("clear_actions", 5),
    ("write_actions", 3),
    ("write_metadata", 2),
    ("goto_table", 1),
];

/// Capabilities of a table's rules, or of its miss rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Does {
    next: BTreeSet<u8>,
    instructions: u32,
    write: Acts,
    apply: Acts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Acts {
    actions: u32,
    set_fields: Fields,
}

impl Does {
    fn is_empty(&self) -> bool {
        *self == Does::default()
    }

    /// Whether two tables have the same capabilities; their lists of next tables may differ if both
    /// or neither are empty.
    fn same(&self, other: &Does) -> bool {
        let Does {
            next,
            instructions,
            write,
            apply,
        } = self;
        next.is_empty() == other.next.is_empty()
            && *instructions == other.instructions
            && *write == other.write
            && *apply == other.apply
    }
}

/// Capabilities of a table, as far as its message has them.
#[derive(Clone, Debug, Default)]
struct Table {
    id: u8,
    name: String,
    /// Rules, lookups, hits.
    stats: Option<(u32, u64, u64)>,
    metadata: (u64, u64),
    miss: Option<&'static str>,
    eviction: Option<bool>,
    vacancy: Option<bool>,
    max_entries: u32,
    nonmiss: Does,
    on_miss: Does,
    matched: Fields,
    maskable: Fields,
    wildcarded: Fields,
}

impl Table {
    fn same_features(&self, other: &Table) -> bool {
        self.metadata == other.metadata
            && self.miss == other.miss
            && self.eviction == other.eviction
            && self.vacancy == other.vacancy
            && self.max_entries == other.max_entries
            && self.nonmiss.same(&other.nonmiss)
            && self.on_miss.same(&other.on_miss)
            && self.same_matching(other)
    }

    fn same_matching(&self, other: &Table) -> bool {
        self.matched == other.matched && self.maskable == other.maskable && self.wildcarded == other.wildcarded
    }

    fn says_nothing(&self) -> bool {
        self.metadata == (0, 0)
            && self.miss.is_none()
            && self.max_entries == 0
            && self.nonmiss.is_empty()
            && self.on_miss.is_empty()
            && self.matched.is_empty()
    }
}

/// Prints tables one after the other, and a run of equal tables in one line.
#[derive(Clone, Debug, Default)]
pub struct TablePrinter {
    last: Option<Table>,
    ditto: Option<(u8, u8)>,
}

impl TablePrinter {
    /// Prints the tables of a `OFPST_TABLE_FEATURES` message, without the message's name.
    ///
    /// # Errors
    /// Says what is wrong with the message.
    pub fn features(&mut self, out: &mut String, data: &[u8]) -> Result<(), OfError> {
        let name = Name::of(data)?;
        let version = Version::from_number(data[0]).ok_or(OfError::BrcBadVersion)?;
        let mut body = Reader::new(data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        while !body.is_empty() {
            let table = read_features(&mut body, version)?;
            self.table(out, table, version);
        }
        Ok(())
    }

    /// Prints the pending line for tables equal to the one before.
    pub fn finish(&mut self, out: &mut String) {
        if let Some((first, last)) = self.ditto.take() {
            let _ = match first == last {
                true => write!(out, "\n  table {first}: ditto\n"),
                false => write!(out, "\n  tables {first}...{last}: ditto\n"),
            };
        }
    }

    fn table(&mut self, out: &mut String, table: Table, version: Version) {
        let last = self.last.as_ref();
        let same_stats = table.stats.is_none() || last.is_some_and(|l| l.stats == table.stats);
        let same_features = last.is_some_and(|l| l.same_features(&table));
        if same_stats && same_features && table.name.is_empty() {
            let first = self.ditto.map_or(table.id, |(first, _)| first);
            self.ditto = Some((first, table.id));
            self.last = Some(table);
            return;
        }
        self.finish(out);
        let last = self.last.as_ref();
        let _ = write!(out, "\n  table {}", table.id);
        if !table.name.is_empty() {
            let _ = write!(out, " (\"{}\")", table.name);
        }
        out.push(':');
        if same_stats && same_features {
            // The line of a table with a name ends where the next one begins.
            out.push_str(" ditto");
        } else {
            out.push('\n');
            if let Some((active, lookups, matched)) = table.stats {
                let _ = writeln!(out, "    active={active}, lookup={lookups}, matched={matched}");
            }
            if same_features {
                if !table.says_nothing() {
                    out.push_str("    (same features)\n");
                }
            } else {
                properties(out, &table, last, version);
            }
        }
        self.last = Some(table);
    }
}

/// Prints a table's capabilities, except those that the last one has too.
fn properties(out: &mut String, table: &Table, last: Option<&Table>, version: Version) {
    let (matching, writing) = table.metadata;
    if matching != 0 || writing != 0 {
        let hex = |n: u64| if n == 0 { "0".into() } else { format!("{n:#x}") };
        let _ = writeln!(out, "    metadata: match={} write={}", hex(matching), hex(writing));
    }
    if let Some(miss) = table.miss {
        let _ = writeln!(out, "    config={miss}");
    }
    for (name, has) in [("eviction", table.eviction), ("vacancy events", table.vacancy)] {
        if let Some(has) = has {
            let _ = writeln!(out, "    {name}: {}supported", if has { "" } else { "not " });
        }
    }
    if table.max_entries != 0 {
        let _ = writeln!(out, "    max_entries={}", table.max_entries);
    }
    if last.is_some_and(|l| l.nonmiss.same(&table.nonmiss) && l.on_miss.same(&table.on_miss)) {
        if !table.nonmiss.is_empty() {
            out.push_str("    (same instructions)\n");
        }
    } else if table.nonmiss != table.on_miss {
        out.push_str("    instructions (other than table miss):\n");
        does(out, &table.nonmiss, last.map(|l| &l.nonmiss), version);
        out.push_str("    instructions (table miss):\n");
        does(out, &table.on_miss, last.map(|l| &l.on_miss), version);
    } else if !table.nonmiss.is_empty() {
        out.push_str("    instructions (table miss and others):\n");
        does(out, &table.nonmiss, last.map(|l| &l.nonmiss), version);
    }
    if table.matched.is_empty() {
        return;
    }
    if last.is_some_and(|l| l.same_matching(table)) {
        out.push_str("    (same matching)\n");
        return;
    }
    out.push_str("    matching:\n");
    let mut masked = Fields::new();
    let mut optional = Fields::new();
    let mut required = Fields::new();
    for field in &table.matched {
        match (table.maskable.contains(field), table.wildcarded.contains(field)) {
            (true, _) => masked.insert(field),
            (_, true) => optional.insert(field),
            _ => required.insert(field),
        };
    }
    for (title, fields) in [
        ("arbitrary mask", masked),
        ("exact match or wildcard", optional),
        ("must exact match", required),
    ] {
        if !fields.is_empty() {
            let _ = write!(out, "      {title}: ");
            field_names(out, &fields);
            out.push('\n');
        }
    }
}

fn does(out: &mut String, does: &Does, last: Option<&Does>, version: Version) {
    if !does.next.is_empty() {
        out.push_str("      next tables: ");
        let mut rest = does.next.iter().copied().peekable();
        let mut first = true;
        while let Some(start) = rest.next() {
            let mut end = start;
            while let Some(next) = rest.next_if(|n| *n == end + 1) {
                end = next;
            }
            let comma = if first { "" } else { "," };
            first = false;
            let _ = match end == start {
                true => write!(out, "{comma}{start}"),
                false => write!(out, "{comma}{start}-{end}"),
            };
        }
        out.push('\n');
    }
    if does.instructions != 0 {
        let names = INSTRUCTIONS.iter().filter(|(_, n)| does.instructions & 1 << n != 0);
        let names: Vec<_> = names.map(|(name, _)| *name).collect();
        let _ = writeln!(out, "      instructions: {}", names.join(" "));
    }
    let settable = !does.write.set_fields.is_empty();
    if last.is_some_and(|l| settable && l.write == does.write && l.apply == does.apply) {
        out.push_str("      (same actions)\n");
    } else if does.write != does.apply {
        out.push_str("      Write-Actions features:\n");
        acts(out, &does.write, version);
        out.push_str("      Apply-Actions features:\n");
        acts(out, &does.apply, version);
    } else if does.write != Acts::default() {
        out.push_str("      Write-Actions and Apply-Actions features:\n");
        acts(out, &does.write, version);
    }
}

fn acts(out: &mut String, acts: &Acts, version: Version) {
    if acts.actions != 0 {
        out.push_str("        actions: ");
        action_names(out, acts.actions, version);
        out.push('\n');
    }
    if !acts.set_fields.is_empty() {
        out.push_str("        supported on Set-Field: ");
        field_names(out, &acts.set_fields);
        out.push('\n');
    }
}

/// Reads one table's features.
fn read_features(body: &mut Reader<'_>, version: Version) -> Result<Table, OfError> {
    let len = body
        .peek()
        .first_chunk()
        .map_or(0, |b| usize::from(u16::from_be_bytes(*b)));
    if len < 64 || len % 8 != 0 {
        return Err(OfError::BpcBadLen);
    }
    let mut data = body.sub(len, OfError::BpcBadLen).map_err(|_| OfError::BpcBadLen)?;
    data.skip(2)?;
    let mut table = Table {
        id: data.u8()?,
        ..Table::default()
    };
    data.skip(5)?;
    table.name = data.text(32)?;
    table.metadata = (data.u64()?, data.u64()?);
    let capabilities = data.u32()?;
    if version >= Version::V14 {
        table.eviction = Some(capabilities & 4 != 0);
        table.vacancy = Some(capabilities & 8 != 0);
    }
    table.max_entries = data.u32()?;
    let mut misses = 0u32;
    while !data.is_empty() {
        let (kind, len) = (data.u16()?, usize::from(data.u16()?));
        let mut property = data.sub(len.checked_sub(4).ok_or(OfError::BpcBadLen)?, OfError::BpcBadLen)?;
        data.skip((len.next_multiple_of(8) - len).min(data.len()))?;
        let miss = matches!(kind, 1 | 3 | 5 | 7 | 13 | 15);
        if miss {
            misses |= 1 << (kind - 1);
        }
        let does = if miss { &mut table.on_miss } else { &mut table.nonmiss };
        match kind & !u16::from(miss) {
            0 => {
                while !property.is_empty() {
                    let (kind, len) = (property.u16()?, usize::from(property.u16()?));
                    property.skip(len.saturating_sub(4).min(property.len()))?;
                    if kind < 32 {
                        does.instructions |= 1 << kind;
                    }
                }
            }
            2 => does.next = property.rest().iter().copied().collect(),
            4 => does.write.actions = read_actions(&mut property)?,
            6 => does.apply.actions = read_actions(&mut property)?,
            8 => {
                let fields = read_fields(&mut property)?;
                table.maskable = fields.iter().filter(|(_, mask)| *mask).map(|(f, _)| *f).collect();
                table.matched = fields.into_iter().map(|(f, _)| f).collect();
            }
            10 => table.wildcarded = read_fields(&mut property)?.into_iter().map(|(f, _)| f).collect(),
            12 => does.write.set_fields = read_fields(&mut property)?.into_iter().map(|(f, _)| f).collect(),
            14 => does.apply.set_fields = read_fields(&mut property)?.into_iter().map(|(f, _)| f).collect(),
            _ => {}
        }
    }
    // Capabilities without a value for misses are those of rules.
    let (miss, rule) = (&mut table.on_miss, &table.nonmiss);
    for (bit, put) in [
        (
            0,
            (|to, from| to.instructions = from.instructions) as fn(&mut Does, &Does),
        ),
        (2, |to, from| to.next.clone_from(&from.next)),
        (4, |to, from| to.write.actions = from.write.actions),
        (6, |to, from| to.apply.actions = from.apply.actions),
        (12, |to, from| to.write.set_fields.clone_from(&from.write.set_fields)),
        (14, |to, from| to.apply.set_fields.clone_from(&from.apply.set_fields)),
    ] {
        if misses & 1 << bit == 0 {
            put(miss, rule);
        }
    }
    Ok(table)
}

/// Reads types of actions.
fn read_actions(data: &mut Reader<'_>) -> Result<u32, OfError> {
    let mut actions = 0;
    while !data.is_empty() {
        let (kind, len) = (data.u16()?, usize::from(data.u16()?));
        data.skip(len.saturating_sub(4).min(data.len()))?;
        if kind < 32 {
            actions |= 1 << kind;
        }
    }
    Ok(actions)
}

/// Reads headers of fields, each with whether it has a mask.
fn read_fields(data: &mut Reader<'_>) -> Result<Vec<(&'static str, bool)>, OfError> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let (class, number) = (data.u16()?, data.u8()?);
        data.skip(1)?;
        let experimenter = match class {
            0xffff => Some(data.u32()?),
            _ => None,
        };
        let field = OxmClass::from_numbers(class, experimenter).and_then(|c| MatchField::from_id(c, number >> 1));
        if let Some(field) = field {
            fields.push((listed(field), number & 1 != 0));
        }
    }
    Ok(fields)
}

/// The name by which a field is listed.
fn listed(field: MatchField) -> &'static str {
    field.name()
}

/// Bits of OpenFlow 1.0's wildcards.
const WILDCARDS10: [(u32, &str); 12] = [
    (1, "in_port"),
    (1 << 1, "vlan_vid"),
    (1 << 2, "eth_src"),
    (1 << 3, "eth_dst"),
    (1 << 4, "eth_type"),
    (1 << 5, "nw_proto"),
    (1 << 6, "tcp_src"),
    (1 << 7, "tcp_dst"),
    (0x3f << 8, "ip_src"),
    (0x3f << 14, "ip_dst"),
    (1 << 20, "vlan_pcp"),
    (1 << 21, "nw_tos"),
];

/// Bits of OpenFlow 1.1's match fields.
const FIELDS11: [&str; 16] = [
    "in_port",
    "vlan_vid",
    "vlan_pcp",
    "eth_type",
    "nw_tos",
    "nw_proto",
    "tcp_src",
    "tcp_dst",
    "mpls_label",
    "mpls_tc",
    "",
    "eth_src",
    "eth_dst",
    "ip_src",
    "ip_dst",
    "metadata",
];

fn fields11(bits: u32) -> Fields {
    let named = FIELDS11
        .iter()
        .enumerate()
        .filter(|(n, name)| bits & 1 << n != 0 && !name.is_empty());
    named.map(|(_, name)| *name).collect()
}

fn fields12(bits: u64) -> Fields {
    // OpenFlow 1.2 has fields up to 35.
    let numbers = (0..36u8).filter(|n| bits & 1 << n != 0);
    let fields = numbers.filter_map(|n| MatchField::from_id(OxmClass::OpenFlowBasic, n));
    fields.map(listed).collect()
}

/// The action for packets that miss the table, until OpenFlow 1.2.
fn miss(config: u32) -> Option<&'static str> {
    Some(["controller", "continue", "drop", "controller"][config as usize & 3])
}

fn read_stats(body: &mut Reader<'_>, version: Version) -> Result<Table, OfError> {
    let mut table = Table {
        id: body.u8()?,
        ..Table::default()
    };
    let mut does = Does::default();
    match version {
        Version::V10 => {
            body.skip(3)?;
            table.name = body.text(32)?;
            let wildcards = body.u32()?;
            table.matched = WILDCARDS10
                .iter()
                .filter(|(bit, _)| wildcards & bit != 0)
                .map(|(_, name)| *name)
                .collect();
            table.wildcarded.clone_from(&table.matched);
            table.max_entries = body.u32()?;
        }
        Version::V11 => {
            body.skip(7)?;
            table.name = body.text(32)?;
            table.wildcarded = fields11(body.u32()?);
            table.matched = fields11(body.u32()?);
            does.instructions = body.u32()?;
            does.write.actions = body.u32()?;
            does.apply.actions = body.u32()?;
            table.miss = miss(body.u32()?);
            table.max_entries = body.u32()?;
        }
        Version::V12 => {
            body.skip(7)?;
            table.name = body.text(32)?;
            table.matched = fields12(body.u64()?);
            table.wildcarded = fields12(body.u64()?);
            does.write.actions = body.u32()?;
            does.apply.actions = body.u32()?;
            does.write.set_fields = fields12(body.u64()?);
            does.apply.set_fields = fields12(body.u64()?);
            table.metadata = (body.u64()?, body.u64()?);
            does.instructions = body.u32()?;
            table.miss = miss(body.u32()?);
            table.max_entries = body.u32()?;
        }
        _ => body.skip(3)?,
    }
    table.on_miss = does.clone();
    table.nonmiss = does;
    table.stats = Some((body.u32()?, body.u64()?, body.u64()?));
    Ok(table)
}

impl Printer<'_> {
    pub(super) fn table_stats(&mut self, name: &Name) -> Result<(), OfError> {
        let mut body = Reader::new(self.data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        let mut tables = TablePrinter::default();
        while !body.is_empty() {
            let table = read_stats(&mut body, self.version)?;
            tables.table(self.out, table, self.version);
        }
        tables.finish(self.out);
        Ok(())
    }

    pub(super) fn table_features(&mut self) -> Result<(), OfError> {
        let mut tables = TablePrinter::default();
        tables.features(self.out, self.data)?;
        tables.finish(self.out);
        Ok(())
    }
}
