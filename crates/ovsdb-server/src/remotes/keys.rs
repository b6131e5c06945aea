//! Keys, certificates, protocols and ciphers that columns of a database name (ovsdb-server(1),
//! "Public Key Infrastructure Options" and "SSL Connection Options").

use std::path::{Path, PathBuf};

use mgmt::stream::tls::{Authority, CipherError, Columns, Settings};
use ovsdb::Atom;

use super::rows::RowSource;
use crate::core::Core;
use crate::server::Inner;

impl Inner {
    /// Whether the named columns exist.
    pub(crate) fn check_keys(&self) -> Result<(), String> {
        let core = self.core.borrow();
        for name in names(&self.tls_settings) {
            if let Some(source) = RowSource::parse(name) {
                let wrong = |why: String| format!("{name}: {why}");
                source.map_err(wrong)?.check(&core).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Uses the files, protocols and ciphers that the columns name now. Returns the tables to watch
    /// for changes.
    pub(super) fn reconcile_keys(&self) -> Vec<(String, String)> {
        let settings = &self.tls_settings;
        if *settings == Settings::default() {
            return Vec::new();
        }
        let core = self.core.borrow();
        let file = |file: &Option<PathBuf>| file.as_deref().and_then(|file| resolve_file(file, &core));
        let authority = match &settings.authority {
            Authority::File(file) => resolve_file(file, &core).map_or(Authority::Missing, authority_of),
            Authority::Bootstrap(file) => resolve_file(file, &core).map_or(Authority::Missing, Authority::Bootstrap),
            other => other.clone(),
        };
        let mut now = Settings {
            private_key: file(&settings.private_key),
            certificate: file(&settings.certificate),
            peer_ca_cert: file(&settings.peer_ca_cert),
            authority,
            ..settings.clone()
        };
        self.choose(&mut now, &core);
        self.tls.set(now);
        let sources = names(settings).filter_map(|name| RowSource::parse(name)?.ok());
        sources.flat_map(|source| source.tables(&core)).collect()
    }

    /// Applies the protocols and ciphers in the columns. An empty column means the default. An
    /// invalid value changes nothing and is logged once.
    fn choose(&self, now: &mut Settings, core: &Core) {
        let before = self.tls.settings();
        let columns = now.columns.clone();
        let mut complaints = Vec::new();
        let mut choose = |column: &Option<String>, choose: &mut dyn FnMut(&str) -> Result<(), CipherError>| {
            let value = column.as_deref().and_then(|column| resolve(column, core));
            value.is_none_or(|value| {
                choose(&value)
                    .map_err(|error| complaints.push(error.to_string()))
                    .is_ok()
            })
        };
        if !choose(&columns.protocols, &mut |list| now.choose_protocols(list)) {
            now.protocols = before.protocols;
        }
        if !choose(&columns.ciphers, &mut |list| now.choose_ciphers(list)) {
            now.ciphers = before.ciphers;
        }
        if !choose(&columns.ciphersuites, &mut |list| now.choose_ciphersuites(list)) {
            now.ciphersuites = before.ciphersuites;
        }
        let mut said = self.tls_complaints.borrow_mut();
        for complaint in complaints.iter().filter(|complaint| !said.contains(complaint)) {
            tracing::error!(target: "stream_ssl", "{complaint}");
        }
        *said = complaints;
    }
}

fn authority_of(file: PathBuf) -> Authority {
    match file.to_str() {
        Some("none") => Authority::Anyone,
        _ => Authority::File(file),
    }
}

/// The files and columns that the settings name.
fn names(settings: &Settings) -> impl Iterator<Item = &str> {
    let authority = match &settings.authority {
        Authority::File(file) | Authority::Bootstrap(file) => Some(file),
        Authority::Missing | Authority::Anyone => None,
    };
    let files = [
        settings.private_key.as_ref(),
        settings.certificate.as_ref(),
        settings.peer_ca_cert.as_ref(),
        authority,
    ];
    let Columns {
        protocols,
        ciphers,
        ciphersuites,
    } = &settings.columns;
    let columns = [protocols, ciphers, ciphersuites]
        .into_iter()
        .filter_map(Option::as_deref);
    files
        .into_iter()
        .flatten()
        .filter_map(|file| file.to_str())
        .chain(columns)
}

/// The file that a setting names: directly, or by a column's value if the column has one.
fn resolve_file(file: &Path, core: &Core) -> Option<PathBuf> {
    match file.to_str().filter(|name| name.starts_with("db:")) {
        None => Some(file.to_owned()),
        Some(column) => resolve(column, core).map(PathBuf::from),
    }
}

/// A column's value, if it has one.
fn resolve(column: &str, core: &Core) -> Option<String> {
    let values = RowSource::parse(column)?.ok()?.values(core);
    let mut texts = values.iter().filter_map(Atom::as_str);
    texts.find(|text| !text.is_empty()).map(str::to_owned)
}
