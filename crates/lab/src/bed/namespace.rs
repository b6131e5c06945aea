//! Work in a network namespace by a thread of this process.

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Where `ip netns` keeps the namespaces' names.
pub(crate) const NAMES: &str = "/run/netns";

/// Runs `work` on a thread in a namespace: sockets it opens belong to it, and
/// `/proc/thread-self/net` is the namespace's.
///
/// # Errors
/// There is no such namespace, or this process may not enter it.
pub fn enter<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = Path::new(NAMES).join(name);
    let namespace = File::open(&path).with_context(|| format!("namespace {name}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network)
                .with_context(|| format!("namespace {name}: setns"))?;
            work()
        });
        thread
            .join()
            .map_err(|_| anyhow!("namespace {name}: the thread in it panicked"))?
    })
}
