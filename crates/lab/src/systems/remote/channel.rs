//! The connection to the machine with the switch: a child of this process, ssh, with a line for
//! each request and each reply.
//!
//! Nothing here waits without a limit: threads read and write, and a request whose reply is late,
//! or is none, ends the connection. Later requests repeat the reason.

use super::protocol::{LONGEST, Reply, Request, lines, quoted};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the other machine may take to remove its testbed at the end.
const ENDING: Duration = Duration::from_secs(30);

/// How long ssh may take to say why it ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Lines of ssh and of the other program that an error quotes.
const LINES: usize = 4;

pub(super) struct Channel {
    /// The machine's name, for errors.
    host: String,
    child: Child,
    to: Option<SyncSender<Vec<u8>>>,
    from: Receiver<Result<Option<String>>>,
    /// What is on standard error, and the thread that reads it.
    said: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
    /// Why nothing can be asked any more.
    broken: Option<String>,
}

impl Channel {
    /// Starts the program at the other end.
    pub(super) fn open(host: &str, mut command: Command) -> Result<Channel> {
        // In a process group of its own, so that ^C at the terminal ends the run, and the run this.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| crate::bed::command::cannot_start(&command, &error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            bail!("ssh has no input or output");
        };
        let (to, requests) = sync_channel::<Vec<u8>>(1);
        thread::spawn(move || requests.iter().try_for_each(|request| stdin.write_all(&request)));
        let said: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let kept = said.clone();
        let reader = thread::spawn(move || keep_last(stderr, &kept));
        Ok(Channel {
            host: host.to_owned(),
            child,
            to: Some(to),
            from: lines(stdout),
            said,
            reader,
            broken: None,
        })
    }

    /// Asks, and waits for the reply so long.
    ///
    /// # Errors
    /// The other machine says that it does not work, and why; or the connection has failed.
    pub(super) fn ask(&mut self, request: &Request, patience: Duration) -> Result<Reply> {
        self.check()?;
        match self.exchange(request, patience) {
            Ok(Reply::Failed(why)) => Err(anyhow!("{}: {why}", self.host)),
            Ok(reply) => Ok(reply),
            Err(error) => {
                let why = format!("{}: {error:#}", self.host);
                // What does not keep to the protocol is not listened to again.
                self.to = None;
                let _ = self.child.kill();
                self.broken = Some(why.clone());
                bail!("{why}");
            }
        }
    }

    /// Whether it is still there.
    ///
    /// # Errors
    /// Why it has ended.
    pub(super) fn check(&self) -> Result<()> {
        match &self.broken {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    fn exchange(&mut self, request: &Request, patience: Duration) -> Result<Reply> {
        let mut asked = serde_json::to_vec(request)?;
        if asked.len() as u64 >= LONGEST {
            bail!("a request is longer than {LONGEST} bytes");
        }
        asked.push(b'\n');
        let late = || {
            anyhow!(
                "no answer within {} s; its load and the connection are to be looked at",
                patience.as_secs()
            )
        };
        match self.to.as_ref().context("the connection is closed")?.try_send(asked) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => return Err(late()),
        }
        match self.from.recv_timeout(patience) {
            Ok(Ok(Some(line))) => serde_json::from_str(&line).map_err(|_| {
                anyhow!(
                    "it answers '{}', which is no line of 'oxvs lab remote-switch'; its login shell must print nothing",
                    quoted(&line)
                )
            }),
            Ok(Err(error)) => Err(error.context("what it answers is no line of 'oxvs lab remote-switch'")),
            Err(RecvTimeoutError::Timeout) => Err(late()),
            Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    /// Why ssh has ended.
    fn end(&mut self) -> anyhow::Error {
        let end = Instant::now() + LAST_WORDS;
        let status = self.wait(LAST_WORDS);
        while !self.reader.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let said = if said.is_empty() {
            "it said nothing".to_owned()
        } else {
            said.join("; ")
        };
        let remedy = match status.as_deref() {
            Some("exit status: 255") => "; ssh must reach it as root and without a password",
            Some("exit status: 126" | "exit status: 127") => "; --remote-program PATH names its oxvs",
            _ => "",
        };
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        anyhow!("the connection has ended{status}: {said}{remedy}")
    }

    /// Waits so long for the end of ssh.
    fn wait(&mut self, limit: Duration) -> Option<String> {
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status.to_string()),
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The other program ends with its input.
        self.to = None;
        if self
            .wait(if self.broken.is_some() { LAST_WORDS } else { ENDING })
            .is_none()
        {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Keeps the last lines of a stream; of a long one the beginning.
fn keep_last(stream: impl Read, kept: &Mutex<VecDeque<String>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut bytes = Vec::new();
        match stream.by_ref().take(1000).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() {
            kept.push_back(text);
        }
        while kept.len() > LINES {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(script: &str, patience: u64) -> (String, Channel) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut channel = Channel::open("far", command).unwrap();
        let said = match channel.ask(&Request::Check, Duration::from_millis(patience)) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.to_string(),
        };
        (said, channel)
    }

    #[test]
    fn a_machine_that_answers_is_heard_and_its_reasons_are_told_with_its_name() {
        let (said, mut channel) = ask(
            "read a; echo '\"done\"'; read a; echo '{\"failed\":\"why\"}'; read a",
            60_000,
        );
        assert_eq!(said, "Done");
        let said = channel.ask(&Request::Stop, Duration::from_mins(1)).unwrap_err();
        assert_eq!(said.to_string(), "far: why");
        let began = Instant::now();
        drop(channel);
        assert!(began.elapsed() < ENDING);
    }

    #[test]
    fn a_machine_that_is_not_there_or_dies_or_babbles_or_is_silent_is_an_error_and_no_wait() {
        let long = format!("head -c {} /dev/zero; exec sleep 60", LONGEST + 1);
        let cases = [
            (
                "echo no route >&2; exit 255",
                60_000,
                "far: the connection has ended (exit status: 255): no route; ssh must reach it as root and without a password",
            ),
            ("exit 127", 60_000, "--remote-program PATH names its oxvs"),
            ("kill -9 $$", 60_000, "the connection has ended (signal: 9"),
            (
                "printf '{\"done'",
                60_000,
                "the connection has ended (exit status: 0): it said nothing",
            ),
            ("echo Welcome; exec sleep 60", 60_000, "it answers 'Welcome'"),
            (&long, 60_000, "longer than"),
            ("exec sleep 60", 100, "no answer within 0 s"),
        ];
        for (script, patience, expected) in cases {
            let began = Instant::now();
            let (said, mut channel) = ask(script, patience);
            assert!(said.contains(expected), "{script}: {said}");
            let again = channel.ask(&Request::Check, Duration::from_mins(1));
            assert_eq!(again.unwrap_err().to_string(), said);
            drop(channel);
            assert!(began.elapsed() < Duration::from_secs(30), "{script}");
        }
    }
}
