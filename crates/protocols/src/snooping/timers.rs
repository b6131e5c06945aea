//! Intervals, by the names of RFC 3376 §8 and RFC 3810 §9.

use std::time::Duration;

/// How long a membership lasts without a report: the default and the legal values of
/// `mcast-snooping-aging-time`.
pub const AGING: (Duration, Duration, Duration) = (
    Duration::from_secs(300),
    Duration::from_secs(15),
    Duration::from_secs(3600),
);
/// How long a port counts as one of a router after a query, as in Open vSwitch.
pub(super) const ROUTER: Duration = Duration::from_secs(180);
/// Last member query time: [`LAST_MEMBER_QUERIES`] intervals of 1 s each.
pub(super) const LAST_MEMBER: Duration = Duration::from_secs(2);
/// The last member query count.
pub(super) const LAST_MEMBER_QUERIES: u32 = 2;
/// The unsolicited report interval: the longest time between two reports of a change.
pub(super) const UNSOLICITED: Duration = Duration::from_secs(1);
/// The older version querier present timeout: twice the default query interval and a response.
pub(super) const OLDER_QUERIER: Duration = Duration::from_secs(260);
/// How often the own querier asks: the default and the legal values.
pub const QUERY_INTERVAL: (Duration, Duration, Duration) = (
    Duration::from_secs(125),
    Duration::from_secs(10),
    Duration::from_secs(3600),
);
/// How long hosts may take to answer.
pub(super) const RESPONSE: Duration = Duration::from_secs(10);
/// The robustness variable.
pub(super) const ROBUSTNESS: u32 = 2;
/// Queries that a querier sends at its start, four times as often as later ones.
pub(super) const STARTUP_QUERIES: u8 = 2;
