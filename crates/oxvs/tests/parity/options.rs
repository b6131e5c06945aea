//! Every option and command of the programs but `ovs-ofctl`, which has tables of its own: forms
//! that the other tables lack, and a test that no option of a help text lacks a row.

use crate::run::{Daemons, Group, Row, Table, options, row, run};
use crate::{appctl, dpctl, dummy, ovsdb, vsctl};
use std::collections::BTreeSet;
use testkit::{run as command_output, skip};

const VSCTL: &[Row] = &[
    row("ovs-vsctl --bootstrap-ca-cert=nofile.pem list-br"),
    row("ovs-vsctl --ca-cert=nofile.pem list-br"),
    row("ovs-vsctl -C nofile.pem list-br"),
    row("ovs-vsctl --certificate=nofile.pem list-br"),
    row("ovs-vsctl --private-key=nofile.pem list-br"),
    row("ovs-vsctl -p nofile.pem list-br"),
    row("ovs-vsctl --log-file=v.log list-br"),
    row("ovs-vsctl --log-file=/nonexistent/v.log list-br"),
    row("ovs-vsctl --no-syslog list-br"),
    row("ovs-vsctl --no-syslog=1 list-br"),
    row("ovs-vsctl --retry list-br"),
    row("ovs-vsctl --retry=1 list-br"),
    row("ovs-vsctl --ssl-ciphers=HIGH list-br"),
    row("ovs-vsctl --ssl-protocols=TLSv1.2 list-br"),
    row("ovs-vsctl --ssl-protocols=x list-br"),
    row("ovs-vsctl --syslog-method=null list-br"),
    row("ovs-vsctl --syslog-method=x list-br"),
    row("ovs-vsctl --syslog-target=127.0.0.1:514 list-br"),
    row("ovs-vsctl --verbose=x list-br"),
    row("ovs-vsctl --verbose=console:off list-br"),
    row("ovs-vsctl -vfoo list-br"),
    row("ovs-vsctl -d json -f csv --columns=name list bridge"),
    row("ovs-vsctl -t 5 list-br"),
    row("ovs-vsctl -t x list-br"),
    row("ovs-vsctl -t list-br"),
    row("ovs-vsctl -h x").status(),
    row("ovs-vsctl --force list-br"),
];

const CLIENT: &[Row] = &[
    row("ovsdb-client --bare dump {db} Open_vSwitch Bridge name"),
    row("ovsdb-client --bootstrap-ca-cert=nofile.pem list-dbs"),
    row("ovsdb-client --ca-cert=nofile.pem list-dbs"),
    row("ovsdb-client --certificate=nofile.pem list-dbs"),
    row("ovsdb-client --private-key=nofile.pem list-dbs"),
    row("ovsdb-client --ssl-ciphers=HIGH list-dbs"),
    row("ovsdb-client --ssl-protocols=x list-dbs"),
    row("ovsdb-client --detach=1 list-dbs"),
    row("ovsdb-client --detach list-dbs"),
    row("ovsdb-client --monitor list-dbs"),
    row("ovsdb-client --no-chdir list-dbs"),
    row("ovsdb-client --overwrite-pidfile list-dbs"),
    row("ovsdb-client --pidfile=/nonexistent/x.pid list-dbs"),
    row("ovsdb-client --log-file=c.log list-dbs"),
    row("ovsdb-client --log-file=/nonexistent/c.log list-dbs"),
    row("ovsdb-client --syslog-method=null list-dbs"),
    row("ovsdb-client --syslog-method=x list-dbs"),
    row("ovsdb-client --syslog-target=127.0.0.1:514 list-dbs"),
    row("ovsdb-client --timestamp list-dbs"),
    row("ovsdb-client --user=no-such-user list-dbs").status(),
    row("ovsdb-client --verbose=x list-dbs"),
    row("ovsdb-client -vfoo list-dbs"),
    row("ovsdb-client -t x list-dbs"),
    row("ovsdb-client -t 0 list-dbs"),
    row("ovsdb-client --force list-dbs"),
    row("ovsdb-client unlock"),
    row("ovsdb-client monitor-cond-since"),
    row("ovsdb-client monitor-cond-since Open_vSwitch"),
    row("ovsdb-client monitor-cond-since nosuch Bridge").status(),
];

