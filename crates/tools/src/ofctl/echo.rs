//! Whether, and how fast, a peer answers: `probe`, `ping`, `benchmark`.

use super::Ctl;
use crate::common::{Failure, print};
use openflow::model::Body;
use openflow::{HEADER_LEN, MAX_LEN};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

pub(super) fn probe(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut conn = ctl.open(&args[0])?;
    let request = conn.encode(0, Body::EchoRequest(Vec::new()));
    let reply = conn.transact(&request)?;
    match reply.len() == HEADER_LEN {
        true => Ok(()),
        false => Err(Failure::new("reply does not match request")),
    }
}

/// The number at the start of a word; 0 if there is none.
fn number(word: &str) -> usize {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().unwrap_or(0)
}

fn payload_len(word: &str) -> Result<usize, Failure> {
    const MAX: usize = MAX_LEN - HEADER_LEN;
    match number(word) {
        len @ 0..=MAX => Ok(len),
        _ => Err(Failure::new(format!("payload must be between 0 and {MAX} bytes"))),
    }
}

/// Random bytes.
fn random(len: usize) -> Vec<u8> {
    let state = RandomState::new();
    (0..len).map(|n| state.hash_one(n) as u8).collect()
}

pub(super) fn ping(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let len = args.get(1).map_or(Ok(64), |word| payload_len(word))?;
    let mut conn = ctl.open(target)?;
    for _ in 0..10 {
        let payload = random(len);
        let xid = ctl.xid();
        let request = conn.encode(xid, Body::EchoRequest(payload.clone()));
        let start = Instant::now();
        let reply = conn.transact(&request)?;
        let milliseconds = start.elapsed().as_secs_f64() * 1000.0;
        let same = reply[1] == 3 && reply[HEADER_LEN..] == payload;
        if !same {
            print("Reply does not match request.  Request:\n")?;
            print(&ctl.text(&request, None))?;
            print("Reply:\n")?;
            print(&ctl.text(&reply, None))?;
        }
        let got = reply.len() - HEADER_LEN;
        let differs = if same { "" } else { " (reply mismatch)" };
        print(&format!(
            "{got} bytes from {target}: xid={xid:08x} time={milliseconds:.1} ms{differs}\n"
        ))?;
    }
    Ok(())
}

pub(super) fn benchmark(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let len = payload_len(&args[1])?;
    let count = number(&args[2]);
    let size = len + HEADER_LEN;
    print(&format!(
        "Sending {count} packets * {size} bytes (with header) = {} bytes total\n",
        count * size
    ))?;
    let mut conn = ctl.open(target)?;
    let start = Instant::now();
    for _ in 0..count {
        let request = conn.encode(ctl.xid(), Body::EchoRequest(vec![0; len]));
        conn.transact(&request)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    print(&format!(
        "Finished in {:.1} ms ({:.0} packets/s) ({:.0} bytes/s)\n",
        seconds * 1000.0,
        count as f64 / seconds,
        (count * size) as f64 / seconds
    ))
}
