//! Timeouts of connections, by policy and state.

use crate::sparse::Sparse;
use nanos::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A state with a timeout of its own. The comment has the key of `CT_Timeout_Policy:timeouts`; SCTP
/// has none there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeout {
    /// `tcp_syn_sent`
    TcpSynSent,
    /// `tcp_syn_recv`
    TcpSynRecv,
    /// `tcp_established`
    TcpEstablished,
    /// `tcp_fin_wait`: one side has closed.
    TcpFinWait,
    /// `tcp_time_wait`: both sides have closed.
    TcpTimeWait,
    /// `tcp_close`: both sides have acknowledged that, or there was a reset.
    TcpClose,
    /// `udp_first`; also of protocols without a machine of their own.
    UdpFirst,
    /// `udp_single`: several packets in one direction.
    UdpSingle,
    /// `udp_multiple`: packets in both directions.
    UdpMultiple,
    /// `icmp_first`
    IcmpFirst,
    /// `icmp_reply`
    IcmpReply,
    /// The association is over.
    SctpClosed,
    /// After INIT.
    SctpCookieWait,
    /// After COOKIE ECHO.
    SctpCookieEchoed,
    /// After COOKIE ACK.
    SctpEstablished,
    /// After SHUTDOWN.
    SctpShutdown,
    /// After SHUTDOWN ACK.
    SctpShutdownAck,
    /// Heartbeats on a path of a multihomed association.
    SctpHeartbeat,
}

/// Number of [`Timeout`]s.
const COUNT: usize = 18;

impl Timeout {
    /// All of them, with the key in the database and the seconds by default, which are Open
    /// vSwitch's (SCTP: Linux').
    pub const ALL: [(Timeout, Option<&'static str>, u32); COUNT] = [
        (Timeout::TcpSynSent, Some("tcp_syn_sent"), 30),
        (Timeout::TcpSynRecv, Some("tcp_syn_recv"), 30),
        (Timeout::TcpEstablished, Some("tcp_established"), 24 * 60 * 60),
        (Timeout::TcpFinWait, Some("tcp_fin_wait"), 15 * 60),
        (Timeout::TcpTimeWait, Some("tcp_time_wait"), 45),
        (Timeout::TcpClose, Some("tcp_close"), 30),
        (Timeout::UdpFirst, Some("udp_first"), 60),
        (Timeout::UdpSingle, Some("udp_single"), 60),
        (Timeout::UdpMultiple, Some("udp_multiple"), 30),
        (Timeout::IcmpFirst, Some("icmp_first"), 60),
        (Timeout::IcmpReply, Some("icmp_reply"), 30),
        (Timeout::SctpClosed, None, 10),
        (Timeout::SctpCookieWait, None, 3),
        (Timeout::SctpCookieEchoed, None, 3),
        (Timeout::SctpEstablished, None, 210),
        (Timeout::SctpShutdown, None, 3),
        (Timeout::SctpShutdownAck, None, 3),
        (Timeout::SctpHeartbeat, None, 30),
    ];

    /// The timeout with this key in `CT_Timeout_Policy:timeouts`; `None` for keys that this machine
    /// has no state for (`tcp_close_wait`, for example), which Open vSwitch's userspace datapath
    /// ignores too.
    pub fn by_key(key: &str) -> Option<Timeout> {
        let found = Timeout::ALL.iter().find(|(_, own, _)| *own == Some(key))?;
        Some(found.0)
    }
}

/// A timeout policy's number. 0 is the default policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u16);

/// The seconds of one policy.
struct Policy {
    seconds: [AtomicU32; COUNT],
    exists: AtomicBool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            seconds: Timeout::ALL.map(|(_, _, seconds)| AtomicU32::new(seconds)),
            exists: AtomicBool::new(false),
        }
    }
}

/// All policies.
pub(crate) struct Policies(Sparse<Policy>);

impl Policies {
    pub(crate) fn new() -> Policies {
        let policies = Policies(Sparse::new());
        policies.set(PolicyId(0), &[]);
        policies
    }

    /// When a connection in this state times out. A policy that does not exist is the default one.
    #[inline]
    pub(crate) fn deadline(&self, policy: u16, timeout: Timeout, now: Nanos) -> u64 {
        let own = self.0.get(policy).or_else(|| self.0.get(0));
        let seconds = own.map_or(0, |policy| policy.seconds[timeout as usize].load(Ordering::Relaxed));
        (now + Duration::from_secs(u64::from(seconds))).0
    }

    /// Makes or changes a policy: these timeouts, and the default for all others.
    pub(crate) fn set(&self, id: PolicyId, timeouts: &[(Timeout, u32)]) {
        let policy = self.0.get_or_make(id.0);
        for (timeout, _, default) in Timeout::ALL {
            let own = timeouts.iter().rev().find(|(own, _)| *own == timeout);
            policy.seconds[timeout as usize].store(own.map_or(default, |own| own.1), Ordering::Relaxed);
        }
        policy.exists.store(true, Ordering::Relaxed);
    }

    /// Removes a policy; false if it does not exist. Its connections get the default timeouts with
    /// their next packet. The default policy gets its default values.
    pub(crate) fn remove(&self, id: PolicyId) -> bool {
        let existed = self.0.get(id.0).is_some_and(|p| p.exists.load(Ordering::Relaxed));
        if existed {
            self.set(id, &[]);
            self.0.get_or_make(id.0).exists.store(id.0 == 0, Ordering::Relaxed);
        }
        existed
    }

    /// The seconds of a policy; `None` if it does not exist.
    pub(crate) fn get(&self, id: PolicyId) -> Option<Vec<(Timeout, u32)>> {
        let policy = self.0.get(id.0).filter(|p| p.exists.load(Ordering::Relaxed))?;
        let seconds = |timeout: Timeout| policy.seconds[timeout as usize].load(Ordering::Relaxed);
        Some(
            Timeout::ALL
                .iter()
                .map(|(timeout, ..)| (*timeout, seconds(*timeout)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_numbered_in_their_order() {
        for (n, (timeout, key, _)) in Timeout::ALL.iter().enumerate() {
            assert_eq!(*timeout as usize, n);
            assert_eq!(key.map(Timeout::by_key).unwrap_or(Some(*timeout)), Some(*timeout));
        }
    }

    #[test]
    fn a_policy_changes_what_it_names_and_ends_with_its_removal() {
        let policies = Policies::new();
        let deadline = |policy, timeout| policies.deadline(policy, timeout, Nanos::ZERO) / 1_000_000_000;
        policies.set(PolicyId(7), &[(Timeout::UdpFirst, 5)]);
        assert_eq!(
            (deadline(7, Timeout::UdpFirst), deadline(7, Timeout::IcmpFirst)),
            (5, 60)
        );
        assert_eq!(deadline(40_000, Timeout::UdpFirst), 60);
        assert!(policies.remove(PolicyId(7)) && !policies.remove(PolicyId(7)));
        assert_eq!(deadline(7, Timeout::UdpFirst), 60);
        assert_eq!(policies.get(PolicyId(7)), None);
        assert_eq!(policies.get(PolicyId(0)).map(|all| all.len()), Some(COUNT));
    }
}