const TOOL: &[Row] = &[
    row("ovsdb-tool list-commands"),
    row("ovsdb-tool list-commands x"),
    row("ovsdb-tool help").status(),
    row("ovsdb-tool create-cluster"),
    row("ovsdb-tool create-cluster x"),
    row("ovsdb-tool join-cluster"),
    row("ovsdb-tool join-cluster x y z"),
    row("ovsdb-tool check-cluster"),
    row("ovsdb-tool create t.db"),
    row("ovsdb-tool --more show-log t.db").status(),
    row("ovsdb-tool -m show-log t.db").status(),
    row(r#"ovsdb-tool --rbac-role=x query t.db '["Open_vSwitch",{"op":"select","table":"Bridge","where":[]}]'"#),
    row(r#"ovsdb-tool --rbac-role=x transact t.db '["Open_vSwitch",{"op":"insert","table":"Bridge","row":{}}]'"#),
    row("ovsdb-tool --rbac-role transact t.db"),
    row("ovsdb-tool --rbac-role"),
    row("ovsdb-tool --verbose=x db-name t.db"),
    row("ovsdb-tool -vfoo db-name t.db"),
    row("ovsdb-tool cluster-to-standalone"),
    row("ovsdb-tool cluster-to-standalone out.db t.db"),
    row("ovsdb-tool cluster-to-standalone out.db nosuch.db"),
];

/// Open vSwitch's `ovs-dpctl` has no datapath to ask without its kernel module.
const DPCTL: &[Row] = &[
    row("ovs-dpctl --clear parse-actions drop"),
    row("ovs-dpctl --may-create parse-actions drop"),
    row("ovs-dpctl --more parse-actions drop"),
    row("ovs-dpctl -m parse-actions drop"),
    row("ovs-dpctl --names parse-actions drop"),
    row("ovs-dpctl --log-file=d.log parse-actions drop"),
    row("ovs-dpctl --syslog-method=null parse-actions drop"),
    row("ovs-dpctl --syslog-method=x parse-actions drop"),
    row("ovs-dpctl --syslog-target=127.0.0.1:514 parse-actions drop"),
    row("ovs-dpctl --timeout=5 parse-actions drop"),
    row("ovs-dpctl --timeout=x parse-actions drop"),
    row("ovs-dpctl --verbose=x parse-actions drop"),
    row("ovs-dpctl --statistics parse-actions drop"),
    row("ovs-dpctl --zero parse-actions drop"),
    row("ovs-dpctl --help").options(),
];

const DAEMON: &[Row] = &[
    row("ovs-vswitchd --help").status(),
    row("ovs-vswitchd --bootstrap-ca-cert=x --version"),
    row("ovs-vswitchd --detach --monitor --no-chdir --overwrite-pidfile --pidfile=x.pid --version"),
    row("ovs-vswitchd --detach=1"),
    row("ovs-vswitchd --monitor=1"),
    row("ovs-vswitchd --log-file=/nonexistent/w.log x").status(),
    row("ovs-vswitchd --syslog-method=null --syslog-target=127.0.0.1:514 --version"),
    row("ovs-vswitchd --syslog-method=x"),
    row("ovs-vswitchd --unixctl"),
    row("ovs-vswitchd --unixctl=none --verbose=x"),
    row("ovs-vswitchd --user=no-such-user").status(),
    row("ovs-vswitchd --user"),
    row("ovs-vswitchd --mlockall --version"),
    row("ovs-vswitchd --dpdk --version"),
    row("ovs-vswitchd --disable-system --disable-system-route --version"),
    row("ovs-vswitchd --enable-dummy=x"),
    row("ovs-vswitchd --dummy-numa"),
    row("ovs-vswitchd --nosuch"),
    row("ovs-vswitchd a b"),
    row("ovs-vswitchd --private-key"),
    row("ovs-vswitchd --certificate"),
    row("ovs-vswitchd --ca-cert"),
    row("ovs-vswitchd --ssl-protocols"),
    row("ovs-vswitchd --ssl-ciphers"),
    row("ovs-vswitchd --pidfile=/nonexistent/x.pid {db}"),
];

/// With `--run` the server ends when the command does.
const SERVER: &[Row] = &[
    row("ovsdb-server --help").status(),
    row("ovsdb-server --version"),
    row("ovsdb-server --nosuch"),
    row("ovsdb-server nosuch.db"),
    row("ovsdb-server --detach=1"),
    row("ovsdb-tool create s.db"),
    row("ovsdb-server --run=true --unixctl=none s.db"),
    row("ovsdb-server --run=false --unixctl=none s.db"),
    row("ovsdb-server --run 'exit 7' --unixctl=none s.db"),
    row("ovsdb-server --run 'kill -9 $$' --unixctl=none s.db"),
    row("ovsdb-server --run=true --unixctl=none --remote=punix:s.sock s.db"),
    row("ovsdb-server --run=true --unixctl=none --remote=db:x s.db").status(),
    row("ovsdb-server --run=true --unixctl=none --active s.db"),
    row("ovsdb-server --run=true --unixctl=none --sync-from=tcp:127.0.0.1:1 --active s.db"),
    row("ovsdb-server --run=true --unixctl=none --sync-exclude-tables=a:b s.db"),
    row("ovsdb-server --run=true --unixctl=none --disable-file-column-diff s.db"),
    row("ovsdb-server --run=true --unixctl=none --no-dbs"),
    row("ovsdb-server --run=true --unixctl=none --no-chdir --pidfile=s.pid --overwrite-pidfile s.db"),
    row("ovsdb-server --run=true --unixctl=none --pidfile=/nonexistent/s.pid s.db"),
    row("ovsdb-server --run=true --unixctl=none --bootstrap-ca-cert=nofile s.db"),
    row("ovsdb-server --private-key"),
    row("ovsdb-server --certificate"),
    row("ovsdb-server --ca-cert"),
    row("ovsdb-server --run=true --unixctl=none --ssl-ciphers=HIGH --ssl-protocols=TLSv1.2 s.db"),
    row("ovsdb-server --run=true --unixctl=none --syslog-method=null s.db"),
    row("ovsdb-server --syslog-target=127.0.0.1:514 --nosuch"),
    row("ovsdb-server --run=true --unixctl=none --syslog-method=x s.db"),
    row("ovsdb-server --run=true --unixctl=none --log-file=/nonexistent/s.log s.db"),
    row("ovsdb-server --run=true --unixctl=none --verbose=x s.db"),
    row("ovsdb-server --run=true --unixctl=none --user=no-such-user s.db").status(),
    row("ovsdb-server --run=true --unixctl=none --monitor=1 s.db"),
];

static TABLE: Table = Table {
    name: "options",
    groups: &[
        Group {
            daemons: Daemons::Dummy(&[]),
            files: &[],
            setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy"],
            rows: VSCTL,
        },
        Group {
            daemons: Daemons::Dummy(&[]),
            files: &[],
            setup: &["ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy"],
            rows: CLIENT,
        },
        Group {
            daemons: Daemons::Dummy(&[]),
            files: &[],
            setup: &[],
            rows: DPCTL,
        },
        Group {
            daemons: Daemons::None,
            files: &[],
            setup: &[],
            rows: TOOL,
        },
        Group {
            daemons: Daemons::None,
            files: &[],
            setup: &[],
            rows: DAEMON,
        },
        Group {
            daemons: Daemons::None,
            files: &[],
            setup: &[],
            rows: SERVER,
        },
    ],
};

#[test]
fn programs_take_and_refuse_options_as_open_vswitchs() {
    run(&TABLE);
}

/// Options of help texts without a row: of clusters, which README names, those that
/// docs/compatibility.md names, and those that the program of Open vSwitch 3.1 refuses itself.
const WITHOUT_ROW: &[(&str, &[&str])] = &[
    ("ovsdb-client", &["--record", "--replay"]),
    ("ovsdb-server", &["--record", "--replay"]),
    (
        "ovsdb-tool",
        &[
            "--log-file",
            "--syslog-method",
            "--syslog-target",
            "--cid",
            "--election-timer",
        ],
    ),
];

#[test]
fn every_option_of_a_help_text_has_a_row() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-dpctl", "ovsdb-client", "ovsdb-tool", "ovs-vswitchd", "ovsdb-server");
    let tables = [
        &TABLE,
        &appctl::TABLE,
        &dpctl::TABLE,
        &dummy::TABLE,
        &ovsdb::TABLE,
        &vsctl::TABLE,
    ];
    for program in [
        "ovs-vsctl",
        "ovs-appctl",
        "ovs-dpctl",
        "ovsdb-client",
        "ovsdb-tool",
        "ovs-vswitchd",
        "ovsdb-server",
    ] {
        let words: BTreeSet<&str> = tables.iter().flat_map(|table| table.words_of(program)).collect();
        let help = command_output(&[program, "--help"]);
        let without = WITHOUT_ROW.iter().find(|(name, _)| *name == program);
        let without = without.map_or(&[][..], |(_, options)| options);
        let long = options(&help).into_iter().filter(|word| word.starts_with("--"));
        let missing: BTreeSet<&str> = long
            .filter(|option| !words.contains(option) && !without.contains(option))
            .collect();
        assert!(missing.is_empty(), "no row of {program} has {missing:?}");
    }
}

#[test]
fn every_command_of_the_daemons_has_a_row() {
    skip!(unless "ovs-vsctl", "setpriv", "ovs-vswitchd", "ovsdb-server");
    let debian = testkit::Vswitch::debian(testkit::Options::default());
    let tables = [&TABLE, &appctl::TABLE, &dpctl::TABLE, &dummy::TABLE, &ovsdb::TABLE];
    let words: BTreeSet<&str> = tables.iter().flat_map(|table| table.words()).collect();
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let list = debian.tool("ovs-appctl", &["-t", daemon, "list-commands"]).expect_ok();
        let commands = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        // There is no kernel module to ask (docs/compatibility.md).
        let missing: Vec<&str> = commands
            .filter(|command| !words.contains(command) && *command != "dpif-netlink/dispatch-mode")
            .collect();
        assert!(missing.is_empty(), "no row has {missing:?} of {daemon}");
    }
}

#[test]
fn every_command_of_the_tools_has_a_row() {
    skip!(unless "ovs-dpctl", "ovsdb-tool");
    let tables = [&TABLE, &dpctl::TABLE, &ovsdb::TABLE];
    for tool in ["ovs-dpctl", "ovsdb-tool"] {
        let words: BTreeSet<&str> = tables.iter().flat_map(|table| table.words_of(tool)).collect();
        let list = command_output(&[tool, "list-commands"]);
        let commands = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let missing: Vec<&str> = commands.filter(|command| !words.contains(command)).collect();
        assert!(missing.is_empty(), "no row of {tool} has {missing:?}");
    }
}
