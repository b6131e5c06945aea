//! The smallest daemon: a control socket with the common commands, `exit`, and ways
//! to crash: `panic`, `crash` and `overflow`.
//!
//! `cargo run -p mgmt --example minimal_daemon -- --pidfile=/tmp/x.pid --unixctl=/tmp/x.ctl`

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;

use mgmt::cli::{COMMON, Item, Order, Parser};
use mgmt::daemon::{self, Options};
use mgmt::unixctl::Server;
use tokio::sync::Notify;

const PROGRAM: &str = "minimal-daemon";

fn main() -> ExitCode {
    telemetry::vlog::init(PROGRAM);
    match run() {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{PROGRAM}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let tables = vec![daemon::OPTIONS, daemon::LOG_OPTIONS, COMMON];
    let mut parser = Parser::new(std::env::args_os().skip(1), tables, Order::Mixed);
    let mut options = Options::new(PROGRAM);
    while let Some(item) = parser.next()? {
        match item {
            Item::Opt(name, value) if options.accept(name, value.as_deref())? => {}
            Item::Opt("version", _) => {
                println!("{}", telemetry::version::text(PROGRAM));
                return Ok(ExitCode::SUCCESS);
            }
            Item::Opt(..) => {
                println!("{PROGRAM}: a daemon to try things with\n{}", daemon::help(PROGRAM));
                return Ok(ExitCode::SUCCESS);
            }
            Item::Arg(arg) => return Err(format!("unexpected argument {arg}").into()),
        }
    }
    let mut daemon = daemon::start(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let signal = local.block_on(&runtime, async {
        let exit = Rc::new(Notify::new());
        let server = Server::new(PROGRAM);
        let on_exit = exit.clone();
        let command = move |_: &[String]| {
            on_exit.notify_one();
            Ok(String::new())
        };
        server.register("exit", "", 0, 0, Box::new(command));
        let command = |_: &[String]| -> Result<String, String> {
            let ended = std::thread::spawn(|| panic!("on request")).join();
            ended.map_err(|_| "a thread panicked".to_owned())
        };
        server.register("panic", "", 0, 0, Box::new(command));
        let crashes = RefCell::new(0);
        let command = move |_: &[String]| -> Result<String, String> {
            *crashes.borrow_mut() += 1;
            std::process::abort()
        };
        server.register("crash", "", 0, 0, Box::new(command));
        let command = |_: &[String]| Ok(overflow(1).to_string());
        server.register("overflow", "", 0, 0, Box::new(command));
        if let Some(path) = daemon.options().unixctl_path() {
            tokio::task::spawn_local(server.serve(Server::bind(&path).await?));
        }
        let signals = daemon::Signals::receive()?;
        daemon.ready();
        let signal = tokio::select! {
            number = signals.end() => Some(number),
            () = exit.notified() => None,
        };
        daemon.announce_end();
        std::io::Result::Ok(signal)
    })?;
    drop(local);
    drop(daemon);
    match signal {
        Some(number) => daemon::exit_by_signal(number),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Overflows the stack.
#[inline(never)]
#[expect(unconditional_recursion, reason = "this is a crash to try")]
fn overflow(depth: u64) -> u64 {
    std::hint::black_box(depth) + overflow(std::hint::black_box(depth + 1)) + depth
}
