//! `ofctl`: queries and controls OpenFlow switches (ovs-ofctl(8)).
//!
//! A command opens a [`conn::Conn`] to a switch, agrees with it on a flow format ([`flow_format`]),
//! and sends and prints messages. `openflow::text::print` makes the printed text. Flows are
//! streamed: the tool holds a whole dump or file of flows only to sort or compare it.

mod bundle;
mod color;
mod conn;
mod echo;
mod encodings;
mod flow_format;
mod flow_mods;
mod flows;
mod groups;
mod help;
mod meters;
mod misc;
mod monitor;
mod names;
mod notices;
mod offline;
mod options;
mod out;
mod packets;
mod pcap;
mod ports;
mod replace;
mod secure;
mod show;
mod sort;
mod tables;
mod target;

use crate::common::{Failure, command, finish, list_commands, print};
use options::{Options, Parsed};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) const PROGRAM: &str = "ovs-ofctl";

/// Runs the tool with `args`, which do not hold its name.
pub fn main<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    telemetry::vlog::init(PROGRAM);
    finish(PROGRAM, execute(args.into_iter().map(Into::into).collect()))
}

/// The state that commands share.
pub(crate) struct Ctl {
    pub(crate) options: Options,
    /// The last transaction id, over all connections.
    xid: Cell<u32>,
    /// Names of switches' ports and tables.
    names: RefCell<names::Cache>,
}

impl Ctl {
    /// The next transaction id.
    pub(crate) fn xid(&self) -> u32 {
        let next = self.xid.get().wrapping_add(1);
        self.xid.set(next);
        next
    }

    /// Skips transaction ids.
    pub(crate) fn skip_xids(&self, n: u32) {
        self.xid.set(self.xid.get().wrapping_add(n));
    }
}

/// A command's function; the arguments follow its name.
type Run = fn(&Ctl, &[String]) -> Result<(), Failure>;

/// A command.
struct Command {
    name: &'static str,
    usage: &'static str,
    min: usize,
    max: usize,
    /// Whether read-only mode refuses it: it changes the switch, or works on flows and messages
    /// without a switch.
    writes: bool,
    run: Run,
}

const fn reads(name: &'static str, usage: &'static str, min: usize, max: usize, run: Run) -> Command {
    Command {
        name,
        usage,
        min,
        max,
        writes: false,
        run,
    }
}

const fn writes(name: &'static str, usage: &'static str, min: usize, max: usize, run: Run) -> Command {
    Command {
        name,
        usage,
        min,
        max,
        writes: true,
        run,
    }
}

/// As many as there are.
const ANY: usize = usize::MAX;

