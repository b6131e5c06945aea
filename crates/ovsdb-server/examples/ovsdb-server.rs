//! The daemon alone, for tests and benchmarks of this crate; users run it as `oxvs ovsdb-server`.

fn main() -> std::process::ExitCode {
    ovsdb_server::main(&mut std::env::args_os().skip(1))
}
