//! Skips tests that this machine cannot run.

use std::io::Write;

/// Skips the test and prints the reason on standard error, past the test runner's capture, so that
/// a skipped test is never taken for a passed one.
///
/// `skip!("reason")` always; `skip!(unless root, "ip", "iperf3")` where not root or a tool is
/// missing; `skip!(unless "ovs-vsctl")` for tools only.
#[macro_export]
macro_rules! skip {
    (unless root $(, $tool:expr)* $(,)?) => {
        if let Some(reason) = $crate::missing(true, &[$($tool),*]) {
            $crate::skip!("{reason}");
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