static COMMANDS: &[Command] = &[
    reads("show", "switch", 1, 1, show::show),
    reads(
        "monitor",
        "switch [misslen] [invalid_ttl] [watch:[...]]",
        1,
        3,
        monitor::monitor,
    ),
    reads(
        "monitor2",
        "switch [misslen] [invalid_ttl] [watch:[...]]",
        1,
        3,
        monitor::monitor,
    ),
    reads("snoop", "switch", 1, 1, monitor::snoop),
    reads("dump-desc", "switch", 1, 1, show::desc),
    reads("dump-tables", "switch", 1, 1, tables::stats),
    reads("dump-table-features", "switch", 1, 1, tables::features),
    reads("dump-table-desc", "switch", 1, 1, tables::desc),
    reads("dump-flows", "switch", 1, 2, flows::dump),
    reads("dump-aggregate", "switch", 1, 2, flows::aggregate),
    reads("queue-stats", "switch [port [queue]]", 1, 3, ports::queue_stats),
    reads("queue-get-config", "switch [port [queue]]", 1, 3, ports::queue_config),
    reads("queue-desc", "switch [port [queue]]", 1, 3, ports::queue_config),
    writes("add-flow", "switch flow", 2, 2, flow_mods::add_flow),
    writes("add-flows", "switch file", 2, 2, flow_mods::add_flows),
    writes("mod-flows", "switch flow", 2, 2, flow_mods::mod_flows),
    writes("del-flows", "switch [flow]", 1, 2, flow_mods::del_flows),
    writes("replace-flows", "switch file", 2, 2, replace::replace),
    writes("diff-flows", "source1 source2", 2, 2, replace::diff),
    writes("add-meter", "switch meter", 2, 2, meters::add),
    writes("mod-meter", "switch meter", 2, 2, meters::modify),
    writes("del-meter", "switch meter", 1, 2, meters::delete),
    writes("del-meters", "switch", 1, 2, meters::delete),
    reads("dump-meter", "switch meter", 1, 2, meters::dump),
    reads("dump-meters", "switch", 1, 2, meters::dump),
    reads("meter-stats", "switch [meter]", 1, 2, meters::stats),
    reads("meter-features", "switch", 1, 1, meters::features),
    writes(
        "packet-out",
        "switch \"in_port=<port> packet=<hex data> actions=...\"",
        2,
        ANY,
        misc::packet_out,
    ),
    reads("dump-ports", "switch [port]", 1, 2, ports::stats),
    reads("dump-ports-desc", "switch [port]", 1, 2, ports::descs),
    writes("mod-port", "switch iface act", 3, 3, ports::modify),
    writes("mod-table", "switch mod", 3, 3, tables::modify),
    reads("get-frags", "switch", 1, 1, show::get_frags),
    writes("set-frags", "switch frag_mode", 2, 2, show::set_frags),
    reads("probe", "target", 1, 1, echo::probe),
    reads("ping", "target [n]", 1, 2, echo::ping),
    reads("benchmark", "target n count", 3, 3, echo::benchmark),
    reads("dump-ipfix-bridge", "switch", 1, 1, misc::ipfix_bridge),
    reads("dump-ipfix-flow", "switch", 1, 1, misc::ipfix_flow),
    writes("ct-flush-zone", "switch zone", 2, 2, misc::ct_flush_zone),
    writes(
        "ct-flush",
        "switch [zone=N] [ct-orig-tuple [ct-reply-tuple]]",
        1,
        6,
        misc::ct_flush,
    ),
    writes("ofp-parse", "file", 1, 1, offline::ofp_parse),
    writes("ofp-parse-pcap", "pcap", 1, ANY, pcap::ofp_parse_pcap),
    writes("add-group", "switch group", 2, 2, groups::add),
    writes("add-groups", "switch file", 1, 2, groups::add_file),
    writes("mod-group", "switch group", 1, 2, groups::modify),
    writes("del-groups", "switch [group]", 1, 2, groups::delete),
    writes("insert-buckets", "switch [group]", 1, 2, groups::insert_buckets),
    writes("remove-buckets", "switch [group]", 1, 2, groups::remove_buckets),
    reads("dump-groups", "switch [group]", 1, 2, groups::dump),
    reads("dump-group-stats", "switch [group]", 1, 2, groups::stats),
    reads("dump-group-features", "switch", 1, 1, groups::features),
    writes("bundle", "switch file", 2, 2, bundle::bundle),
    writes("add-tlv-map", "switch map", 2, 2, misc::add_tlv_map),
    writes("del-tlv-map", "switch [map]", 1, 2, misc::del_tlv_map),
    reads("dump-tlv-map", "switch", 1, 1, misc::dump_tlv_map),
    reads("help", "", 0, ANY, |_, _| print(&help::text())),
    reads("list-commands", "", 0, ANY, |_, _| {
        print(&list_commands(
            COMMANDS.iter().map(|command| (command.name, command.usage)),
        ))
    }),
    writes("parse-flow", "", 1, 1, offline::parse_flow),
    writes("parse-flows", "", 1, 1, offline::parse_flows),
    writes("parse-group", "", 1, 1, offline::parse_group),
    writes("parse-nx-match", "", 0, 0, encodings::parse_nx_match),
    writes("parse-nxm", "", 0, 0, encodings::parse_nx_match),
    writes("parse-oxm", "", 1, 1, encodings::parse_oxm),
    writes("parse-actions", "", 1, 1, offline::parse_actions),
    writes("parse-instructions", "", 1, 1, offline::parse_instructions),
    writes("parse-ofp10-match", "", 0, 0, encodings::parse_ofp10_match),
    writes("parse-ofp11-match", "", 0, 0, encodings::parse_ofp11_match),
    writes("parse-pcap", "", 1, ANY, packets::parse_pcap),
    writes("check-vlan", "", 2, 2, encodings::check_vlan),
    writes("print-error", "", 1, 1, offline::print_error),
    writes("encode-error-reply", "", 2, 2, offline::encode_error_reply),
    writes("ofp-print", "", 1, 2, offline::ofp_print),
    writes("encode-hello", "", 1, 1, offline::encode_hello),
    writes("parse-key-value", "", 1, ANY, offline::parse_key_value),
    reads("compose-packet", "", 1, 2, packets::compose_packet),
    writes("parse-packet", "", 0, 0, packets::parse_packet),
];

fn execute(args: Vec<OsString>) -> Result<(), Failure> {
    let (options, words) = match options::parse(args)? {
        Parsed::Help => return print(&help::text()),
        Parsed::Version => {
            let line = telemetry::version::text(PROGRAM);
            return print(&format!("{line}\nOpenFlow versions 0x1:0x6\n"));
        }
        Parsed::Run(options, words) => (*options, words),
    };
    let (command, words) = command(COMMANDS, &words, |command| (command.name, command.min, command.max))?;
    let name = command.name;
    if command.writes && options.read_only {
        return Err(Failure::new(format!(
            "'{name}' command does not work in read only mode"
        )));
    }
    if let Some(timeout) = options.timeout {
        crate::common::alarm(timeout);
    }
    let ctl = Ctl {
        options,
        xid: Cell::new(0),
        names: RefCell::default(),
    };
    (command.run)(&ctl, words)
}
