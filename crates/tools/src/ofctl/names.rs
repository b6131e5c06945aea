//! The names of a switch's ports and tables.

use super::{Ctl, notices};
use crate::common::Failure;
use openflow::model::Port;
use openflow::model::{Body, PortDesc, StatsReply, StatsRequest};
use openflow::text::{Names, ParseError, parse_port};
use openflow::{HEADER_LEN, Version};
use std::collections::BTreeMap;

/// The names of switches, by their target.
///
/// Transaction ids are those of Open vSwitch, which asks a switch once for its ports and once for
/// its tables as soon as a text could have such names, whether it has any or not.
#[derive(Debug, Default)]
pub(crate) struct Cache(BTreeMap<String, Known>);

#[derive(Debug, Default)]
struct Known {
    ports: Asked<u32>,
    tables: Asked<u8>,
}

#[derive(Debug)]
struct Asked<N> {
    /// Whether the transaction ids of this request are used up.
    counted: bool,
    names: Option<BTreeMap<N, String>>,
}

impl<N> Default for Asked<N> {
    fn default() -> Self {
        Asked {
            counted: false,
            names: None,
        }
    }
}

/// The transaction ids of a request for names: the hello's and its own.
const IDS: u32 = 2;
/// Those of both kinds of names.
pub(crate) const NAMES_IDS: u32 = 2 * IDS;

/// The kinds of names that a text may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Both,
    Ports,
    Tables,
}

impl Ctl {
    /// Parses a text that may name ports and tables of a switch. Asks the switch for the names only
    /// if the text cannot be parsed without them.
    pub(crate) fn read_with_names<T>(
        &self,
        target: &str,
        wanted: Wanted,
        read: impl Fn(&Names) -> Result<T, ParseError>,
    ) -> Result<T, Failure> {
        let fail = |e: ParseError| Failure::new(e.to_string());
        let heard = notices::heard();
        if !self.options.accept_names() {
            let result = read(&heard).map_err(fail);
            notices::log(heard.notices.take());
            return result;
        }
        let result = match read(&heard) {
            Ok(value) => Ok(value),
            Err(_) => {
                heard.notices.take();
                let notices = heard.notices.clone();
                let names = self.names(target, wanted)?;
                read(&Names { notices, ..names }).map_err(fail)
            }
        };
        notices::log(heard.notices.take());
        let mut cache = self.names.borrow_mut();
        let known = cache.0.entry(target.to_owned()).or_default();
        if wanted != Wanted::Ports && !std::mem::replace(&mut known.tables.counted, true) {
            self.skip_xids(IDS);
        }
        if wanted != Wanted::Tables && !std::mem::replace(&mut known.ports.counted, true) {
            self.skip_xids(IDS);
        }
        result
    }

    /// The names of a switch's ports, and of its tables.
    pub(crate) fn names(&self, target: &str, wanted: Wanted) -> Result<Names, Failure> {
        let mut cache = self.names.borrow_mut();
        let known = cache.0.entry(target.to_owned()).or_default();
        let tables = match wanted {
            Wanted::Both | Wanted::Tables => self.ask_once(&mut known.tables, || self.table_names(target))?,
            Wanted::Ports => BTreeMap::new(),
        };
        let ports = match wanted {
            Wanted::Both | Wanted::Ports => self.ask_once(&mut known.ports, || {
                let ports = self.ports(target)?.into_iter();
                Ok(ports.map(|port| (port.port.0, port.name)).collect())
            })?,
            Wanted::Tables => BTreeMap::new(),
        };
        Ok(Names {
            ports,
            tables,
            ..Names::default()
        })
    }

    fn ask_once<N: Clone + Ord>(
        &self,
        asked: &mut Asked<N>,
        ask: impl FnOnce() -> Result<BTreeMap<N, String>, Failure>,
    ) -> Result<BTreeMap<N, String>, Failure> {
        if let Some(names) = &asked.names {
            return Ok(names.clone());
        }
        let before = self.xid.get();
        let names = ask()?;
        if std::mem::replace(&mut asked.counted, true) {
            self.xid.set(before);
        }
        asked.names = Some(names.clone());
        Ok(names)
    }

    /// The names to print instead of numbers, if wanted.
    pub(crate) fn shown_names(&self, target: &str) -> Result<Option<Names>, Failure> {
        match self.options.show_names() {
            true => self.names(target, Wanted::Both).map(Some),
            false => Ok(None),
        }
    }

    /// A switch's ports.
    pub(crate) fn ports(&self, target: &str) -> Result<Vec<PortDesc>, Failure> {
        let mut conn = self.open(target)?;
        let mut ports = Vec::new();
        if conn.version < Version::V13 {
            let request = conn.encode(self.xid(), Body::FeaturesRequest);
            let reply = conn.transact(&request)?;
            let message = conn.codec().decode(&reply);
            match message.map(|m| m.body) {
                Ok(Body::FeaturesReply(features)) => ports = features.ports,
                _ => return Err(Failure::new(format!("{target}: received bad features reply"))),
            }
            ports.sort_by_key(|port| port.port.0);
            return Ok(ports);
        }
        let codec = conn.codec();
        conn.statistics(self, StatsRequest::PortDesc(Port::ANY), |part| {
            match codec.decode(part).map(|m| m.body) {
                Ok(Body::StatsReply {
                    reply: StatsReply::PortDesc(part),
                    ..
                }) => ports.extend(part),
                _ => return Err(Failure::new(format!("{target}: received bad port descriptions"))),
            }
            Ok(())
        })?;
        ports.sort_by_key(|port| port.port.0);
        Ok(ports)
    }

    fn table_names(&self, target: &str) -> Result<BTreeMap<u8, String>, Failure> {
        let mut conn = self.open(target)?;
        let mut names = BTreeMap::new();
        let old = conn.version < Version::V13;
        let request = match old {
            true => StatsRequest::Table,
            false => StatsRequest::TableFeatures(Vec::new()),
        };
        // The offset of a table's name: after its number and padding.
        let (at, len) = match conn.version {
            Version::V10 => (4, Some(64)),
            Version::V11 => (8, Some(88)),
            Version::V12 => (8, Some(128)),
            _ => (8, None),
        };
        let header = HEADER_LEN + if conn.version == Version::V10 { 4 } else { 8 };
        conn.statistics(self, request, |part| {
            let mut rest = part.get(header..).unwrap_or_default();
            while rest.len() >= at + 32 {
                let number = rest[if len.is_some() { 0 } else { 2 }];
                let name = &rest[at..at + 32];
                let end = name.iter().position(|b| *b == 0).unwrap_or(32);
                if end > 0 {
                    names.insert(number, String::from_utf8_lossy(&name[..end]).into_owned());
                }
                let len = len.unwrap_or_else(|| usize::from(u16::from_be_bytes([rest[0], rest[1]])));
                rest = rest.get(len.max(1)..).unwrap_or_default();
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// The port that a word means: a number, a reserved port, or a port name of the switch.
    pub(crate) fn port(&self, target: &str, word: &str) -> Result<Port, Failure> {
        if let Some(port) = parse_port(word, &Names::default()) {
            return Ok(port);
        }
        let ports = match self.options.accept_names() {
            true => self.names(target, Wanted::Ports)?,
            false => Names::default(),
        };
        parse_port(word, &ports).ok_or_else(|| Failure::new(format!("{target}: unknown port `{word}'")))
    }
}
