//! Telemetry: logs and counters of the daemons.
//!
//! - [`vlog`]: the log, written with `tracing`'s macros and controlled as users of Open vSwitch
//!   know it (`vlog/set`, `-vmodule:destination:level`).
//! - [`ratelimit`] and the `*_limited!` macros: messages that input from outside can cause.
//! - [`coverage`]: counters of events, shown by `coverage/show`.
//! - [`budget`]: a bound on the memory that all peers of a server use together.
//! - [`memory`]: what `memory/show` prints.
//! - [`version`]: the versions that `--version` prints.
//!
//! Goal: a disabled log statement costs one load and one branch. A log statement below its module's
//! level is turned off at its call site (`tracing`'s interest cache); a coverage counter is one
//! relaxed addition.

pub mod budget;
mod calendar;
pub mod coverage;
pub mod memory;
pub mod ratelimit;
pub mod version;
pub mod vlog;

#[doc(hidden)]
pub use tracing as __tracing;

/// The present moment (UTC) in a template of `strftime`; `#`s become digits of the fraction of the
/// second.
pub fn timestamp(template: &str) -> String {
    calendar::utc(calendar::since_epoch(), template)
}

/// As [`timestamp`], of a moment given in milliseconds since the epoch; earlier ones are the epoch.
pub fn timestamp_of(millis: i64, template: &str) -> String {
    let since = std::time::Duration::from_millis(millis.try_into().unwrap_or(0));
    calendar::utc(since, template)
}

/// `tracing::warn!`, limited per call site to a burst of 10 and 12 a minute after it.
///
/// ```
/// # let peer = 1;
/// telemetry::warn_limited!(target: "jsonrpc", "{peer}: bad message");
/// ```
#[macro_export]
macro_rules! warn_limited {
    ($($arg:tt)+) => { $crate::__limited!(WARN, $($arg)+) };
}

/// `tracing::error!`, limited as [`warn_limited!`].
#[macro_export]
macro_rules! error_limited {
    ($($arg:tt)+) => { $crate::__limited!(ERROR, $($arg)+) };
}

/// `tracing::info!`, limited as [`warn_limited!`].
#[macro_export]
macro_rules! info_limited {
    ($($arg:tt)+) => { $crate::__limited!(INFO, $($arg)+) };
}

/// `tracing::debug!`, limited as [`warn_limited!`].
#[macro_export]
macro_rules! debug_limited {
    ($($arg:tt)+) => { $crate::__limited!(DEBUG, $($arg)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __limited {
    ($level:ident, target: $target:expr, $($arg:tt)+) => {{
        static LIMIT: $crate::ratelimit::RateLimit = $crate::ratelimit::RateLimit::new(12, 10);
        if $crate::__tracing::enabled!(target: $target, $crate::__tracing::Level::$level) {
            if let Some(dropped) = LIMIT.admit($target) {
                if let Some(dropped) = dropped {
                    $crate::__tracing::event!(
                        target: $target, $crate::__tracing::Level::$level, "{dropped}"
                    );
                }
                $crate::__tracing::event!(
                    target: $target, $crate::__tracing::Level::$level, $($arg)+
                );
            }
        }
    }};
    ($level:ident, $($arg:tt)+) => {
        $crate::__limited!($level, target: ::core::module_path!(), $($arg)+)
    };
}
