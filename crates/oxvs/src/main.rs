//! `oxvs`: one binary that is the switch, its daemons apart, and its tools. The laboratory is
//! `oxvs-lab`.
//!
//! `oxvs COMMAND …` runs a command; called through a link named like an Open vSwitch program
//! (`ovs-vsctl`, `ovsdb-server`, …), it is that program.

#![warn(clippy::print_stdout)]

mod laboratory;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

type Main = fn(&mut dyn Iterator<Item = OsString>) -> ExitCode;

struct Command {
    /// The word after `oxvs` on the command line.
    name: &'static str,
    /// The equivalent Open vSwitch program.
    program: &'static str,
    main: Main,
    about: &'static str,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "run",
        program: "",
        main: |args| vswitchd::run(args),
        about: "the whole switch in one process: database and datapath",
    },
    Command {
        name: "vsctl",
        program: "ovs-vsctl",
        main: |args| tools::vsctl::main(args),
        about: "configure bridges and ports; query and edit the database",
    },
    Command {
        name: "appctl",
        program: "ovs-appctl",
        main: |args| tools::appctl::main(args),
        about: "query and control a running daemon",
    },
    Command {
        name: "ofctl",
        program: "ovs-ofctl",
        main: |args| tools::ofctl::main(args),
        about: "query and program OpenFlow switches: flows, groups, meters, ports",
    },
    Command {
        name: "dpctl",
        program: "ovs-dpctl",
        main: |args| tools::dpctl::main(args),
        about: "show and change the flows and ports of the datapath",
    },
    Command {
        name: "tcpdump",
        program: "",
        main: |args| tools::tcpdump::main(args),
        about: "show or record what ports receive, send and drop",
    },
    Command {
        name: "ovsdb-client",
        program: "ovsdb-client",
        main: |args| tools::ovsdb_client::main(args),
        about: "query a database server: dump, monitor, transact, back up",
    },
    Command {
        name: "ovsdb-tool",
        program: "ovsdb-tool",
        main: |args| tools::ovsdb_tool::main(args),
        about: "create, convert, compact and read database files",
    },
    Command {
        name: "vswitchd",
        program: "ovs-vswitchd",
        main: |args| vswitchd::main(args),
        about: "the switch alone, with a separate database server",
    },
    Command {
        name: "ovsdb-server",
        program: "ovsdb-server",
        main: |args| ovsdb_server::main(args),
        about: "the database server alone",
    },
    Command {
        name: "lab",
        program: "",
        main: |args| laboratory::main(args),
        about: "experiments: measure switches on this machine, compare, report",
    },
];

fn main() -> ExitCode {
    mgmt::out::run(command)
}

fn command() -> ExitCode {
    let mut args = std::env::args_os();
    let called_as = args.next().unwrap_or_default();
    let program = Path::new(&called_as).file_name().unwrap_or_default();
    if let Some(command) = COMMANDS.iter().find(|c| program == c.program) {
        return (command.main)(&mut args);
    }
    let Some(name) = args.next() else {
        eprint!("{}", help());
        return ExitCode::FAILURE;
    };
    if name == "--help" || name == "-h" || name == "help" {
        mgmt::out!("{}", help());
        return ExitCode::SUCCESS;
    }
    if name == "--version" || name == "-V" || name == "version" {
        use telemetry::version::{COMPATIBLE, OXVS};
        mgmt::outln!("oxvs {OXVS}, compatible with Open vSwitch {COMPATIBLE}");
        return ExitCode::SUCCESS;
    }
    // The switch runs this itself.
    if name == vswitchd::KEEP_FLOWS {
        return vswitchd::keep_flows();
    }
    match COMMANDS.iter().find(|c| name == c.name || name == c.program) {
        Some(command) => (command.main)(&mut args),
        None => {
            eprintln!(
                "oxvs: unknown command '{}'; 'oxvs --help' lists the commands",
                name.to_string_lossy()
            );
            ExitCode::FAILURE
        }
    }
}

fn help() -> String {
    let mut out = String::from(
        "oxvs, a multilayer virtual switch in place of Open vSwitch\n\
         usage: oxvs COMMAND [ARG…]        'oxvs COMMAND --help' explains a command\n\n",
    );
    for command in COMMANDS {
        let program = if command.program.is_empty() {
            String::new()
        } else {
            format!(" (also when called as {})", command.program)
        };
        out += &format!("  {:13} {}{program}\n", command.name, command.about);
    }
    out += "\n\
        To start:  oxvs run --detach --pidfile --log-file\n  \
                   oxvs vsctl add-br br0 -- add-port br0 eth1 tag=10\n  \
                   oxvs vsctl show\n\n\
        OVS_RUNDIR, OVS_DBDIR and OVS_LOGDIR move sockets, database and logs from\n\
        /var/run/openvswitch, /etc/openvswitch and /var/log/openvswitch.\n";
    out
}
