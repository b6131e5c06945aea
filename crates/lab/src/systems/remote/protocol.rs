//! What the two machines say to each other: a JSON value a line, a reply for each request.

use crate::bed::Tag;
use crate::results::{Loss, Machine};
use crate::systems::Elsewhere;
use crate::topology::Topology;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, sync_channel};

/// The longest line, in bytes.
pub(super) const LONGEST: u64 = 4 << 20;

/// What the laboratory asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// The first: names the wire.
    Hello {
        device: String,
        tag: Tag,
        /// The laboratory's address on the wire, of VXLAN.
        address: Option<Ipv4Addr>,
    },
    /// Why a system cannot run such a topology.
    Missing { system: String, topology: Topology },
    /// Makes bridges, and their cables.
    Start { system: String, topology: Topology },
    /// Removes them.
    Stop,
    /// Whether the switch runs.
    Check,
    /// What has used the processors so far.
    Usage,
    /// What was lost so far, by the switch and by the cables between bridges.
    Losses,
}

/// What the switch's machine answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Hello(Box<Greeting>),
    Missing(Option<String>),
    Started {
        configuration: Vec<String>,
        remarks: Vec<String>,
    },
    Usage {
        system: f64,
        machine: Elsewhere,
    },
    Losses(Vec<Loss>),
    Done,
    /// What was asked did not work; the reason.
    Failed(String),
}

/// The switch's machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub(super) build: Build,
    pub(super) machine: Machine,
    /// Its address on the wire, of VXLAN.
    pub(super) address: Option<Ipv4Addr>,
    /// Descriptions of its systems, by name.
    pub(super) systems: BTreeMap<String, String>,
}

/// The programs of a machine.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Build {
    version: String,
    /// Hash of the laboratory's program.
    lab: String,
    /// Hash of the switch's.
    switch: String,
}

impl Build {
    /// This machine's.
    pub(super) fn here() -> Result<Build> {
        Ok(Build {
            version: crate::VERSION.to_owned(),
            lab: crate::bed::Build::open(&crate::bed::lab_program()?)?.hash().to_owned(),
            switch: crate::bed::switch_build()?,
        })
    }

    /// How another one differs; none if it does not.
    pub(super) fn differs(&self, other: &Build) -> Option<String> {
        let pairs = [
            ("version", &self.version, &other.version),
            ("oxvs-lab of the build", &self.lab, &other.lab),
            ("oxvs of the build", &self.switch, &other.switch),
        ];
        let differ = pairs.into_iter().find(|(_, here, there)| here != there);
        differ.map(|(what, here, there)| format!("{what} {there}, and here is {here}"))
    }
}

/// Reads lines on a thread, up to the end or an error.
pub(super) fn lines(input: impl Read + Send + 'static) -> Receiver<Result<Option<String>>> {
    let (to, lines) = sync_channel(1);
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let read = line(&mut input);
            let last = !matches!(read, Ok(Some(_)));
            if to.send(read).is_err() || last {
                return;
            }
        }
    });
    lines
}

/// The next line; none at the end.
///
/// # Errors
/// It is too long, is no text, or cannot be read.
fn line(from: &mut impl BufRead) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    from.by_ref().take(LONGEST + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() as u64 > LONGEST {
        bail!("a line is longer than {LONGEST} bytes");
    }
    // Half a line is the end of one who was interrupted.
    if bytes.pop() != Some(b'\n') {
        return Ok(None);
    }
    String::from_utf8(bytes).map(Some).context("a line is no text")
}

/// As much of a line as an error quotes.
pub(super) fn quoted(line: &str) -> String {
    let mut start: String = line.chars().take(80).collect();
    if start.len() < line.len() {
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topology_of_the_experiments_crosses_the_channel_as_it_is() {
        for scenario in crate::scenario::built_in().unwrap() {
            for cell in scenario.cells(crate::scenario::Profile::Full).iter() {
                let topology = &cell.setup.topology;
                let line = serde_json::to_string(topology).unwrap();
                let read: Topology = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert_eq!(&read, topology, "{}", scenario.id);
            }
        }
    }

    #[test]
    fn lines_are_bounded_and_half_a_line_is_the_end() {
        let mut stream: &[u8] = b"one\ntwo";
        assert_eq!(line(&mut stream).unwrap().as_deref(), Some("one"));
        assert_eq!(line(&mut stream).unwrap(), None);
        let long = vec![b'x'; LONGEST as usize + 10];
        assert!(line(&mut &long[..]).unwrap_err().to_string().contains("longer than"));
        assert!(line(&mut &b"\xff\n"[..]).is_err());
        assert_eq!(quoted(&"x".repeat(99)).chars().count(), 81);
    }
}
