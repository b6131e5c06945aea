//! Names of fields, found fast: a match has several.

use flow::MatchField;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;

/// A hash for a fixed table of names.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        // The table looks at the high bits too.
        self.0 ^ self.0 << 32
    }
}

type Table = HashMap<&'static str, MatchField, BuildHasherDefault<Fnv>>;

/// The field with this name in conditions; identifiers in capitals are names of parts of fields
/// only.
pub(super) fn field(name: &str) -> Option<MatchField> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let all = MatchField::ALL.iter();
        all.flat_map(|field| field.info().names.iter().map(|name| (*name, *field)))
            .collect()
    });
    table.get(name).copied()
}
