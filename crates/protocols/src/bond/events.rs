//! What happens to a bond, and how Open vSwitch logs it.

use core::time::Duration;

/// What has happened to a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member's link has changed.
    Link {
        /// The member.
        member: String,
        /// Whether it is up.
        up: bool,
    },
    /// A member's link has changed back before its delay was over.
    Kept {
        /// The member.
        member: String,
        /// Whether it stays enabled.
        enabled: bool,
    },
    /// A delay begins.
    Delay {
        /// The member.
        member: String,
        /// Whether its link is up.
        up: bool,
        /// The delay.
        delay: Duration,
    },
    /// A member is enabled or disabled.
    Enabled {
        /// The member.
        member: String,
        /// Whether it is enabled.
        enabled: bool,
    },
    /// Another member is active.
    Active {
        /// The member.
        member: String,
        /// What is left of its `updelay`, which is skipped because no other member is enabled.
        skipped: Option<Duration>,
    },
    /// No member is enabled.
    AllDisabled,
    /// Load has moved.
    Shift {
        /// The bucket.
        bucket: u8,
        /// Its load in bytes.
        load: u64,
        /// The member that it moved from, with its load now.
        from: (String, u64),
        /// The member that it moved to, with its load now.
        to: (String, u64),
    },
}

impl Event {
    /// The event in the log of a bond of this name.
    pub fn text(&self, bond: &str) -> String {
        let state = |up: bool| if up { "up" } else { "down" };
        let ability = |enabled: bool| if enabled { "enabled" } else { "disabled" };
        match self {
            Event::Link { member, up } => format!("member {member}: link state {}", state(*up)),
            Event::Kept { member, enabled } => {
                format!("member {member}: will not be {}", ability(!*enabled))
            }
            Event::Delay { member, up, delay } => format!(
                "member {member}: will be {} if it stays {} for {} ms",
                ability(*up),
                state(*up),
                delay.as_millis()
            ),
            Event::Enabled { member, enabled } => format!("member {member}: {}", ability(*enabled)),
            Event::Active { member, skipped: None } => format!("bond {bond}: active member is now {member}"),
            Event::Active {
                member,
                skipped: Some(left),
            } => format!(
                "bond {bond}: active member is now {member}, skipping remaining {} ms updelay (since no other interface was up)",
                left.as_millis()
            ),
            Event::AllDisabled => format!("bond {bond}: all members disabled"),
            Event::Shift { bucket, load, from, to } => format!(
                "bond {bond}: shift {}kB of load (with hash {bucket}) from {} to {} (now carrying {}kB and {}kB load, respectively)",
                load / 1024,
                from.0,
                to.0,
                from.1 / 1024,
                to.1 / 1024
            ),
        }
    }
}
