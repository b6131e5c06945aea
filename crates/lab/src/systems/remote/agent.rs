//! `oxvs lab remote-switch`: the machine with the switch, at the other end of ssh.

use super::protocol::{Build, Greeting, Reply, Request, lines, quoted};
use crate::awake::Awake;
use crate::bed::{Bed, Side, Wire};
use crate::results::Machine;
use crate::run::Usage;
use crate::systems::{Elsewhere, Running, System, all, named};
use crate::topology::Topology;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{Read, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How long a switch runs on if nothing is asked: the other machine asks twice a second while it
/// measures. If the network fails, the connection may never end.
const IDLE: Duration = Duration::from_secs(600);

/// Answers requests until the input ends. The switch and its testbed end with it, and if this
/// process is killed, the testbed's warden removes them.
///
/// # Errors
/// A line is too long; the answer cannot be written; nothing is asked any more.
pub fn main(input: impl Read + Send + 'static, output: impl Write) -> Result<()> {
    serve(input, output, IDLE)
}

fn serve(input: impl Read + Send + 'static, mut output: impl Write, idle: Duration) -> Result<()> {
    let mut agent = Agent::default();
    let lines = lines(input);
    loop {
        let asked = match lines.recv_timeout(idle) {
            Ok(Ok(Some(asked))) => asked,
            Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) if agent.bed.is_none() => continue,
            Err(RecvTimeoutError::Timeout) => {
                bail!("nothing was asked for {} s; the switch was stopped", idle.as_secs())
            }
        };
        let request = serde_json::from_str(&asked).map_err(|error| anyhow!("{error}: {}", quoted(&asked)));
        let reply = request.and_then(|request| agent.answer(request));
        let reply = reply.unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        writeln!(output, "{}", serde_json::to_string(&reply)?)?;
        output.flush()?;
    }
}

/// The machine's state. The switch goes before its testbed.
#[derive(Default)]
struct Agent {
    wire: Option<Wire>,
    running: Option<Box<dyn Running>>,
    bed: Option<Bed>,
    /// As on the machine with the hosts, while there is a testbed.
    awake: Option<Awake>,
}

impl Agent {
    fn answer(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::Hello { device, tag, address } => {
                let own = Wire::check(&device, tag)?;
                self.wire = Some(Wire::new(&device, tag, (own, address)));
                let describe = |system: Box<dyn System>| (system.name().to_owned(), system.describe());
                Ok(Reply::Hello(Box::new(Greeting {
                    build: Build::here()?,
                    machine: Machine::here(),
                    address: own,
                    systems: all().into_iter().map(describe).collect(),
                })))
            }
            Request::Missing { system, topology } => {
                let missing = named(&system)?.missing(&topology);
                Ok(Reply::Missing(missing.or_else(crate::bed::missing_tools)))
            }
            Request::Start { system, topology } => self.start(&system, &topology),
            Request::Stop => {
                self.stop();
                Ok(Reply::Done)
            }
            Request::Check => {
                self.running()?.check()?;
                Ok(Reply::Done)
            }
            Request::Usage => {
                let system = self.running()?.cpu();
                let used = Usage::now();
                Ok(Reply::Usage {
                    system,
                    machine: Elsewhere {
                        all: used.all,
                        // The switch's processes descend from this one.
                        other: used.all - used.own - used.packets,
                        nice: used.nice,
                        processors: std::thread::available_parallelism().map_or(1, usize::from),
                    },
                })
            }
            Request::Losses => {
                let mut losses = self.running()?.drops()?;
                losses.extend(self.bed.as_ref().context("there is no testbed")?.losses()?);
                Ok(Reply::Losses(losses))
            }
        }
    }

    fn start(&mut self, system: &str, topology: &Topology) -> Result<Reply> {
        self.stop();
        let wire = self.wire.as_ref().context("the wire is not named yet")?;
        let bed = Bed::build_part(topology, Some((Side::Switch, wire))).context("the testbed")?;
        let bed = self.bed.insert(bed);
        self.awake = Some(Awake::begin().context("the processors cannot be kept awake")?);
        let running = match named(system)?.start(topology, bed) {
            Ok(running) => running,
            Err(error) => {
                self.stop();
                return Err(error);
            }
        };
        let reply = Reply::Started {
            configuration: running.configuration().to_vec(),
            remarks: running.remarks(),
        };
        self.running = Some(running);
        Ok(reply)
    }

    fn stop(&mut self) {
        self.running = None;
        self.bed = None;
        self.awake = None;
    }

    fn running(&mut self) -> Result<&mut Box<dyn Running>> {
        match &mut self.running {
            Some(running) => Ok(running),
            None => bail!("no switch was started"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_answered_and_a_line_without_end_ends_it() {
        let talk = |input: &[u8]| {
            let mut output = Vec::new();
            let ended = main(std::io::Cursor::new(input.to_vec()), &mut output);
            (ended, String::from_utf8(output).unwrap())
        };
        let hello = r#"{"hello":{"device":"../x","tag":"vlan","address":null}}"#;
        let start = r#"{"start":{"system":"oxvs","topology":{}}}"#;
        let (ended, said) = talk(format!("garbage\n\"check\"\n{hello}\n{start}\n\"stop\"\n").as_bytes());
        ended.unwrap();
        let replies: Vec<&str> = said.lines().collect();
        let expected = [
            "garbage",
            "no switch was started",
            "no name of a network device",
            "the wire is not named",
            "done",
        ];
        assert_eq!(replies.len(), expected.len(), "{said}");
        for (reply, expected) in replies.iter().zip(expected) {
            assert!(reply.contains(expected), "{reply}");
        }
        let endless = vec![b'x'; super::super::protocol::LONGEST as usize + 1];
        assert!(talk(&endless).0.unwrap_err().to_string().contains("longer than"));
    }
}
