//! Files of keys and certificates that columns of a database name (ovsdb-server(1), "Public Key Infrastructure Options").

use std::path::{Path, PathBuf};

use mgmt::stream::tls::{Authority, Settings};
use ovsdb::Atom;

use super::rows::RowSource;
use crate::core::Core;
use crate::server::Inner;

impl Inner {
    /// Whether the columns that name files are there.
    pub(crate) fn check_keys(&self) -> Result<(), String> {
        let core = self.core.borrow();
        for file in files(&self.tls_settings) {
            let name = file.display();
            if let Some(source) = source(file) {
                source
                    .map_err(|why| format!("{name}: {why}"))?
                    .check(&core)
                    .map_err(|why| format!("{name}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Has the files used that the columns name now. The tables to be watched for changes.
    pub(super) fn reconcile_keys(&self) -> Vec<(String, String)> {
        let settings = &self.tls_settings;
        if *settings == Settings::default() {
            return Vec::new();
        }
        let core = self.core.borrow();
        let file = |file: &Option<PathBuf>| file.as_deref().and_then(|file| resolve(file, &core));
        let authority = match &settings.authority {
            Authority::File(file) => resolve(file, &core).map_or(Authority::Missing, authority_of),
            Authority::Bootstrap(file) => resolve(file, &core).map_or(Authority::Missing, Authority::Bootstrap),
            other => other.clone(),
        };
        self.tls.set(Settings {
            private_key: file(&settings.private_key),
            certificate: file(&settings.certificate),
            peer_ca_cert: file(&settings.peer_ca_cert),
            authority,
            protocols: settings.protocols.clone(),
            suites: settings.suites.clone(),
        });
        let sources = files(settings).filter_map(|file| source(file)?.ok());
        sources.flat_map(|source| source.tables(&core)).collect()
    }
}

fn authority_of(file: PathBuf) -> Authority {
    match file.to_str() {
        Some("none") => Authority::Anyone,
        _ => Authority::File(file),
    }
}

fn files(settings: &Settings) -> impl Iterator<Item = &Path> {
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
    files.into_iter().flatten().map(PathBuf::as_path)
}

/// The column that a name means, if it means one.
fn source(file: &Path) -> Option<Result<RowSource, String>> {
    RowSource::parse(file.to_str()?)
}

/// The file that a name means: itself, or what the column holds, if it holds anything.
fn resolve(file: &Path, core: &Core) -> Option<PathBuf> {
    match source(file) {
        None => Some(file.to_owned()),
        Some(source) => {
            let values = source.ok()?.values(core);
            let named = values.iter().filter_map(Atom::as_str).find(|name| !name.is_empty());
            named.map(PathBuf::from)
        }
    }
}
