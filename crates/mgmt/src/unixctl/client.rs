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
        Err(source) => Err(TargetError { pidfile, source }),
    }
}

/// Runs a command on the daemon that listens at `path`: its text, or its error's.
///
/// # Errors
/// The system's, when the daemon cannot be reached or its answer cannot be understood.
pub async fn call(path: &Path, method: &str, args: &[String]) -> io::Result<Result<String, String>> {
    let stream = stream::connect(&Remote::Unix(path.to_owned()), &Tls::default()).await?;
    let params = args.iter().map(|a| Value::from(a.as_str())).collect();
    let invalid = |e: RecvError| match e {
        RecvError::Io(e) => e,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match Connection::new(stream).call(method, params).await {
        Ok(result) => Ok(Ok(text(result))),
        Err(CallError::Remote(error)) => Ok(Err(text(error))),
        Err(CallError::Closed) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "End of file")),
        Err(CallError::Recv(e)) => Err(invalid(e)),
    }
}
