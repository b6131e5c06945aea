//! Tunnels with IPsec: no unencrypted packet of them leaves or enters by the host's stack.
//!
//! A daemon for IKE, not the switch, installs the policies that encrypt. For each other end of a
//! tunnel the switch installs policies that block, outward and inward, with a larger number of
//! priority: the kernel applies the one with the smallest. So only what the daemon's policies
//! encrypt passes, also before the daemon has installed them and after it has removed them. A third
//! policy keeps ICMP errors that quote decrypted packets from leaving. A table of the kernel's
//! [firewall](firewall) has the same rules, for the time between the removal of all policies by
//! somebody else and their return.
//!
//! Policies outlive the process, so a killed switch leaves no gap. Their priority names their
//! owner: the upper half says that they are oxvs's, the lower half is a hash of its run directory.
//! The next process with that directory finds them by it.

mod firewall;

use crate::netlink::xfrm;
use crate::netlink::{Netlink, parse};
use firewall::Firewall;
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tunnel::vport::IpsecPeer;

/// The upper half of the priorities: behind those of any IKE daemon.
const PRIORITY: u32 = 0x6f78_0000;

/// The policies that block unencrypted packets of tunnels, in the network namespace of the thread
/// that opened it.
pub struct IpsecBlocks {
    requests: Netlink,
    events: Netlink,
    firewall: io::Result<Firewall>,
    /// Says when either has events.
    any_event: OwnedFd,
    priority: u32,
}

/// What [`IpsecBlocks::add`] did.
#[derive(Debug, Default)]
pub struct Blocked {
    /// The other ends whose unencrypted packets were not blocked before.
    pub added: BTreeSet<IpsecPeer>,
    /// The other ends whose unencrypted packets cannot be blocked, and why.
    pub failed: BTreeMap<IpsecPeer, io::Error>,
    /// Why the firewall does not block them too.
    pub firewall_error: Option<io::Error>,
}

impl IpsecBlocks {
    /// For the process with this run directory.
    ///
    /// # Errors
    /// The kernel's; `EPROTONOSUPPORT` if it has no IPsec.
    pub fn open(rundir: &Path) -> io::Result<IpsecBlocks> {
        let priority = priority(rundir);
        let events = xfrm::subscribe()?;
        let firewall = Firewall::open(priority & 0xffff);
        let any_event = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [events.as_fd()].into_iter().chain(firewall.iter().map(Firewall::fd)) {
            epoll::add(&any_event, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(IpsecBlocks {
            requests: xfrm::open()?,
            events,
            firewall,
            any_event,
            priority,
        })
    }

    /// Blocks unencrypted packets to and from these other ends.
    ///
    /// # Errors
    /// The kernel's; what was blocked before stays blocked.
    pub fn add(&mut self, peers: &BTreeSet<IpsecPeer>) -> io::Result<Blocked> {
        let mut done = Blocked::default();
        if peers.is_empty() {
            return Ok(done);
        }
        done.firewall_error = match &mut self.firewall {
            Ok(firewall) => firewall.add(peers).err(),
            Err(error) => Some(io::Error::new(error.kind(), format!("the kernel's firewall: {error}"))),
        };
        let present = xfrm::blocking(&mut self.requests, self.priority)?;
        let mut present: BTreeSet<_> = present.iter().map(|own| (own.direction, own.selector)).collect();
        for peer in peers {
            for (direction, selector) in xfrm::selectors(peer) {
                // Several tunnels with one other end share the policy about errors.
                if present.contains(&(direction as u8, selector)) {
                    continue;
                }
                let ask = xfrm::block(&selector, direction, self.priority);
                match self.requests.request(ask) {
                    Ok(()) => {
                        present.insert((direction as u8, selector));
                        done.added.insert(*peer)
                    }
                    Err(error) => done.failed.insert(*peer, error).is_none(),
                };
            }
        }
        Ok(done)
    }

    /// Blocks only packets to and from these other ends: removes all other policies of this owner,
    /// also of processes before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep(&mut self, peers: &BTreeSet<IpsecPeer>) -> io::Result<()> {
        let all = peers.iter().flat_map(xfrm::selectors);
        let kept: BTreeSet<_> = all.map(|(direction, selector)| (direction as u8, selector)).collect();
        let present = xfrm::blocking(&mut self.requests, self.priority)?;
        let firewall = match &mut self.firewall {
            Ok(firewall) if !firewall.is_there() => Ok(()),
            Ok(firewall) if peers.is_empty() => firewall.remove(),
            Ok(firewall) => firewall.set(peers),
            Err(_) => Ok(()),
        };
        for policy in present {
            if !kept.contains(&(policy.direction, policy.selector)) {
                match self.requests.request(xfrm::unblock(&policy)) {
                    Err(error) if Errno::from_io_error(&error) != Some(Errno::NOENT) => return Err(error),
                    _ => {}
                }
            }
        }
        firewall
    }

    /// Readable when policies may have gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.any_event.as_fd()
    }

