//! Skips tests that this machine cannot run.

use std::io::Write;

/// Skips the test and prints the reason on standard error, past the test runner's capture, so that
/// a skipped test is never taken for a passed one.
///
/// `skip!("reason")` always; `skip!(unless root, "ip", "iperf3")` where not root or a tool is
/// missing; `skip!(unless "ovs-vsctl")` for tools only; `skip!(unless long)` for a test that takes
/// minutes and only `make test-long` runs.
#[macro_export]
macro_rules! skip {
    (unless root $(, $tool:expr)* $(,)?) => {
        if let Some(reason) = $crate::missing(true, &[$($tool),*]) {
            $crate::skip!("{reason}");
        }
    };
    (unless long) => {
        if $crate::Tier::of_this_run() != $crate::Tier::Long {
            $crate::skip!("takes minutes; make test-long runs it");
        }
    };
    (unless $($tool:expr),+ $(,)?) => {
        if let Some(reason) = $crate::missing(false, &[$($tool),+]) {
            $crate::skip!("{reason}");
        }
    };
    ($($reason:tt)+) => {{
        $crate::say_skipped(module_path!(), &format!($($reason)+));
        return;
    }};
}

/// Which tests a run has; the environment variable `OXVS_TESTS` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// `fast`: without those that need root, even as root.
    Fast,
    /// The variable is unset: all but the long ones.
    Usual,
    /// `long`: all.
    Long,
}

impl Tier {
    /// The tier of this run.
    ///
    /// # Panics
    ///
    /// If `OXVS_TESTS` has another value: a misspelt tier would pass without its tests.
    pub fn of_this_run() -> Self {
        match std::env::var("OXVS_TESTS").as_deref() {
            Err(_) | Ok("") => Self::Usual,
            Ok("fast") => Self::Fast,
            Ok("long") => Self::Long,
            Ok(other) => panic!("OXVS_TESTS is {other:?}; it has to be fast, long or unset"),
        }
    }
}

/// The cases of a table that this run tries: all in the long tests, otherwise the first of each
/// `n`.
pub fn one_in<T>(n: usize, cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let step = if Tier::of_this_run() == Tier::Long { 1 } else { n };
    cases.into_iter().step_by(step)
}

/// Whether this process may make namespaces and devices.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `tool` is found in the `PATH`, or in the directories of the administrator's tools.
pub fn has_tool(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(sbin)
        .any(|dir| dir.join(tool).is_file())
}

/// Why a test that needs `tools` (and root, if `root`) cannot run here.
pub fn missing(root: bool, tools: &[&str]) -> Option<String> {
    if root && Tier::of_this_run() == Tier::Fast {
        return Some("needs root; not among the fast tests".to_owned());
    }
    if root && !is_root() {
        return Some("needs root, for network namespaces".to_owned());
    }
    let tool = tools.iter().find(|t| !has_tool(t))?;
    Some(format!("needs {tool}, which is not installed"))
}

/// Prints `skipped: TEST: REASON`; the macro [`skip!`] calls it.
pub fn say_skipped(module: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // Written, not printed: the test runner captures what is printed.
    let _ = writeln!(std::io::stderr().lock(), "skipped: {module}: {test}: {reason}");
}
