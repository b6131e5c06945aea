//! Where things are: Open vSwitch's directories and the variables that move them.

use std::env;
use std::path::{Path, PathBuf};

/// Directory of sockets and pidfiles: `OVS_RUNDIR`, else `/var/run/openvswitch`.
pub fn rundir() -> PathBuf {
    from_env("OVS_RUNDIR").unwrap_or_else(|| PathBuf::from("/var/run/openvswitch"))
}

/// Directory of log files: `OVS_LOGDIR`, else `/var/log/openvswitch`.
pub fn logdir() -> PathBuf {
    from_env("OVS_LOGDIR").unwrap_or_else(|| PathBuf::from("/var/log/openvswitch"))
}

/// Directory above `openvswitch/` where configuration lives: `OVS_SYSCONFDIR`, else `/etc`.
pub fn sysconfdir() -> PathBuf {
    from_env("OVS_SYSCONFDIR").unwrap_or_else(|| PathBuf::from("/etc"))
}

/// Directory of databases: `OVS_DBDIR`, else `openvswitch` in [`sysconfdir`].
pub fn dbdir() -> PathBuf {
    from_env("OVS_DBDIR").unwrap_or_else(|| sysconfdir().join("openvswitch"))
}

/// Directory of schemas and scripts: `OVS_PKGDATADIR`, else `/usr/share/openvswitch`.
pub fn pkgdatadir() -> PathBuf {
    from_env("OVS_PKGDATADIR").unwrap_or_else(|| PathBuf::from("/usr/share/openvswitch"))
}

/// The switch's own database file, `conf.db` in [`dbdir`].
pub fn default_db_file() -> PathBuf {
    dbdir().join("conf.db")
}

/// The switch's own schema file, `vswitch.ovsschema` in [`pkgdatadir`].
pub fn default_schema_file() -> PathBuf {
    pkgdatadir().join("vswitch.ovsschema")
}

/// The database server that clients use unless told otherwise: `unix:` and `db.sock` in [`rundir`].
pub fn default_remote() -> String {
    format!("unix:{}", rundir().join("db.sock").display())
}

/// `file` itself when it is absolute, else that name in [`rundir`]: how socket and pidfile names
/// are read.
pub fn in_rundir(file: impl AsRef<Path>) -> PathBuf {
    rundir().join(file)
}

fn from_env(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}
