//! TLS as Open vSwitch uses it: each side has a certificate, and trusts all certificates of its
//! authority (ovs-pki(8)). Names are not compared.
//!
//! A [`Tls`] is a program's configuration. Streams use it for each handshake, which reads changed
//! files again.

mod ciphers;
mod files;
mod options;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, InconsistentKeys, ServerConfig, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};

pub use ciphers::CipherError;
pub use files::TlsError;
pub use options::{OPTIONS, accept, accept_column, help};

use files::Stamp;
use verify::{Trust, Verifier};

/// How peers are checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Authority {
    /// Not configured: no connection is possible.
    #[default]
    Missing,
    /// Not at all.
    Anyone,
    /// By the authorities in a file.
    File(PathBuf),
    /// By the authorities in a file; a missing file is created with the first peer's authority.
    Bootstrap(PathBuf),
}

/// The TLS settings of a program.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// The PEM file of the private key.
    pub private_key: Option<PathBuf>,
    /// The PEM file of the certificate, and of others that lead from it to its authority.
    pub certificate: Option<PathBuf>,
    /// How to check peers.
    pub authority: Authority,
    /// A PEM file of more certificates to be sent to peers.
    pub peer_ca_cert: Option<PathBuf>,
    /// The versions that may be used; empty for all.
    pub protocols: Vec<&'static SupportedProtocolVersion>,
    /// The ciphers of TLS 1.2 that may be used; empty for all.
    pub ciphers: Vec<SupportedCipherSuite>,
    /// The cipher suites of TLS 1.3 that may be used; empty for all.
    pub ciphersuites: Vec<SupportedCipherSuite>,
    /// Columns of a database that choose protocols and ciphers. Only a database server can read
    /// them: streams ignore them.
    pub columns: Columns,
}

/// Columns of a database, as `db:DATABASE,TABLE,COLUMN`, that choose protocols and ciphers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// For [`Settings::protocols`].
    pub protocols: Option<String>,
    /// For [`Settings::ciphers`].
    pub ciphers: Option<String>,
    /// For [`Settings::ciphersuites`].
    pub ciphersuites: Option<String>,
}

/// A program's TLS. Clones are the same; the default has no keys, and refuses every connection.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    settings: Settings,
    loaded: Option<(Vec<Stamp>, Loaded)>,
    /// The files whose fault was logged.
    complained: Vec<Stamp>,
}

/// The files' contents, ready for handshakes.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    /// The file to be made of what the next peer offers.
    bootstrap: Option<PathBuf>,
}

impl Tls {
    /// TLS with `settings`.
    pub fn new(settings: Settings) -> Tls {
        let tls = Tls::default();
        tls.set(settings);
        tls
    }

