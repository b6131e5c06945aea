//! What the tools share: how they print, fail and time out.

use std::fs;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use mgmt::os_text;
use ovsdb::DatabaseSchema;
use serde_json::Value;

/// Why a tool ends early, and with which status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to print after the program's name; nothing if empty.
    pub(crate) message: String,
    /// The exit status.
    pub(crate) status: u8,
}

impl Failure {
    /// Ends with status 1.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            status: 1,
        }
    }
}

impl From<mgmt::cli::Error> for Failure {
    fn from(e: mgmt::cli::Error) -> Failure {
        Failure::new(e.to_string())
    }
}

/// The exit status of `program`, whose failure, if it has one, is printed.
pub(crate) fn finish(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("{program}: {}", failure.message);
            }
            ExitCode::from(failure.status)
        }
    }
}

/// Whether the file of an SSL option is there. If not, the log says so in the words of Open
/// vSwitch, and the option has no effect.
pub(crate) fn has_file(option: &str, value: &str) -> bool {
    let what = match option {
        "private-key" => "SSL_use_PrivateKey_file".to_owned(),
        "certificate" => "SSL_use_certificate_file".to_owned(),
        "ca-cert" if value != "none" => format!("failed to load client certificates from {value}"),
        "peer-ca-cert" => format!("failed to load certificates from {value}"),
        _ => return true,
    };
    let result = std::fs::metadata(value);
    if let Err(e) = &result {
        tracing::error!(target: "stream_ssl", "{what}: error:80000002:system library::{}", os_text(e));
    }
    result.is_ok()
}

/// The command that the first word names, and its arguments. `spec` gives a command's name and the
/// fewest and the most of its arguments.
///
/// # Errors
/// There is no word, no such command, or another number of arguments.
pub(crate) fn command<'a, C>(
    commands: &'a [C],
    words: &'a [String],
    spec: impl Fn(&C) -> (&'static str, usize, usize),
) -> Result<(&'a C, &'a [String]), Failure> {
    let Some((name, args)) = words.split_first() else {
        return Err(Failure::new("missing command name; use --help for help"));
    };
    let Some(command) = commands.iter().find(|command| spec(command).0 == name) else {
        return Err(Failure::new(format!("unknown command '{name}'; use --help for help")));
    };
    let (_, fewest, most) = spec(command);
    if args.len() < fewest {
        return Err(Failure::new(format!(
            "'{name}' command requires at least {fewest} arguments"
        )));
    }
    if args.len() > most {
        return Err(Failure::new(format!("'{name}' command takes at most {most} arguments")));
    }
    Ok((command, args))
}

/// What `list-commands` prints of commands' names and arguments.
pub(crate) fn list_commands(commands: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let mut out = String::from("The available commands are:\n");
    for (name, arguments) in commands {
        out += &format!("  {name:<23} {arguments}\n");
    }
    out
}

/// Prints text as it is. A reader that has gone away (`| head`) ends the program quietly.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = mgmt::out::Stdout;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Failure::new(format!("write to standard output failed: {e}")))
}

/// Runs the tool's work; if it takes longer than `timeout`, the process dies of SIGALRM.
pub(crate) fn run<T>(timeout: Option<Duration>, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("cannot start: {e}")))?;
    let local = tokio::task::LocalSet::new();
    let result = local.block_on(&runtime, async {
        match timeout {
            Some(timeout) => tokio::time::timeout(timeout, work).await.ok(),
            None => Some(work.await),
        }
    });
    // A name lookup that hangs must not keep the process.
    runtime.shutdown_background();
    result.unwrap_or_else(|| Err(die_of_alarm()))
}

/// Parses the value of a timeout option, in seconds; `name` is how the message calls the option.
pub(crate) fn parse_timeout(name: &str, value: Option<&str>) -> Result<Duration, Failure> {
    let value = value.unwrap_or_default();
    match value.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => Err(Failure::new(format!("value {value} on {name} is invalid"))),
    }
}

/// The schema in a file.
pub(crate) fn read_schema(file: &str) -> Result<DatabaseSchema, Failure> {
    let unreadable = |why: String| {
        Failure::new(format!(
            "failed to read schema: \"{file}\" could not be read as JSON ({why})"
        ))
    };
    let text =
        fs::read_to_string(file).map_err(|e| unreadable(format!("error opening \"{file}\": {}", os_text(&e))))?;
    let json: Value = ovsdb::parse_json(text.as_bytes()).map_err(|e| unreadable(e.to_string()))?;
    DatabaseSchema::from_json(&json).map_err(|e| {
        let quoted = e.quoted().map(|q| format!("syntax \"{q}\": ")).unwrap_or_default();
        let details = e.details().unwrap_or_default();
        Failure::new(format!(
            "{quoted}{}: failed to parse \"{file}\" as ovsdb schema: {details}",
            e.kind().as_str()
        ))
    })
}

/// JSON of the command line.
pub(crate) fn parse_json(text: &str) -> Result<Value, Failure> {
    ovsdb::parse_json(text.as_bytes()).map_err(|e| Failure::new(format!("\"{text}\": {e}")))
}

/// Ends the process by SIGALRM when so much time has gone.
pub(crate) fn alarm(timeout: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(timeout);
        let failure = die_of_alarm();
        std::process::exit(failure.status.into());
    });
}

fn die_of_alarm() -> Failure {
    use rustix::process::{Signal, getpid, kill_process};
    tracing::warn!(target: "fatal_signal", "terminating with signal 14 (Alarm clock)");
    let _ = io::stdout().flush();
    let _ = kill_process(getpid(), Signal::ALARM);
    // Only reached where the signal is ignored.
    Failure {
        message: String::new(),
        status: 142,
    }
}
