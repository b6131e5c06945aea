//! The tool's side of a control socket.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::jsonrpc::{CallError, Connection, RecvError};
use crate::stream::{self, Remote, Tls};
use crate::{os_text, paths, pidfile};

/// Why a target's socket cannot be determined.
#[derive(Debug, thiserror::Error)]
#[error("cannot read pidfile \"{}\" ({})", pidfile.display(), os_text(source))]
pub struct TargetError {
    /// The pidfile.
    pub pidfile: PathBuf,
    /// What is wrong with it.
    #[source]
    pub source: io::Error,
}

/// The control socket of `target`: itself if it begins with `/`, else that of the daemon whose
/// pidfile in the run directory has that name.
///
/// # Errors
/// [`TargetError`] when no such daemon runs.
pub fn target_path(target: &str) -> Result<PathBuf, TargetError> {
    if target.starts_with('/') {
        return Ok(PathBuf::from(target));
    }
    let pidfile = paths::in_rundir(format!("{target}.pid"));
    match pidfile::read(&pidfile) {
        Ok(pid) => Ok(paths::in_rundir(format!("{target}.{pid}.ctl"))),
        Err(source) => {
            // A pidfile that nobody has locked was opened.
            if !pidfile.exists() {
                tracing::warn!(target: "daemon_unix", "{}: open: {}", pidfile.display(), os_text(&source));
            }
            Err(TargetError { pidfile, source })
        }
    }
}

/// Runs a command on the daemon that listens at `path`: its text, or its error's.
///
/// # Errors
/// The system's, when the daemon cannot be reached or its answer cannot be understood.
pub async fn call(path: &Path, method: &str, args: &[String]) -> io::Result<Result<String, String>> {
    let answer = transact(&mut connect(path).await?, method, args).await?;
    Ok(answer.map(text))
}

/// As [`call`], with a JSON document as the answer. A daemon before Open vSwitch 3.4 cannot give
/// one; it answers with an error.
///
/// # Errors
/// As [`call`].
pub async fn call_json(path: &Path, method: &str, args: &[String]) -> io::Result<Result<Value, String>> {
    let mut connection = connect(path).await?;
    let options = ["--format", "json"].map(str::to_owned);
    match transact(&mut connection, "set-options", &options).await? {
        Ok(_) => transact(&mut connection, method, args).await,
        Err(text) => Ok(Err(text)),
    }
}

async fn connect(path: &Path) -> io::Result<Connection> {
    let stream = stream::connect(&Remote::Unix(path.to_owned()), &Tls::default()).await;
    stream
        .map(Connection::new)
        .inspect_err(|_| tracing::warn!(target: "unixctl", "failed to connect to {}", path.display()))
}

async fn transact(connection: &mut Connection, method: &str, args: &[String]) -> io::Result<Result<Value, String>> {
    let params = args.iter().map(|a| Value::from(a.as_str())).collect();
    match connection.call(method, params).await {
        Ok(result) => Ok(Ok(result)),
        Err(CallError::Remote(error)) => Ok(Err(text(error))),
        Err(CallError::Closed) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "End of file")),
        Err(CallError::Recv(RecvError::Io(e))) => Err(e),
        Err(CallError::Recv(e)) => Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
