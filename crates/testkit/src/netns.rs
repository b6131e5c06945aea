//! Network namespaces and the links between them.

use crate::command::{Done, run, try_run};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where `ip netns` keeps the namespaces' names.
const NAMES: &str = "/run/netns";

/// A network namespace, deleted with everything in it when its value is dropped.
///
/// Its loopback is up. IPv6 is off, so that nothing is sent that a test did not send.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes one, named `oxvs-PID-N-LABEL`. Removes the namespaces of processes that are gone
    /// first.
    ///
    /// # Panics
    /// If it cannot be made: without root, see [`skip!`](crate::skip).
    #[track_caller]
    pub fn new(label: &str) -> Netns {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        SWEEP.call_once(remove_stale);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("oxvs-{}-{n}-{label}", std::process::id());
        run(&["ip", "netns", "add", &name]);
        let ns = Netns { name };
        ns.ip("link set lo up");
        ns.disable_ipv6();
        ns
    }

    /// Its name, for `ip netns` and `ip -n`.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn disable_ipv6(&self) {
        let script =
            "for f in all default; do f=/proc/sys/net/ipv6/conf/$f/disable_ipv6; [ ! -e $f ] || echo 1 > $f; done";
        self.run(&["sh", "-c", script]);
    }

    /// Makes a veth pair: `here` in this namespace, `there` in `other`, both up.
    #[track_caller]
    pub fn veth(&self, here: &str, other: &Netns, there: &str) {
        self.ip(&format!(
            "link add {here} type veth peer name {there} netns {}",
            other.name
        ));
        self.ip(&format!("link set {here} up"));
        other.ip(&format!("link set {there} up"));
    }

    /// Gives `device` an address with its prefix length, `10.0.0.1/24`.
    #[track_caller]
    pub fn address(&self, device: &str, address: &str) {
        let dad = if address.contains(':') { " nodad" } else { "" };
        self.ip(&format!("addr add {address} dev {device}{dad}"));
    }

    /// The MAC address of a device, as `ip` prints it.
    #[track_caller]
    pub fn mac_of(&self, device: &str) -> String {
        let link = self.ip(&format!("link show {device}"));
        let (_, rest) = link
            .split_once("link/ether ")
            .unwrap_or_else(|| panic!("{link}: no address"));
        rest.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Runs `ip` in this namespace with the words of `args`.
    #[track_caller]
    pub fn ip(&self, args: &str) -> String {
        let mut command = vec!["ip", "-n", &self.name];
        command.extend(args.split(' '));
        run(&command)
    }

    /// Runs a command in this namespace, which must succeed, and gives its standard output.
    #[track_caller]
    pub fn run(&self, command: &[&str]) -> String {
        self.try_run(command, &[]).expect_ok()
    }

    /// Runs a command in this namespace with `env` added to its environment, whatever its exit
    /// status.
    #[track_caller]
    pub fn try_run(&self, command: &[&str], env: &[(String, String)]) -> Done {
        let mut words = self.prefix();
        words.extend(command.iter().map(|w| (*w).to_owned()));
        try_run(&words, env)
    }

    /// The words that, put before a command, run it in this namespace.
    pub fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// Runs `work` on a thread in this namespace: sockets it opens belong to the namespace wherever
    /// they are used later. (`/sys` still shows the devices of the namespace outside.)
    #[track_caller]
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = Path::new(NAMES).join(&self.name);
        let ns = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(ns.as_fd(), kind).unwrap_or_else(|e| panic!("setns: {e}"));
                work()
            });
            thread.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        delete(&self.name);
    }
}

/// Ends what runs in a namespace, then deletes it: a namespace lives on, without a name, while a
/// process is in it.
fn delete(name: &str) {
    let pids = try_run(&["ip", "netns", "pids", name], &[]).stdout;
    for pid in pids.split_whitespace() {
        // This process itself is listed while one of its threads is inside.
        if pid != std::process::id().to_string() {
            try_run(&["kill", "-KILL", pid], &[]);
        }
    }
    try_run(&["ip", "netns", "del", name], &[]);
}

fn remove_stale() {
    let Ok(names) = std::fs::read_dir(NAMES) else {
        return;
    };
    for name in names.flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        if maker(&name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            delete(&name);
        }
    }
}

/// The process that made the namespace of that name, if it is one of ours.
fn maker(name: &str) -> Option<u32> {
    let (pid, rest) = name.strip_prefix("oxvs-")?.split_once('-')?;
    let (n, _label) = rest.split_once('-')?;
    n.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn only_names_with_a_process_id_are_taken_for_a_tests_own() {
        assert_eq!(maker("oxvs-123-0-sw"), Some(123));
        assert_eq!(maker("oxvs-demo-sw"), None);
        assert_eq!(maker("oxvs-12-demo-sw"), None);
        assert_eq!(maker("blue"), None);
    }

    #[test]
    fn two_namespaces_with_a_link_reach_each_other_and_vanish_afterwards() {
        skip!(unless root, "ip", "ping");
        let a = Netns::new("a");
        let b = Netns::new("b");
        a.veth("eth0", &b, "eth0");
        a.address("eth0", "10.1.0.1/24");
        b.address("eth0", "10.1.0.2/24");
        assert!(crate::ping(&a, "10.1.0.2", 2).received > 0);
        let index = a.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        assert!(index.expect("a listing of devices").contains("eth0"));

        let name = a.name().to_owned();
        drop(a);
        assert!(!Path::new(NAMES).join(name).exists());
        // The kernel removes a namespace's devices asynchronously.
        crate::eventually("the link is gone", || {
            (!b.ip("link show").contains("eth0")).then_some(())
        });
    }
}
