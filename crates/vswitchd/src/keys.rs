//! The switch's TLS keys: from the row `Open_vSwitch.ssl` if it exists, else from the command line.

use mgmt::stream::Tls;
use mgmt::stream::tls::{Authority, Settings};
use ovsdb::rows;
use std::path::PathBuf;

/// Updates a [`Tls`] from the database.
pub(crate) struct Keys {
    tls: Tls,
    command_line: Settings,
}

impl Keys {
    pub(crate) fn new(tls: Tls, command_line: Settings) -> Keys {
        tls.set(command_line.clone());
        Keys { tls, command_line }
    }

    /// The row as it is now.
    pub(crate) fn apply(&self, row: Option<&rows::Ssl>) {
        self.tls.set(match row {
            Some(row) => settings(row, &self.command_line),
            None => self.command_line.clone(),
        });
    }
}

fn settings(row: &rows::Ssl, command_line: &Settings) -> Settings {
    let file = |name: &String| Some(PathBuf::from(name)).filter(|file| !file.as_os_str().is_empty());
    let authority = match (row.ca_cert.as_str(), row.bootstrap_ca_cert) {
        ("", _) => Authority::Missing,
        ("none", _) => Authority::Anyone,
        (file, false) => Authority::File(file.into()),
        (file, true) => Authority::Bootstrap(file.into()),
    };
    Settings {
        private_key: file(&row.private_key),
        certificate: file(&row.certificate),
        authority,
        ..command_line.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_goes_before_the_command_line_and_gives_way_to_it_when_it_is_gone() {
        let command_line = Settings {
            private_key: Some("/k".into()),
            peer_ca_cert: Some("/p".into()),
            ..Settings::default()
        };
        let tls = Tls::default();
        let keys = Keys::new(tls.clone(), command_line.clone());
        let row = rows::Ssl {
            private_key: "/key".into(),
            ca_cert: "/ca".into(),
            bootstrap_ca_cert: true,
            ..rows::Ssl::default()
        };
        keys.apply(Some(&row));
        let now = tls.settings();
        assert_eq!(now.private_key, Some("/key".into()));
        assert_eq!(now.certificate, None);
        assert_eq!(now.authority, Authority::Bootstrap("/ca".into()));
        assert_eq!(now.peer_ca_cert, Some("/p".into()));
        keys.apply(None);
        assert_eq!(tls.settings(), command_line);
    }
}
