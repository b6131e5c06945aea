//! Tables: `dump-tables`, `dump-table-features`, `dump-table-desc`, `mod-table`.

use super::Ctl;
use super::conn::Conn;
use super::names::Wanted;
use super::out::Out;
use crate::common::Failure;
use mgmt::vconn::is_error;
use openflow::Version;
use openflow::model::{Body, StatsReply, StatsRequest, TableMod, Vacancy, table_config};
use openflow::text::print::TablePrinter;
use openflow::text::{Protocols, TableSetting, parse_table_mod};

pub(super) fn stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::Table)
}

fn needs(command: &str, version: Version) -> Failure {
    let minor = version.number() - 1;
    Failure::new(format!("{command} needs OpenFlow 1.{minor} or later ('-O {version}')"))
}

pub(super) fn features(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    if conn.version < Version::V13 {
        return Err(needs("dump-table-features", Version::V13));
    }
    let mut tables = TablePrinter::default();
    let mut out = Out::default();
    let mut begun = false;
    conn.statistics(ctl, StatsRequest::TableFeatures(Vec::new()), |part| {
        if is_error(part) {
            let text = ctl.text(part, None);
            return Err(Failure::new(format!("received bad reply: {text}")));
        }
        let first = out.text.is_empty() && !begun;
        begun = true;
        if let Err(error) = tables.features(&mut out.text, part) {
            return Err(Failure::new(format!("decode error: {error}")));
        }
        if first && out.text.starts_with('\n') {
            out.text.remove(0);
        }
        out.flow()
    })?;
    tables.finish(&mut out.text);
    out.text.push('\n');
    out.flush()
}

pub(super) fn desc(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    if conn.version < Version::V14 {
        return Err(needs("dump-table-desc", Version::V14));
    }
    ctl.print_statistics(&mut conn, target, StatsRequest::TableDesc)
}

pub(super) fn modify(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (target, table, setting) = (&args[0], &args[1], &args[2]);
    if let Some(name) = setting.strip_prefix("name:") {
        return rename(ctl, target, table, name);
    }
    // Port names are not needed here.
    let (table, setting) = {
        let read = ctl.read_with_names(target, Wanted::Tables, |names| parse_table_mod(table, setting, names))?;
        (read.0, read.1)
    };
    let allowed = setting.versions();
    let usable = allowed
        .into_iter()
        .fold(Protocols::NONE, |set, v| set | Protocols::of(v));
    if (usable & ctl.options.protocols).is_empty() {
        return Err(requires(&args[2], &allowed));
    }
    let mut conn = ctl.open_for_change(target, usable)?;
    let mut m = TableMod {
        table: table.unwrap_or(255),
        config: 0,
        eviction: None,
        vacancy: None,
    };
    match setting {
        TableSetting::Miss(miss) => m.config = miss as u32,
        other => {
            // Settings not given stay unchanged.
            let current = table.map(|table| ctl.table_config(&mut conn, table)).transpose()?;
            m.config = current.unwrap_or(0) & (table_config::EVICTION | table_config::VACANCY);
            match other {
                TableSetting::Eviction(true) => m.config |= table_config::EVICTION,
                TableSetting::Eviction(false) => m.config &= !table_config::EVICTION,
                TableSetting::Vacancy(None) => m.config &= !table_config::VACANCY,
                TableSetting::Vacancy(Some((down, up))) => {
                    m.config |= table_config::VACANCY;
                    m.vacancy = Some(Vacancy {
                        down,
                        up,
                        ..Vacancy::default()
                    });
                }
                TableSetting::Miss(_) => {}
            }
        }
    }
    let request = conn.encode(ctl.xid(), Body::TableMod(m));
    ctl.carry_out(&mut conn, target, &request)
}

fn requires(setting: &str, versions: &[Version]) -> Failure {
    let names: Vec<String> = versions.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    Failure::new(format!(
        "table_mod '{setting}' requires one of the OpenFlow versions {names}"
    ))
}

impl Ctl {
    /// The configuration of a table, in the bits of OpenFlow 1.4.
    fn table_config(&self, conn: &mut Conn, table: u8) -> Result<u32, Failure> {
        let codec = conn.codec();
        let mut config = 0;
        conn.statistics(self, StatsRequest::TableDesc, |part| {
            if let Ok(Body::StatsReply {
                reply: StatsReply::TableDesc(tables),
                ..
            }) = codec.decode(part).map(|m| m.body)
            {
                config |= tables.iter().find(|t| t.table == table).map_or(0, |t| t.config);
            }
            Ok(())
        })?;
        Ok(config)
    }
}

/// Sets a table's name: requests the features of all tables and sends them back with the name.
fn rename(ctl: &Ctl, target: &str, table: &str, name: &str) -> Result<(), Failure> {
    let number = ctl.read_with_names(target, Wanted::Tables, |names| {
        parse_table_mod(table, "evict", names).map(|(table, _)| table)
    })?;
    let versions = [Version::V13, Version::V14, Version::V15];
    let usable = Protocols::since(Version::V13);
    if (usable & ctl.options.protocols).is_empty() {
        return Err(requires(&format!("name:{name}"), &versions));
    }
    if name.len() >= NAME {
        return Err(Failure::new(format!(
            "table name \"{name}\" is longer than {} bytes",
            NAME - 1
        )));
    }
    let mut conn = ctl.open_for_change(target, usable)?;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    conn.statistics(ctl, StatsRequest::TableFeatures(Vec::new()), |part| {
        parts.push(part.to_vec());
        Ok(())
    })?;
    let xid = ctl.xid();
    let mut request = Vec::new();
    for part in &mut parts {
        if is_error(part) {
            return ctl.refused(target, part);
        }
        // The reply becomes a request.
        part[1] -= 1;
        part[4..8].copy_from_slice(&xid.to_be_bytes());
        let mut at = HEADERS;
        while let Some([a, b, id, ..]) = part.get(at..).and_then(|p| p.first_chunk::<3>()) {
            let (len, id) = (usize::from(u16::from_be_bytes([*a, *b])), *id);
            if let Some(bytes) = part.get_mut(at + 8..at + 8 + NAME)
                && number.is_none_or(|n| n == id)
            {
                bytes.fill(0);
                bytes[..name.len()].copy_from_slice(name.as_bytes());
            }
            at += len.max(8);
        }
        request.extend_from_slice(part);
    }
    let mut error = None;
    conn.multipart(&request, |part| {
        if is_error(part) {
            error = Some(part.to_vec());
        }
        Ok(())
    })?;
    match error {
        Some(error) => ctl.refused(target, &error),
        None => Ok(()),
    }
}

/// The length of a table's name in messages.
const NAME: usize = 32;

/// The length of the headers of statistics, from OpenFlow 1.1 on.
const HEADERS: usize = 16;
