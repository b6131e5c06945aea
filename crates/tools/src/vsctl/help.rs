//! `--help`: every command on one screen or two, and how records are named.

use mgmt::paths;
use mgmt::stream::tls;
use ovsdb::{DatabaseSchema, schemas};

use super::PROGRAM;
use super::names::{By, NAMINGS};
use crate::table;

pub(super) fn text() -> String {
    let mut text = format!("{PROGRAM}: configures the switch through its database\nusage: {PROGRAM} [OPTIONS] [--] ");
    text.push_str(COMMANDS);
    text.push_str(&namings());
    text.push_str("\nOptions:\n");
    text.push_str(&format!(
        "  --db=REMOTE                 database server (default: {})\n",
        paths::default_remote()
    ));
    text.push_str(OPTIONS);
    text.push_str(table::HELP);
    text.push_str(tls::help());
    text.push_str(LOGGING);
    text
}

/// The ways to name records of each table.
fn namings() -> String {
    let mut text = String::new();
    let Ok(schema) = DatabaseSchema::from_text(schemas::OPEN_VSWITCH) else {
        return text;
    };
    for table in schema.tables() {
        text.push_str(&format!("  {}:\n    by UUID\n", table.name()));
        for naming in NAMINGS.iter().filter(|naming| naming.table == table.name()) {
            text.push_str(&match naming.by {
                By::Dot => "    as \".\"\n".to_owned(),
                By::Column(column) => format!("    by \"{column}\"\n"),
                By::Referrer(other, name, column) => {
                    format!("    via \"{column}\" of {other} with matching \"{name}\"\n")
                }
            });
        }
    }
    text
}

const COMMANDS: &str = "[OPTION...] COMMAND [ARG...] [-- [OPTION...] COMMAND [ARG...]]...

All commands of one call happen together or not at all. To begin with:
  add-br br0 -- add-port br0 eth1 tag=10 -- add-port br0 eth2 trunks=10,20
  set Interface eth1 mtu_request=9000
  show

The switch:
  init                        make an empty database usable (every command does)
  show                        print bridges, ports, interfaces, and what failed
  emer-reset                  remove controllers, managers, mirrors and the like

Bridges:
  [--may-exist] add-br BRIDGE
  [--may-exist] add-br BRIDGE PARENT VLAN   a bridge that is a VLAN of PARENT
  [--if-exists] del-br BRIDGE
  [--real|--fake] list-br
  br-exists BRIDGE            exit with 2 if there is no BRIDGE
  br-to-vlan BRIDGE           print its VLAN, 0 for a real bridge
  br-to-parent BRIDGE         print the bridge that it is a VLAN of
  br-set-external-id BRIDGE KEY [VALUE]
  br-get-external-id BRIDGE [KEY]

Ports, bonds and interfaces:
  list-ports BRIDGE
  [--may-exist] add-port BRIDGE PORT [COLUMN[:KEY]=VALUE]...
  [--may-exist] [--fake-iface] add-bond BRIDGE PORT IFACE IFACE... [COLUMN[:KEY]=VALUE]...
  [--may-exist] add-bond-iface BOND IFACE
  [--if-exists] del-bond-iface [BOND] IFACE
  [--if-exists] [--with-iface] del-port [BRIDGE] PORT
  port-to-br PORT
  list-ifaces BRIDGE
  iface-to-br IFACE

Controllers, managers, TLS:
  get-controller BRIDGE | del-controller BRIDGE
  [--inactivity-probe=MSECS] set-controller BRIDGE TARGET...
  get-fail-mode BRIDGE | del-fail-mode BRIDGE | set-fail-mode BRIDGE standalone|secure
  get-manager | del-manager
  [--inactivity-probe=MSECS] set-manager TARGET...
  get-ssl | del-ssl
  [--bootstrap] set-ssl PRIVATE-KEY CERTIFICATE CA-CERT

Connection tracking zones, datapaths, Auto-Attach:
  [--may-exist] add-zone-tp DATAPATH zone=ZONE POLICY=SECONDS...
  [--if-exists] del-zone-tp DATAPATH zone=ZONE
  list-zone-tp DATAPATH
  set-zone-limit DATAPATH zone=ZONE|default LIMIT
  [--if-exists] del-zone-limit DATAPATH zone=ZONE|default
  list-zone-limits DATAPATH
  list-dp-cap DATAPATH
  add-aa-mapping BRIDGE I-SID VLAN | del-aa-mapping BRIDGE I-SID VLAN
  get-aa-mapping BRIDGE

Any row of the database:
  [--if-exists] [--columns=COLUMN,...] list TABLE [RECORD]...
  [--columns=COLUMN,...] find TABLE [COLUMN[:KEY]=VALUE]...
                              also != < > <= >= {=} {!=} {<} {>} {<=} {>=} {in} {not-in}
  [--if-exists] [--id=@NAME] get TABLE RECORD [COLUMN[:KEY]]...
  [--if-exists] set TABLE RECORD COLUMN[:KEY]=VALUE...
  [--if-exists] add TABLE RECORD COLUMN [KEY=]VALUE...
  [--if-exists] remove TABLE RECORD COLUMN KEY|VALUE|KEY=VALUE...
  [--if-exists] clear TABLE RECORD COLUMN...
  [--id=@NAME|UUID] create TABLE COLUMN[:KEY]=VALUE...
  [--if-exists] destroy TABLE RECORD... | --all destroy TABLE
  wait-until TABLE RECORD [COLUMN[:KEY]=VALUE]...
  comment [ARG]...            for the database's log

Tables, and how their records can be named:
";

const OPTIONS: &str = "  --no-wait                   do not wait until the switch has applied the change
  --retry                     try to connect until it works
  -t, --timeout=SECS          give up after that many seconds
  --dry-run                   do not change the database
  --oneline                   print the output of each command on one line
";

const LOGGING: &str = "
Logging options:
  -vSPEC, --verbose=SPEC      set levels of the log
  --log-file[=FILE]           also log to a file
  --syslog-method=METHOD, --syslog-target=HOST:PORT
  --no-syslog                 same as --verbose=vsctl:syslog:warn

Other options:
  -h, --help                  this help
  -V, --version               versions
";
