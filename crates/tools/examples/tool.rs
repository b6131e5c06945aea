//! Runs one of the tools, or the server that they talk to:
//! `cargo run -p tools --example tool -- ovsdb-client list-dbs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default();
    match name.to_str() {
        Some("ovs-appctl") => tools::appctl::main(args),
        Some("ovs-ofctl") => tools::ofctl::main(args),
        Some("ovs-vsctl") => tools::vsctl::main(args),
        Some("ovsdb-client") => tools::ovsdb_client::main(args),
        Some("ovsdb-tool") => tools::ovsdb_tool::main(args),
        Some("ovsdb-server") => ovsdb_server::main(&mut args),
        _ => {
            eprintln!("usage: tool ovs-appctl|ovs-ofctl|ovs-vsctl|ovsdb-client|ovsdb-tool|ovsdb-server ARG...");
            ExitCode::FAILURE
        }
    }
}
