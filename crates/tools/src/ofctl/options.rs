//! The command line's options.

use super::PROGRAM;
use crate::common::{Failure, parse_timeout};
use flow::MatchField;
use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::daemon;
use mgmt::stream::tls;
use openflow::model::PacketInFormat;
use openflow::text::{Protocols, parse_protocols};
use openflow::{Version, Versions};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::Duration;

const OPTIONS: &[Opt] = &[
    Opt::value("timeout", Some('t')),
    Opt::flag("strict", None),
    Opt::flag("readd", None),
    Opt::value("flow-format", Some('F')),
    Opt::value("packet-in-format", Some('P')),
    Opt::flag("more", Some('m')),
    Opt::flag("timestamp", None),
    Opt::maybe("sort", None),
    Opt::maybe("rsort", None),
    Opt::flag("names", None),
    Opt::flag("no-names", None),
    Opt::flag("bare", None),
    Opt::flag("bad-csum", None),
    Opt::flag("stats", None),
    Opt::flag("no-stats", None),
    Opt::flag("bundle", None),
    Opt::maybe("color", None),
    Opt::flag("may-create", None),
    Opt::flag("read-only", None),
    Opt::value("protocols", Some('O')),
];

/// The sort key of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Criterion {
    /// A field, or priority.
    pub(crate) field: Option<MatchField>,
    pub(crate) descending: bool,
}

/// The options given.
pub(crate) struct Options {
    pub(crate) strict: bool,
    pub(crate) readd: bool,
    pub(crate) may_create: bool,
    pub(crate) bundle: bool,
    pub(crate) read_only: bool,
    pub(crate) timestamp: bool,
    pub(crate) stats: bool,
    /// `compose-packet`: digits only, and wrong checksums.
    pub(crate) bare: bool,
    pub(crate) bad_csum: bool,
    pub(crate) color: bool,
    /// Whether names are used for numbers; without the option both are read and numbers are
    /// printed.
    pub(crate) names: Option<bool>,
    pub(crate) verbosity: u8,
    pub(crate) timeout: Option<Duration>,
    pub(crate) versions: Versions,
    pub(crate) protocols: Protocols,
    pub(crate) packet_in_format: Option<PacketInFormat>,
    pub(crate) sort: Vec<Criterion>,
    pub(crate) daemon: daemon::Options,
    /// The keys for switches that are reached under TLS.
    pub(crate) tls: tls::Settings,
}

impl Options {
    /// Whether names of ports and tables are understood.
    pub(crate) fn accept_names(&self) -> bool {
        self.names != Some(false)
    }

    /// Whether they are printed.
    pub(crate) fn show_names(&self) -> bool {
        self.names.unwrap_or_else(|| std::io::stdout().is_terminal())
    }
}

/// The parsed command line.
pub(crate) enum Parsed {
    Help,
    Version,
    Run(Box<Options>, Vec<String>),
}