    /// Changes the settings, for handshakes to come.
    pub fn set(&self, settings: Settings) {
        let mut state = self.lock();
        if state.settings != settings {
            if settings.authority == Authority::Anyone {
                tracing::warn!(target: "stream_ssl", "Peer certificate validation disabled (this is a security risk)");
            }
            *state = State {
                settings,
                ..State::default()
            };
        }
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// The files' contents, read again if they changed. While changed files are invalid, the former
    /// contents stay in use.
    ///
    /// # Errors
    /// A file that was not named or cannot be used.
    pub(super) fn load(&self) -> Result<Loaded, TlsError> {
        let mut state = self.lock();
        let stamps: Vec<Stamp> = state.settings.files().map(Stamp::of).collect();
        if let Some((then, loaded)) = &state.loaded
            && *then == stamps
        {
            return Ok(loaded.clone());
        }
        match (load(&state.settings), &state.loaded) {
            (Ok(loaded), _) => {
                state.loaded = Some((stamps, loaded.clone()));
                Ok(loaded)
            }
            (Err(error), Some((_, former))) => {
                let former = former.clone();
                if state.complained != stamps {
                    tracing::warn!(target: "stream_ssl", "{error}; the keys and certificates read before stay in use");
                    state.complained = stamps;
                }
                Ok(former)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    /// What is not configured although a connection needs it.
    fn missing(&self) -> Vec<&'static str> {
        let needed = [
            ("Private key", self.private_key.is_none()),
            ("Certificate", self.certificate.is_none()),
            ("CA certificate", self.authority == Authority::Missing),
        ];
        let missing = needed.into_iter().filter(|(_, missing)| *missing);
        missing.map(|(name, _)| name).collect()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let authority = match &self.authority {
            Authority::File(file) | Authority::Bootstrap(file) => Some(file),
            Authority::Missing | Authority::Anyone => None,
        };
        let named = [&self.private_key, &self.certificate, &self.peer_ca_cert];
        named
            .into_iter()
            .filter_map(Option::as_deref)
            .chain(authority.map(PathBuf::as_path))
    }
}

impl Loaded {
    /// Keeps the authority that a peer offered in a completed handshake, if bootstrap is on.
    pub(super) fn learn(&self, peer: &str, certificates: Option<&[CertificateDer<'_>]>) -> io::Result<()> {
        let Some(file) = &self.bootstrap else { return Ok(()) };
        let Some((leaf, sent)) = certificates.unwrap_or_default().split_first() else {
            return Err(io::Error::other("the peer sent no certificate"));
        };
        let authority =
            verify::offered_authority(leaf, sent).map_err(|error| io::Error::other(verify::explain(&error)))?;
        files::write_authority(file, authority)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        tracing::info!(target: "stream_ssl", "{peer}: successfully bootstrapped CA cert to {}", file.display());
        Ok(())
    }
}

/// A verifier that accepts any certificate of a server. The handshake still shows that the server
/// has its private key.
pub fn accept_any_server(provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
    Verifier::new(Trust::Anyone, provider)
}

/// Why a handshake failed, in words.
pub(super) fn explain(error: io::Error) -> io::Error {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls.map(verify::explain) {
        Some(why) => io::Error::new(error.kind(), format!("TLS handshake failed: {why}")),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "TLS handshake failed: the peer closed the connection")
        }
        None => error,
    }
}

fn load(settings: &Settings) -> Result<Loaded, TlsError> {
    let missing = || TlsError::Missing(settings.missing());
    let key_file = settings.private_key.as_deref().ok_or_else(missing)?;
    let certificate_file = settings.certificate.as_deref().ok_or_else(missing)?;
    let mut provider = ring::default_provider();
    provider.cipher_suites = ciphers::chosen(&settings.ciphers, &settings.ciphersuites);
    let mut issuers = None;
    let (trust, bootstrap) = match &settings.authority {
        Authority::Missing => return Err(missing()),
        Authority::Anyone => (Trust::Anyone, None),
        Authority::Bootstrap(file) if !file.exists() => (Trust::Next, Some(file.clone())),
        Authority::File(file) | Authority::Bootstrap(file) => {
            let authorities = files::authorities(file)?;
            issuers = Some(authorities.certificates.clone());
            (Trust::Authorities(authorities), None)
        }
    };
    let key = files::private_key(key_file, &provider)?;
    let own = CertifiedKey::new(files::chain(certificate_file)?, key);
    if let Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) = own.keys_match() {
        return Err(TlsError::Mismatch {
            key: key_file.to_owned(),
            certificate: certificate_file.to_owned(),
        });
    }
    let CertifiedKey { cert: chain, key, .. } = own;
    let chain = match (&settings.peer_ca_cert, issuers) {
        (Some(file), _) => chain.into_iter().chain(files::certificates(file)?).collect(),
        (None, Some(issuers)) => files::with_issuers(chain, &issuers),
        (None, None) => chain,
    };
    let identity = Arc::new(Identity(Arc::new(CertifiedKey::new(chain, key))));
    configure(settings, Arc::new(provider), identity, trust, bootstrap)
}

fn configure(
    settings: &Settings,
    provider: Arc<CryptoProvider>,
    identity: Arc<Identity>,
    trust: Trust,
    bootstrap: Option<PathBuf>,
) -> Result<Loaded, TlsError> {
    let versions = match settings.protocols.is_empty() {
        true => rustls::ALL_VERSIONS,
        false => settings.protocols.as_slice(),
    };
    let mismatch = |error: rustls::Error| TlsError::Suites(error.to_string());
    let verifier = Verifier::new(trust, &provider);
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(mismatch)?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(identity.clone());
    // A session resumed would skip the check of the peer's certificate.
    client.resumption = Resumption::disabled();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(mismatch)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity);
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Loaded {
        client: Arc::new(client),
        server: Arc::new(server),
        bootstrap,
    })
}

/// The certificate of this program, the same for every peer.
#[derive(Debug)]
struct Identity(Arc<CertifiedKey>);

impl ResolvesClientCert for Identity {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}
