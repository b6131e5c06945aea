//! Tunnels with IPsec: which may forward, and why others may not.

use netdev::ipsec::{Blocked, IpsecBlocks, probe_esp};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tunnel::vport::IpsecPeer;

/// How long a missing ESP stays missing: asking for it makes the kernel look for a module.
const AGAIN: Duration = Duration::from_secs(10);

/// Policies of the kernel that block unencrypted packets of tunnels.
#[derive(Default)]
pub(crate) struct Ipsec {
    /// Open once there was a tunnel with IPsec.
    blocks: Option<IpsecBlocks>,
    /// The other ends whose policies stayed last; `None` while those of a process before may be
    /// there.
    kept: Option<BTreeSet<IpsecPeer>>,
    /// Why the kernel's firewall does not stand in for policies that others have removed, as last
    /// logged.
    firewall_error: Option<String>,
    /// Whether there is ESP over IPv4 and over IPv6, and when that was asked.
    esp: BTreeMap<bool, (Instant, Result<(), String>)>,
}

/// What became of the tunnels' other ends.
#[derive(Default)]
pub(crate) struct Secured {
    /// The kernel exchanges no unencrypted packet with these.
    pub(crate) encrypted: BTreeSet<IpsecPeer>,
    /// Unencrypted packets of these were not blocked before.
    pub(crate) added: BTreeSet<IpsecPeer>,
    /// Why packets of these cannot pass.
    pub(crate) errors: BTreeMap<IpsecPeer, String>,
}

impl Ipsec {
    /// Blocks unencrypted packets to and from these.
    pub(crate) fn secure(&mut self, peers: &BTreeSet<IpsecPeer>) -> Secured {
        let mut secured = Secured::default();
        if peers.is_empty() {
            return secured;
        }
        let Blocked {
            added,
            failed,
            firewall_error,
        } = match self.open().and_then(|blocks| blocks.add(peers)) {
            Ok(blocked) => blocked,
            Err(error) => {
                let text = format!("IPsec: the kernel has no policies ({error}): all packets are dropped");
                secured.errors = peers.iter().map(|peer| (*peer, text.clone())).collect();
                return secured;
            }
        };
        secured.added = added;
        self.warn_once(firewall_error);
        for peer in peers {
            let error = match failed.get(peer) {
                Some(error) => Some(format!("IPsec: cannot block unencrypted packets ({error})")),
                None => {
                    secured.encrypted.insert(*peer);
                    self.esp(peer.address.is_ipv6()).err()
                }
            };
            let dropped = |error| format!("{error}: all packets are dropped");
            secured.errors.extend(error.map(|error| (*peer, dropped(error))));
        }
        secured
    }

    /// Lets unencrypted packets to and from all others pass again.
    pub(crate) fn release_others(&mut self, peers: &BTreeSet<IpsecPeer>) {
        if self.kept.as_ref() == Some(peers) {
            return;
        }
        let Ok(blocks) = self.open() else {
            // The kernel has no policies.
            return;
        };
        let kept = blocks.keep(peers);
        let is_first = self.kept.replace(peers.clone()).is_none();
        if peers.is_empty() && is_first {
            // Without a tunnel with IPsec an error matters to nobody.
            self.blocks = None;
        } else if let Err(error) = kept {
            tracing::warn!(target: "tunnel", "cannot remove policies of IPsec: {error}");
            self.kept = None;
        }
    }

    /// Becomes readable when policies may have gone; `None` while there were none.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.blocks.as_ref().map(IpsecBlocks::fd)
    }

    /// Whether policies may have gone since the last call.
    pub(crate) fn may_have_lost(&mut self) -> bool {
        self.blocks.as_mut().is_some_and(IpsecBlocks::may_have_lost)
    }

    /// What the kernel has dropped, by cause; nothing while there were no policies.
    pub(crate) fn blocked_by_kernel(&self) -> Vec<(&'static str, u64)> {
        let counted = self.blocks.as_ref().and_then(IpsecBlocks::blocked_by_kernel);
        counted.unwrap_or_default()
    }

    fn warn_once(&mut self, error: Option<io::Error>) {
        let error = error.map(|error| error.to_string());
        if let Some(text) = error.as_ref().filter(|_| error != self.firewall_error) {
            tracing::warn!(
                target: "tunnel",
                "{text}: packets of tunnels with IPsec can pass unencrypted while other programs remove policies"
            );
        }
        self.firewall_error = error;
    }

    fn open(&mut self) -> io::Result<&mut IpsecBlocks> {
        let blocks = match self.blocks.take() {
            Some(blocks) => blocks,
            None => IpsecBlocks::open(&mgmt::paths::rundir())?,
        };
        Ok(self.blocks.insert(blocks))
    }

    fn esp(&mut self, ipv6: bool) -> Result<(), String> {
        let now = Instant::now();
        if let Some((asked, known)) = self.esp.get(&ipv6)
            && (known.is_ok() || now.duration_since(*asked) < AGAIN)
        {
            return known.clone();
        }
        let version = if ipv6 { "IPv6" } else { "IPv4" };
        let found = probe_esp(ipv6).map_err(|error| format!("IPsec: the kernel has no ESP over {version} ({error})"));
        self.esp.insert(ipv6, (now, found.clone()));
        found
    }
}