pub(crate) fn parse(args: Vec<OsString>) -> Result<Parsed, Failure> {
    let tables = vec![OPTIONS, tls::OPTIONS, daemon::OPTIONS, daemon::LOG_OPTIONS, COMMON];
    let mut parser = Parser::new(args, tables, Order::Mixed);
    let mut options = Options {
        strict: false,
        readd: false,
        may_create: false,
        bundle: false,
        read_only: false,
        timestamp: false,
        stats: true,
        bare: false,
        bad_csum: false,
        color: false,
        names: None,
        verbosity: 0,
        timeout: None,
        versions: Versions::from_bitmap(1 << Version::V10.number()),
        protocols: Protocols::ANY,
        packet_in_format: None,
        sort: Vec::new(),
        daemon: daemon::Options::new(PROGRAM),
        tls: tls::Settings::default(),
    };
    let mut words = Vec::new();
    while let Some(item) = parser.next()? {
        let (name, value) = match item {
            Item::Arg(word) => {
                words.push(word);
                continue;
            }
            Item::Opt(name, value) => (name, value),
        };
        let text = value.as_deref().unwrap_or_default();
        match name {
            "help" => return Ok(Parsed::Help),
            "version" => return Ok(Parsed::Version),
            "timeout" => options.timeout = Some(parse_timeout("-t or --timeout", value.as_deref())?),
            "strict" => options.strict = true,
            "readd" => options.readd = true,
            "may-create" => options.may_create = true,
            "bundle" => options.bundle = true,
            "read-only" => options.read_only = true,
            "timestamp" => options.timestamp = true,
            "bare" => options.bare = true,
            "bad-csum" => options.bad_csum = true,
            "stats" => options.stats = true,
            "no-stats" => options.stats = false,
            "names" => options.names = Some(true),
            "no-names" => options.names = Some(false),
            "more" => options.verbosity = options.verbosity.saturating_add(1),
            "flow-format" => {
                options.protocols = parse_protocols(text).map_err(|e| Failure::new(e.to_string()))?;
            }
            "packet-in-format" => options.packet_in_format = Some(packet_in_format(text)?),
            "protocols" => {
                options.versions = versions(text)?;
            }
            "color" => {
                options.color = match text {
                    "always" => true,
                    "" | "auto" => std::io::stdout().is_terminal(),
                    "never" => false,
                    _ => return Err(Failure::new(format!("incorrect value `{text}' for --color"))),
                };
            }
            "sort" | "rsort" => options.sort.push(criterion(value.as_deref(), name == "rsort")?),
            name if tls::OPTIONS.iter().any(|known| known.long == name) => {
                if crate::common::has_file(name, text) {
                    tls::accept(&mut options.tls, name, value.as_deref())?;
                }
            }
            "log-file" => {
                daemon::accept_tool_log(PROGRAM, name, value.as_deref())?;
            }
            name => {
                let taken = options.daemon.accept(name, value.as_deref())?;
                debug_assert!(taken, "{name} is in a table");
            }
        }
    }
    // The option is the command.
    options.bundle |= words.first().is_some_and(|word| word == "bundle");
    let bundles = [Version::V13, Version::V14, Version::V15];
    if options.bundle && !bundles.into_iter().any(|v| options.versions.contains(v)) {
        // Repeating `--bundle` changes nothing.
        options.versions = [Version::V14].into_iter().collect();
    }
    let versions = options.versions;
    let of_versions = Version::ALL
        .into_iter()
        .filter(|v| versions.contains(*v))
        .fold(Protocols::NONE, |set, v| set | Protocols::of(v));
    let both = options.protocols & of_versions;
    if both.is_empty() {
        let names: Vec<_> = Version::ALL.into_iter().filter(|v| versions.contains(*v)).collect();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        return Err(Failure::new(format!(
            "None of the enabled OpenFlow versions ({}) supports any of the enabled flow formats ({}).  (Use -O to enable \
             additional OpenFlow versions or -F to enable additional flow formats.)",
            names.join(", "),
            options.protocols
        )));
    }
    options.protocols = both;
    options.versions = Version::ALL
        .into_iter()
        .filter(|v| !(Protocols::of(*v) & both).is_empty())
        .collect();
    Ok(Parsed::Run(Box::new(options), words))
}

fn versions(text: &str) -> Result<Versions, Failure> {
    let mut set = Vec::new();
    for word in text.split([',', ' ']).filter(|w| !w.is_empty()) {
        let unknown = || Failure::new(format!("Unknown OpenFlow version: \"{word}\""));
        let found = Version::ALL
            .into_iter()
            .find(|v| v.to_string().eq_ignore_ascii_case(word));
        set.push(found.ok_or_else(unknown)?);
    }
    // An empty list allows all.
    if set.is_empty() {
        return Ok(Versions::ALL);
    }
    Ok(set.into_iter().collect())
}

fn packet_in_format(text: &str) -> Result<PacketInFormat, Failure> {
    match text {
        "standard" | "openflow10" => Ok(PacketInFormat::Standard),
        "nxt_packet_in" | "nxm" => Ok(PacketInFormat::Nxt),
        "nxt_packet_in2" => Ok(PacketInFormat::Nxt2),
        _ => Err(Failure::new(format!("unknown packet-in format `{text}'"))),
    }
}

fn criterion(field: Option<&str>, descending: bool) -> Result<Criterion, Failure> {
    let field = match field {
        None => None,
        Some(name) if name.eq_ignore_ascii_case("priority") => None,
        Some(name) => match MatchField::from_name(name) {
            Some(field) if field.info().names.contains(&name) => Some(field),
            _ => return Err(Failure::new(format!("{name}: unknown field name"))),
        },
    };
    Ok(Criterion { field, descending })
}
