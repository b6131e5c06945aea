//! A switch's messages to controllers: packet-ins and removed rules.

use std::path::PathBuf;
use testkit::random::MARK;
use testkit::{Daemon, Vswitch};

/// `ovs-ofctl monitor` on the bridge.
pub(super) struct Monitor {
    _daemon: Daemon,
    path: PathBuf,
    /// Characters of its output already read.
    seen: usize,
}

impl Monitor {
    /// Starts to listen with packet-in format `form`; `name` is used once.
    pub(super) fn start(switch: &Vswitch, name: &str, version: &str, form: &str) -> Monitor {
        let words = ["ovs-ofctl", "-O", version, "-P", form, "-m", "monitor", "br0", "65535"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        if version == "OpenFlow10" {
            words.push("invalid_ttl".to_owned());
        }
        Monitor {
            _daemon: Daemon::start(name, &words, &switch.sandbox),
            path: switch.sandbox.path(&format!("{name}.out")),
            seen: 0,
        }
    }

    /// The messages since the last call without marks, and the number of marks.
    pub(super) fn take(&mut self) -> (Vec<String>, usize) {
        let all = std::fs::read_to_string(&self.path).unwrap_or_default();
        let text = &all[self.seen..];
        let starts: Vec<usize> = text
            .match_indices('\n')
            .map(|(at, _)| at + 1)
            .chain([0])
            .filter(|at| {
                ["NXT_", "OFPT_", "OFPST_"]
                    .iter()
                    .any(|word| text[*at..].starts_with(word))
            })
            .collect();
        let mut starts = starts;
        starts.sort_unstable();
        let (mut told, mut marks) = (Vec::new(), 0);
        for (at, start) in starts.iter().enumerate() {
            let message = &text[*start..starts.get(at + 1).copied().unwrap_or(text.len())];
            let mark = message.contains(&format!("dl_type=0x{MARK:04x}"));
            // The last message may be incomplete, except a mark, which ends in this line.
            let last = message.lines().last().unwrap_or_default();
            let whole = match mark {
                true => last.starts_with("00000030") && message.ends_with('\n'),
                false => at + 1 < starts.len() || message.contains("FLOW_REMOVED") && message.ends_with('\n'),
            };
            if !whole {
                break;
            }
            self.seen += message.len();
            if mark {
                marks += 1;
            } else if message.contains("PACKET_IN") || message.contains("FLOW_REMOVED") {
                told.push(still(message));
            }
        }
        (told, marks)
    }
}

/// A message without parts that depend on the time, and without the action set's output, which Open
/// vSwitch does not send.
fn still(message: &str) -> String {
    let words = message.split(' ');
    let words = words.filter(|word| {
        !["(xid=", "duration", "idle0", "idle1", "idle2"]
            .iter()
            .any(|w| word.starts_with(w))
    });
    let words = words.map(|word| match word.split_once(',') {
        Some((set, rest)) if set.starts_with("actset_output=") => rest,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}
