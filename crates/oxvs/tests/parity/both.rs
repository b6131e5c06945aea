//! Open vSwitch and oxvs with the same configuration, asked the same questions.

use crate::noise::normalise;
use crate::run::binary;
use std::time::Duration;
use testkit::{Options, Vswitch};

/// The two switches, Open vSwitch first.
pub(crate) struct Both {
    pub(crate) switches: [Vswitch; 2],
    /// A line of an answer without what chance decides.
    without_chance: fn(&str) -> String,
}

impl Both {
    pub(crate) fn start(without_chance: fn(&str) -> String) -> Both {
        let switches = [
            Vswitch::debian(Options::default()),
            Vswitch::oxvs(binary(), Options::default()),
        ];
        Both {
            switches,
            without_chance,
        }
    }

    /// Runs a command of `ovs-vsctl` with both. `{dir}` is the directory of the switch.
    pub(crate) fn vsctl(&self, command: &str) {
        for switch in &self.switches {
            switch.vsctl(&in_directory(switch, command));
        }
    }

    /// Runs a command of `ovs-appctl` with both.
    pub(crate) fn appctl(&self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        for switch in &self.switches {
            switch.appctl(&words);
        }
    }

    /// The answers to a command line of `ovs-appctl`, or of another tool if it begins with `ovs-`.
    fn answers(&self, command: &str) -> [String; 2] {
        self.switches.each_ref().map(|switch| {
            let words: Vec<&str> = command.split_whitespace().collect();
            let done = match words[0].starts_with("ovs-") {
                true => switch.tool(words[0], &words[1..]),
                false => switch.try_appctl(&words),
            };
            let out: Vec<String> = done.stdout.lines().map(self.without_chance).collect();
            let err = normalise(&done.stderr, &switch.sandbox);
            format!("{:?}\n{}\n{err}", done.status, out.join("\n"))
        })
    }

    #[track_caller]
    pub(crate) fn agree(&self, command: &str) {
        let [theirs, ours] = self.answers(command);
        assert_eq!(ours, theirs, "{command}");
    }

    /// As [`Both::agree`], for what changes soon after a change of the configuration.
    #[track_caller]
    pub(crate) fn come_to_agree(&self, command: &str) {
        self.agree_on(command, "", || std::thread::sleep(Duration::from_millis(50)));
    }

    /// Waits by `wait` until both give the same answer, and `wanted` is in it.
    #[track_caller]
    pub(crate) fn agree_on(&self, command: &str, wanted: &str, wait: impl Fn()) {
        let mut last = Default::default();
        for _ in 0..100 {
            last = self.answers(command);
            if last[0] == last[1] && last[0].contains(wanted) {
                return;
            }
            wait();
        }
        let [theirs, ours] = last;
        assert_eq!(ours, theirs, "{command}");
        panic!("{command}: no {wanted} in {ours}");
    }
}

fn in_directory(switch: &Vswitch, command: &str) -> String {
    command.replace("{dir}", &switch.sandbox.dir().display().to_string())
}
