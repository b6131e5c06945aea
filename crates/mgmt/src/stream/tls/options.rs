//! The command line options about TLS, which all daemons and tools share.

use std::path::PathBuf;

use super::{Authority, CipherError, Settings, ciphers};
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
    Opt::value("ssl-ciphersuites", None),
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
  --ssl-ciphers=CIPHERS   ciphers of TLSv1.2 to use, as OpenSSL writes them
  --ssl-ciphersuites=SUITES  cipher suites of TLSv1.3 to use
"
}

/// Takes an option if it is one of [`OPTIONS`]; false if it is not. Files are read when they are
/// needed.
///
/// # Errors
/// Protocols or ciphers that cannot be had.
pub fn accept(settings: &mut Settings, name: &str, value: Option<&str>) -> Result<bool, Error> {
    let value = value.unwrap_or_default();
    let file = || file(value);
    match name {
        "private-key" => settings.private_key = Some(file()),
        "certificate" => settings.certificate = Some(file()),
        "ca-cert" if value == "none" => {
            tracing::warn!(target: "stream_ssl", "Peer certificate validation disabled (this is a security risk)");
            settings.authority = Authority::Anyone;
        }
        "ca-cert" => settings.authority = Authority::File(file()),
        "bootstrap-ca-cert" => settings.authority = Authority::Bootstrap(file()),
        "peer-ca-cert" => settings.peer_ca_cert = Some(file()),
        "ssl-protocols" => settings
            .choose_protocols(value)
            .map_err(|e| Error(format!("--{name}={e}")))?,
        "ssl-ciphers" => settings
            .choose_ciphers(value)
            .map_err(|e| Error(format!("--{name}={e}")))?,
        "ssl-ciphersuites" => settings
            .choose_ciphersuites(value)
            .map_err(|e| Error(format!("--{name}={e}")))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Takes an option about protocols or ciphers whose value is `db:DATABASE,TABLE,COLUMN`; false if
/// it is another. For programs that serve a database.
pub fn accept_column(settings: &mut Settings, name: &str, value: Option<&str>) -> bool {
    let Some(column) = value.filter(|value| value.starts_with("db:")) else {
        return false;
    };
    let place = match name {
        "ssl-protocols" => &mut settings.columns.protocols,
        "ssl-ciphers" => &mut settings.columns.ciphers,
        "ssl-ciphersuites" => &mut settings.columns.ciphersuites,
        _ => return false,
    };
    *place = Some(column.to_owned());
    true
}

impl Settings {
    /// Chooses the versions that a list names, separated by commas or spaces.
    ///
    /// # Errors
    /// A name that is unknown, or a list of versions that are all too old.
    pub fn choose_protocols(&mut self, list: &str) -> Result<(), CipherError> {
        self.protocols = ciphers::protocols(list)?;
        Ok(())
    }

    /// Chooses ciphers of TLS 1.2, as openssl-ciphers(1) writes them.
    ///
    /// # Errors
    /// The list leaves none.
    pub fn choose_ciphers(&mut self, list: &str) -> Result<(), CipherError> {
        self.ciphers = ciphers::ciphers(list)?;
        Ok(())
    }

    /// Chooses cipher suites of TLS 1.3 by their names in RFC 8446 §B.4, separated by colons.
    ///
    /// # Errors
    /// The list leaves none, or has a name that is unknown.
    pub fn choose_ciphersuites(&mut self, list: &str) -> Result<(), CipherError> {
        self.ciphersuites = ciphers::ciphersuites(list)?;
        Ok(())
    }
}

/// A file, from the root: a daemon leaves the directory that it was started in.
/// `db:DATABASE,TABLE,COLUMN`, which ovsdb-server takes in place of a file, stays as it is.
fn file(name: &str) -> PathBuf {
    match name.starts_with("db:") {
        true => PathBuf::from(name),
        false => std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name)),
    }
}