    /// How many packets the kernel has dropped in its network namespace because of policies, by
    /// cause: those of tunnels and all others, and those that the firewall dropped instead of a
    /// policy. `None` if it does not count them.
    pub fn blocked_by_kernel(&self) -> Option<Vec<(&'static str, u64)>> {
        let mut counted = count(&std::fs::read_to_string("/proc/thread-self/net/xfrm_stat").ok()?);
        let [received, sent] = self.firewall.as_ref().map(Firewall::dropped).unwrap_or_default();
        for (name, packets) in &mut counted {
            *packets += match *name {
                "ipsec_in_blocked" => received,
                "ipsec_out_blocked" => sent,
                _ => 0,
            };
        }
        Some(counted)
    }

    /// Whether policies may have gone since the last call. Never waits.
    pub fn may_have_lost(&mut self) -> bool {
        let mut lost = self.firewall.as_mut().is_ok_and(Firewall::may_be_gone);
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match self.events.receive(&mut buffer) {
                Ok(n @ 1..) => lost |= parse(&buffer[..n]).any(|part| xfrm::is_loss(part.kind)),
                // The kernel dropped notifications.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => lost = true,
                Ok(0) | Err(_) => return lost,
            }
        }
    }
}

/// Whether the kernel has ESP. It loads the module if that is missing.
///
/// # Errors
/// Why it has not.
pub fn probe_esp(ipv6: bool) -> io::Result<()> {
    match xfrm::open()?.request(xfrm::without_cipher(ipv6)) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INVAL) => Err(error),
        _ => Ok(()),
    }
}

/// Names of the kernel's counters (`Documentation/networking/xfrm_proc.rst`), and ours.
const COUNTERS: [(&str, &str); 5] = [
    ("XfrmInPolBlock", "ipsec_in_blocked"),
    ("XfrmInTmplMismatch", "ipsec_in_not_encrypted"),
    ("XfrmInNoStates", "ipsec_in_no_state"),
    ("XfrmOutPolBlock", "ipsec_out_blocked"),
    ("XfrmOutNoStates", "ipsec_out_no_state"),
];

fn count(text: &str) -> Vec<(&'static str, u64)> {
    let counter = |line: &str| {
        let (name, count) = line.split_once(char::is_whitespace)?;
        let (_, own) = COUNTERS.iter().find(|(kernels, _)| *kernels == name)?;
        Some((*own, count.trim().parse().ok()?))
    };
    text.lines().filter_map(counter).collect()
}

fn priority(rundir: &Path) -> u32 {
    // FNV-1a, folded to 16 bits.
    let bytes = rundir.as_os_str().as_bytes().iter();
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    PRIORITY | (hash >> 16 ^ hash & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_ours_and_differs_between_run_directories() {
        let one = priority(Path::new("/var/run/openvswitch"));
        let other = priority(Path::new("/tmp/other"));
        assert_ne!(one, other);
        assert_eq!((one & 0xffff_0000, other & 0xffff_0000), (PRIORITY, PRIORITY));
    }

    #[test]
    fn the_kernels_counters_are_read_by_name() {
        let text = "XfrmInError             \t1\nXfrmInPolBlock          \t7\nXfrmOutNoStates         \t9\nXfrmOut\n";
        assert_eq!(count(text), [("ipsec_in_blocked", 7), ("ipsec_out_no_state", 9)]);
    }
}
