//! The map of tunnel options.

use super::Printer;
use super::bundle::hash_hex;
use crate::model::{TlvMap, TlvTable};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn tlv_mod(&mut self, command: u16, maps: &[TlvMap]) {
        let name = match command {
            0 => "ADD",
            1 => "DEL",
            _ => "CLEAR",
        };
        let _ = write!(self.out, "\n {name}");
        if command <= 1 {
            self.tlv_maps(maps);
        }
    }

    pub(super) fn tlv_table(&mut self, table: &TlvTable) {
        let allocated: u32 = table.maps.iter().map(|m| u32::from(m.len)).sum();
        let _ = write!(
            self.out,
            "\n max option space={} max fields={}\n allocated option space={allocated}\n\n",
            table.max_space, table.max_fields
        );
        self.tlv_maps(&table.maps);
    }

    fn tlv_maps(&mut self, maps: &[TlvMap]) {
        self.out
            .push_str(" mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------");
        for map in maps {
            let _ = write!(
                self.out,
                "\n {:>6}  {:>4}  {:>6}  tun_metadata{}",
                hash_hex(map.class.into()),
                hash_hex(map.kind.into()),
                map.len,
                map.index
            );
        }
    }
}
