//! When a bridge of fail mode `standalone` begins to switch by itself: when none of its primary
//! controllers has answered for three times the longest interval of probes
//! (ovs-vswitchd.conf.db(5), `fail_mode`).

use std::time::Duration;
use wire::Nanos;

/// How one primary controller fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contact {
    /// Whether there is a connection to somebody who means to control the bridge.
    pub(super) connected: bool,
    /// When there last was, or the controller was first asked for.
    pub(super) since: Nanos,
    pub(super) probe: Option<Duration>,
}

/// Who connects and asks for nothing may be about to hang up again; after so long it is taken to
/// stay.
pub(super) const TRIAL: Duration = Duration::from_secs(30);

/// The interval of probes where there are none.
const PROBE: Duration = Duration::from_secs(5);

/// When the bridge is to switch by itself, if nothing changes until then; `None` for never: a
/// controller is there, or none is wanted.
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
