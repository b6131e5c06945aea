//! The command line options about TLS, which all daemons and tools share.

use std::path::PathBuf;

use super::{Authority, Settings, ciphers};
use crate::cli::{Error, Opt};

/// The options.
pub const OPTIONS: &[Opt] = &[
    Opt::value("private-key", Some('p')),
    Opt::value("certificate", Some('c')),
    Opt::value("ca-cert", Some('C')),
    Opt::value("bootstrap-ca-cert", None),
    Opt::value("peer-ca-cert", None),
    Opt::value("ssl-protocols", None),
    Opt::value("ssl-ciphers", None),
];

/// The help text of [`OPTIONS`].
pub fn help() -> &'static str {
    "
PKI configuration (required to use SSL):
  -p, --private-key=FILE  file with private key
  -c, --certificate=FILE  file with certificate for private key
  -C, --ca-cert=FILE      file with peer CA certificate, `none` to trust every peer
  --bootstrap-ca-cert=FILE  file with peer CA certificate to read or create
  --peer-ca-cert=FILE     CA certificate to send to peer
  --ssl-protocols=PROTOS  versions to use, of TLSv1.2 and TLSv1.3
  --ssl-ciphers=CIPHERS   ciphers to use, as OpenSSL writes them
"
}

/// Takes an option if it is one of [`OPTIONS`]; false if it is not. Files are read when they are needed.
///
/// # Errors
/// Protocols or ciphers that cannot be had.
pub fn accept(settings: &mut Settings, name: &str, value: Option<&str>) -> Result<bool, Error> {
    let value = value.unwrap_or_default();
    let file = || file(value);
    match name {
        "private-key" => settings.private_key = Some(file()),
        "certificate" => settings.certificate = Some(file()),
        "ca-cert" if value == "none" => settings.authority = Authority::Anyone,
        "ca-cert" => settings.authority = Authority::File(file()),
        "bootstrap-ca-cert" => settings.authority = Authority::Bootstrap(file()),
        "peer-ca-cert" => settings.peer_ca_cert = Some(file()),
        "ssl-protocols" => {
            settings.protocols = ciphers::protocols(value).map_err(|e| Error(format!("--{name}={e}")))?;
        }
        "ssl-ciphers" => settings.suites = ciphers::suites(value).map_err(|e| Error(format!("--{name}={e}")))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A file, from the root: a daemon leaves the directory that it was started in. `db:DATABASE,TABLE,COLUMN`, which ovsdb-server takes in place
/// of a file, stays as it is.
fn file(name: &str) -> PathBuf {
    match name.starts_with("db:") {
        true => PathBuf::from(name),
        false => std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name)),
    }
}
