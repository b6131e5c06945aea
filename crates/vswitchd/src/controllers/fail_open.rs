//! When a bridge of fail mode `standalone` starts to switch by itself: after no primary controller
//! has answered for three times the longest probe interval (ovs-vswitchd.conf.db(5), `fail_mode`).

use nanos::Nanos;
use std::time::Duration;

/// The state of one primary controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contact {
    /// Whether a peer is connected that has sent more than a handshake.
    pub(super) connected: bool,
    /// When a peer was last connected, or the controller was configured.
    pub(super) since: Nanos,
    pub(super) probe: Option<Duration>,
}

/// A peer that connects and requests nothing may disconnect again; after this time it counts as
/// connected.
pub(super) const TRIAL: Duration = Duration::from_secs(30);

/// The probe interval of controllers without probes.
const PROBE: Duration = Duration::from_secs(5);

/// When the bridge starts to switch by itself if nothing changes; `None`: never, because a
/// controller is connected or none is configured.
pub(super) fn due(contacts: &[Contact]) -> Option<Nanos> {
    if contacts.is_empty() || contacts.iter().any(|contact| contact.connected) {
        return None;
    }
    let last = contacts.iter().map(|contact| contact.since).max()?;
    let longest = contacts.iter().map(|contact| contact.probe.unwrap_or(PROBE)).max()?;
    Some(last + longest * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(connected: bool, since: u64, probe: u64) -> Contact {
        Contact {
            connected,
            since: Nanos::from_secs(since),
            probe: Some(Duration::from_secs(probe)).filter(|probe| !probe.is_zero()),
        }
    }

    #[test]
    fn three_times_the_longest_probe_after_the_last_contact() {
        let due = |contacts: &[Contact]| super::due(contacts).map(|due| due.0 / 1_000_000_000);
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[contact(false, 10, 5)]), Some(25));
        assert_eq!(due(&[contact(false, 10, 5), contact(false, 12, 1)]), Some(27));
        assert_eq!(due(&[contact(false, 10, 0)]), Some(25));
        assert_eq!(due(&[contact(false, 10, 5), contact(true, 0, 5)]), None);
    }
}
