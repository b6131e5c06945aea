//! A direct connection to a control socket, for thousands of commands a second without a process
//! for each.

use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An open control socket of a daemon (JSON-RPC, as `ovs-appctl` speaks it).
#[derive(Debug)]
pub struct Unixctl {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Unixctl {
    /// Connects to the socket at `path`.
    ///
    /// # Panics
    /// If nobody listens.
    #[track_caller]
    pub fn connect(path: &Path) -> Unixctl {
        let stream = UnixStream::connect(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a time limit is legal");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Unixctl { stream, reader }
    }

    /// Runs a command: its text, or its error's.
    ///
    /// # Panics
    /// If the daemon does not answer within a minute, or the answer is invalid.
    #[track_caller]
    pub fn call(&mut self, command: &str, args: &[&str]) -> Result<String, String> {
        let request = json!({"method": command, "params": args, "id": 0});
        let sent = self.stream.write_all(request.to_string().as_bytes());
        sent.unwrap_or_else(|e| panic!("{command}: {e}"));
        let mut replies = serde_json::Deserializer::from_reader(self.reader.by_ref()).into_iter::<Value>();
        let reply = replies.next().unwrap_or_else(|| panic!("{command}: connection closed"));
        let reply = reply.unwrap_or_else(|e| panic!("{command}: {e}"));
        match (&reply["result"], &reply["error"]) {
            (Value::String(text), Value::Null) => Ok(text.clone()),
            (Value::Null, Value::String(text)) => Err(text.clone()),
            _ => panic!("{command}: {reply}"),
        }
    }
}
