//! Devices that another process holds, and when each is retried.

use netdev::Spec;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first pause: an ending process releases its devices within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The pause doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A start waits for devices up to this pause, 2.5 s in all.
const SOON: Duration = Duration::from_millis(1280);

/// The devices to try again, by name.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    devices: BTreeMap<String, Retry>,
}

#[derive(Debug)]
struct Retry {
    spec: Spec,
    /// Why the last attempt failed.
    reason: String,
    due: Instant,
    pause: Duration,
}

impl Retries {
    /// Records a failed attempt at `now`. Returns whether the reason changed.
    pub(crate) fn failed(&mut self, name: &str, spec: &Spec, reason: &str, now: Instant) -> bool {
        let Some(retry) = self.devices.get_mut(name).filter(|retry| retry.spec == *spec) else {
            let retry = Retry {
                spec: spec.clone(),
                reason: reason.to_owned(),
                due: now + FIRST_PAUSE,
                pause: FIRST_PAUSE,
            };
            self.devices.insert(name.to_owned(), retry);
            return true;
        };
        // A configuration change causes attempts before the device is due. They do not delay the
        // next one.
        if now >= retry.due {
            retry.pause = (retry.pause * 2).min(LONGEST_PAUSE);
            retry.due = now + retry.pause;
        }
        let changed = retry.reason != reason;
        reason.clone_into(&mut retry.reason);
        changed
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, name: &str) {
        self.devices.remove(name);
    }

    /// Forgets the devices for which `wanted` does not hold.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&str, &Spec) -> bool) {
        self.devices.retain(|name, retry| wanted(name, &retry.spec));
    }

    /// When the next device is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.devices.values().map(|retry| retry.due).min()
    }

    /// The devices that are due at `now`.
    pub(crate) fn due(&self, now: Instant) -> Vec<(String, Spec)> {
        let due = self.devices.iter().filter(|(_, retry)| retry.due <= now);
        due.map(|(name, retry)| (name.clone(), retry.spec.clone())).collect()
    }

    /// Whether a device is retried soon.
    pub(crate) fn is_soon(&self) -> bool {
        self.devices.values().any(|retry| retry.pause <= SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_tried_again_after_pauses_that_double_up_to_ten_seconds() {
        let spec = Spec::Tap { name: "t".to_owned() };
        let mut retries = Retries::default();
        let begun = Instant::now();
        assert!(retries.failed("t", &spec, "busy", begun));
        assert!(retries.due(begun).is_empty());
        let mut pauses = Vec::new();
        let mut now = begun;
        for _ in 0..12 {
            let next = retries.next().unwrap();
            pauses.push((next - now).as_millis());
            // Attempts in between do not delay the next one.
            assert!(!retries.failed("t", &spec, "busy", now));
            now = next;
            assert_eq!(retries.due(now).len(), 1);
            assert_eq!(retries.is_soon(), *pauses.last().unwrap() <= 1280);
            assert!(!retries.failed("t", &spec, "busy", now));
        }
        assert_eq!(pauses[..4], [10, 20, 40, 80]);
        assert_eq!(pauses[11], 10_000);
        assert!(retries.failed("t", &spec, "vanished", now));
        assert!(!retries.failed("t", &spec, "vanished", now));
        retries.keep(|_, spec| !matches!(spec, Spec::Tap { .. }));
        assert_eq!(retries.next(), None);
    }
}
