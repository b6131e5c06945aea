//! Auto-attach in the rows of the database.

use ovsdb::rows;
use protocols::lldp::auto_attach::Isid;
use std::collections::BTreeMap;
use wire::Vid;

/// A row of `AutoAttach`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AutoAttach {
    pub(crate) system_name: String,
    /// Empty for the switch's own.
    pub(crate) system_description: String,
    pub(crate) mappings: BTreeMap<Isid, Vid>,
}

/// The row, typed.
pub(crate) fn auto_attach(row: &rows::AutoAttach) -> AutoAttach {
    let mapping = |(isid, vlan): (&i64, &i64)| {
        let isid = u32::try_from(*isid).ok().and_then(Isid::new)?;
        let vlan = u16::try_from(*vlan).ok().and_then(|vlan| Vid::new(vlan).ok())?;
        Some((isid, vlan))
    };
    AutoAttach {
        system_name: row.system_name.clone(),
        system_description: row.system_description.clone(),
        mappings: row.mappings.iter().filter_map(mapping).collect(),
    }
}
