//! The claim of a device: it belongs to one switch.
//!
//! The kernel lets any number of packet sockets receive from one device: two switches that have the
//! same port would both forward its packets. So each port claims its device by a listening socket
//! in the abstract namespace of Unix sockets, which belongs to the network namespace, as the device
//! does. The kernel releases the claim when the process ends. The name is `oxvs/port/IFINDEX`.
//!
//! Any process in the network namespace can bind such a name. If this process is root's, it ignores
//! claims by processes of other users.
//!
//! Other programs make no claims. Known programs that take a device for themselves are found by the
//! kernel's data: a bridge, a bond or Open vSwitch's kernel module by the device's master, Open
//! vSwitch's userspace datapath by its packet sockets ([`others_on`]).

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with, sockopt,
};
use rustix::process::getuid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Askers whose connections wait until the next [`Claim::askers`].
const BACKLOG: i32 = 64;

/// The claims of this process, by network namespace (its inode) and device.
static CLAIMS: Mutex<BTreeMap<(u64, u32), Weak<Claim>>> = Mutex::new(BTreeMap::new());

/// A device that belongs to this process as long as the value lives.
pub(crate) struct Claim {
    socket: OwnedFd,
    asked: Mutex<BTreeSet<u32>>,
}

impl Claim {
    /// Claims a device of the calling thread's network namespace; the claim that this process has
    /// already, if it has. `None` where a claim is not to be had because a process of another user
    /// squats on its name.
    ///
    /// # Errors
    /// `AddrInUse` where another switch has the device; the text names its process.
    pub(crate) fn take(ifindex: u32) -> io::Result<Option<Arc<Claim>>> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
        let mut claims = CLAIMS.lock();
        if let Some(claim) = claims.get(&(namespace, ifindex)).and_then(Weak::upgrade) {
            return Ok(Some(claim));
        }
        let claim = Claim::make(ifindex)?.map(Arc::new);
        if let Some(claim) = &claim {
            // Only now and then, so that opening many ports does not check all claims each time.
            if claims.len().is_power_of_two() {
                claims.retain(|_, claim| claim.strong_count() > 0);
            }
            claims.insert((namespace, ifindex), Arc::downgrade(claim));
        }
        Ok(claim)
    }

    fn make(ifindex: u32) -> io::Result<Option<Claim>> {
        let address = address(ifindex)?;
        let socket = stream()?;
        match bind(&socket, &address) {
            Ok(()) => {
                listen(&socket, BACKLOG)?;
                Ok(Some(Claim {
                    socket,
                    asked: Mutex::default(),
                }))
            }
            Err(Errno::ADDRINUSE) => {
                let asker = stream()?;
                match connect(&asker, &address) {
                    Ok(()) => {}
                    Err(Errno::AGAIN) => return Err(taken("another process")),
                    // It is given up, or just being made, this very moment.
                    Err(_) => return Err(Errno::BUSY.into()),
                }
                let owner = sockopt::socket_peercred(&asker)?;
                let pid = owner.pid.as_raw_nonzero().get().cast_unsigned();
                let squats = getuid().is_root() && !owner.uid.is_root();
                // Its own is a claim that another thread is just giving up.
                match pid == std::process::id() || squats {
                    true => Ok(None),
                    false => Err(taken(&process(pid))),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Processes that have asked for the device since the last call, and had not before.
    pub(crate) fn askers(&self) -> Vec<String> {
        let mut new = Vec::new();
        let mut asked = self.asked.lock();
        while let Ok(asker) = accept_with(&self.socket, SocketFlags::CLOEXEC) {
            let Ok(peer) = sockopt::socket_peercred(&asker) else {
                continue;
            };
            let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
            if asked.len() < 16 && asked.insert(pid) {
                new.push(process(pid));
            }
        }
        new
    }
}

/// Holds the claim of a device that no process claims, as long as the value lives; `None` if one
/// does. Unlike [`Claim::take`] it does not count as asking for the device.
pub(crate) fn if_free(ifindex: u32) -> Option<OwnedFd> {
    let socket = stream().ok()?;
    bind(&socket, &address(ifindex).ok()?).ok()?;
    Some(socket)
}

fn address(ifindex: u32) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(
        format!("oxvs/port/{ifindex}").as_bytes(),
    )?)
}

/// Open vSwitch processes that receive a device's packets. The list includes other oxvs processes.
pub(crate) fn others_on(ifindex: u32) -> Vec<String> {
    /// Opening many ports does not look at all processes each time.
    const FRESH: Duration = Duration::from_millis(200);
    static SEEN: Mutex<Option<(Instant, Receivers)>> = Mutex::new(None);
    let mut seen = SEEN.lock();
    let (_, receivers) = match seen.take() {
        Some(known) if known.0.elapsed() < FRESH => seen.insert(known),
        _ => seen.insert((Instant::now(), find_others())),
    };
    receivers
        .get(&ifindex)
        .into_iter()
        .flatten()
        .copied()
        .map(process)
        .collect()
}

/// By device, the processes of Open vSwitch that receive all that it does.
type Receivers = BTreeMap<u32, BTreeSet<u32>>;

fn find_others() -> Receivers {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_other = |pid: &u32| *pid != std::process::id() && command(*pid).starts_with("ovs-vswitchd");
    let others: Vec<u32> = numbers.filter(is_other).collect();
    let mut found = Receivers::new();
    if others.is_empty() {
        return found;
    }
    let sockets = receivers(&fs::read_to_string("/proc/net/packet").unwrap_or_default());
    for pid in others {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for target in files.filter_map(|file| fs::read_link(file.path()).ok()) {
            if let Some(device) = target.to_str().and_then(|target| sockets.get(target)) {
                found.entry(*device).or_default().insert(pid);
            }
        }
    }
    found
}

/// The devices that packet sockets receive everything from, by socket, from the text of
/// `/proc/net/packet`.
fn receivers(table: &str) -> BTreeMap<String, u32> {
    const ALL_PROTOCOLS: &str = "0003";
    let sockets = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, protocol, device, _, _, _, inode] = fields[..] else {
            return None;
        };
        let device = device.parse().ok().filter(|_| protocol == ALL_PROTOCOLS)?;
        Some((format!("socket:[{inode}]"), device))
    });
    sockets.collect()
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The error of a device that belongs to another.
pub(crate) fn taken(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, format!("{by} has it"))
}

fn process(pid: u32) -> String {
    format!("pid {pid} ({})", command(pid))
}

fn command(pid: u32) -> String {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    command.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_until_it_is_dropped() {
        // A number that no device has.
        let claim = Claim::take(u32::MAX).unwrap().unwrap();
        let again = Claim::take(u32::MAX).unwrap().unwrap();
        assert!(Arc::ptr_eq(&claim, &again));
        assert!(claim.askers().is_empty());
        drop(claim);
        assert!(Claim::make(u32::MAX).unwrap().is_none(), "the other one holds it");
        assert_eq!(again.askers().len(), 1);
        assert!(again.askers().is_empty());
        drop(again);
        assert!(Claim::make(u32::MAX).unwrap().is_some());
    }

    #[test]
    fn sockets_that_receive_all_packets_of_a_device_are_listed() {
        let table = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     00000000a 3      3    0003   7     1 0      0      4711\n\
                     00000000b 3      3    0000   7     1 0      0      4712\n\
                     00000000c 3      3    0003   8     1 0      0      4713\n\
                     garbage\n";
        let wanted = [("socket:[4711]".to_owned(), 7), ("socket:[4713]".to_owned(), 8)];
        assert_eq!(receivers(table), BTreeMap::from(wanted));
        assert!(receivers("").is_empty());
    }
}
