//! Messages with one wrong byte, or with more bytes: both programs print the same.
//!
//! The messages are those of `ofctl_messages.txt`. `OXVS_SOAK=N` makes N times as many mutations.

use crate::run::binary;
use std::collections::BTreeMap;
use std::process::Stdio;
use testkit::{Rng, Sandbox, from_hex, skip, to_hex, try_run_in};

/// Mutations of each message in a normal run.
const EACH: usize = 8;
/// So many mutations of a thousand may print otherwise: in most of them two things are wrong, and
/// each program names another one.
const MAY_DIFFER: usize = 10;

/// The messages and their mutations come from this seed.
const SEED: u64 = 0x0f_0f;

/// A message with one byte changed, or with bytes added.
fn mutation(rng: &mut Rng, message: &[u8]) -> Vec<u8> {
    const HEADER: usize = 8;
    let mut data = message.to_vec();
    if rng.chance(8) {
        let more = *rng.pick(&[1, 2, 4, 8, 16, 24]);
        let byte = *rng.pick(&[0, 0, 0xff, 1]);
        data.resize(data.len() + more, byte);
        let len = (data.len() as u16).to_be_bytes();
        data[2..4].copy_from_slice(&len);
        return data;
    }
    let at = match data.len() {
        HEADER => rng.below(HEADER),
        _ if rng.chance(6) => rng.below(4),
        // Most of the structure is near the beginning.
        len if rng.chance(50) => HEADER + rng.below(len.min(72) - HEADER),
        len => HEADER + rng.below(len - HEADER),
    };
    let old = data[at];
    let bit = 1 << rng.below(8);
    data[at] = *rng.pick(&[
        0,
        1,
        0xff,
        old ^ bit,
        old ^ 0x80,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old.wrapping_add(8),
        old.wrapping_sub(8),
    ]);
    // A message has the length that its header says.
    let len = usize::from(u16::from_be_bytes([data[2], data[3]]));
    data.resize(len.max(HEADER), 0);
    let len = (data.len() as u16).to_be_bytes();
    data[2..4].copy_from_slice(&len);
    data
}

/// What a program prints for each message, and its exit status.
fn printed(sandbox: &Sandbox, program: &[&str], count: usize) -> (Vec<String>, Option<i32>) {
    let args = ["ovs-ofctl", "-vconsole:off", "ofp-parse", "mutations.bin"];
    let words: Vec<String> = program.iter().chain(&args).map(|word| (*word).to_owned()).collect();
    let done = try_run_in(sandbox.dir(), &words, &sandbox.env(), Stdio::null());
    let parts: Vec<String> = done.stdout.split(MARK).map(str::to_owned).collect();
    assert_eq!(parts.len(), count + 1, "{words:?}: {}", done.stderr);
    (parts, done.status)
}

/// How the message behind each mutation is printed.
const MARK: &str = "OFPT_BARRIER_REPLY (xid=0x7fffffff):\n";
const MARKING: [u8; 8] = [1, 19, 0, 8, 0x7f, 0xff, 0xff, 0xff];

#[test]
fn messages_with_a_wrong_byte_are_printed_as_open_vswitch_prints_them() {
    skip!(unless "ovs-ofctl");
    let soak: usize = std::env::var("OXVS_SOAK")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let lines = include_str!("ofctl_messages.txt").lines();
    let messages = lines.map(|line| from_hex(line.strip_prefix("cut ").unwrap_or(line)));
    let mut rng = Rng::new(SEED);
    let (mut mutations, mut file) = (Vec::new(), Vec::new());
    for message in messages {
        for _ in 0..EACH * soak {
            let mutation = mutation(&mut rng, &message);
            file.extend_from_slice(&mutation);
            file.extend_from_slice(&MARKING);
            mutations.push(mutation);
        }
    }
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("mutations.bin"), &file).expect("mutations.bin");
    let (theirs, status) = printed(&sandbox, &[], mutations.len());
    let ours = printed(&sandbox, &[&binary().display().to_string()], mutations.len());
    assert_eq!(ours.1, status);

    // By the first lines of both, so that one cause shows once.
    let mut differences: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut count = 0;
    for ((mutation, theirs), ours) in mutations.iter().zip(&theirs).zip(&ours.0) {
        if theirs != ours {
            count += 1;
            let line = |text: &str| {
                let other = text.lines().zip(theirs.lines().zip(ours.lines()));
                let first = other.filter(|(_, (a, b))| a != b).map(|(line, _)| line).next();
                first.unwrap_or("(nothing)").to_owned()
            };
            let cause = format!("-{}\n+{}", line(theirs), line(ours));
            differences.entry(cause).or_insert((0, to_hex(mutation))).0 += 1;
        }
    }
    println!("{count} of {} mutations are printed otherwise", mutations.len());
    let mut causes: Vec<_> = differences.iter().collect();
    causes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let causes: Vec<String> = causes
        .iter()
        .map(|(cause, (count, hex))| format!("{count} times, as {hex}\n{cause}\n"))
        .collect();
    assert!(
        count * 1000 <= MAY_DIFFER * mutations.len(),
        "{count} of {} mutations:\n{}",
        mutations.len(),
        causes.join("\n")
    );
}
