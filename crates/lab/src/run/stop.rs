//! Requests to stop.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag of a requested stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked by ^C, by SIGTERM, or by a terminal that goes away. A second time ends the process at
    /// once, and `oxvs lab clean` has to clean up.
    ///
    /// # Errors
    /// The system refuses to tell of signals.
    pub(crate) fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first time the flag is not yet set when it is looked at.
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.0.clone())
                .and_then(|_| signal_hook::flag::register(signal, stop.0.clone()))
                .context("signals cannot be received")?;
        }
        Ok(stop)
    }

    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
