//! Keys and certificates in PEM files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use webpki::EndEntityCert;

use super::verify::{self, Authorities};

/// Why TLS cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Files were not named.
    #[error("{} must be configured to use SSL", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// A file cannot be read.
    #[error("{}: {}", .file.display(), crate::os_text(source))]
    Read {
        /// Which.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {why}", .file.display())]
    Contents {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Key and certificate do not belong together.
    #[error("{}: the private key is not that of the certificate {}", .key.display(), .certificate.display())]
    Mismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// Protocols and ciphers do not go together.
    #[error("SSL protocols and ciphers: {0}")]
    Suites(String),
}

impl From<TlsError> for io::Error {
    /// Logs which files were not named, and returns the system's error that scripts expect.
    fn from(error: TlsError) -> io::Error {
        if let TlsError::Missing(files) = &error {
            for file in files {
                telemetry::error_limited!(target: "stream_ssl", "{file} must be configured to use SSL");
            }
            return rustix::io::Errno::NOPROTOOPT.into();
        }
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A file as it was when it was read; `None` if there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, u64, i64, i64)>);

impl Stamp {
    pub(super) fn of(file: &Path) -> Stamp {
        let stamp = |meta: fs::Metadata| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
        Stamp(fs::metadata(file).ok().map(stamp))
    }
}

/// No file of keys or certificates is larger.
const MAX_SIZE: u64 = 4 << 20;

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read {
        file: file.to_owned(),
        source,
    };
    if fs::metadata(file).map_err(failed)?.len() > MAX_SIZE {
        return Err(wrong(file, "too large for keys or certificates"));
    }
    fs::read(file).map_err(failed)
}

fn wrong(file: &Path, why: impl Into<String>) -> TlsError {
    TlsError::Contents {
        file: file.to_owned(),
        why: why.into(),
    }
}

/// The certificates of this program in a file: its own first, then those that lead to its
/// authority.
pub(super) fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = certificates(file)?;
    EndEntityCert::try_from(&certificates[0]).map_err(|error| wrong(file, verify::describe(&error)))?;
    Ok(certificates)
}

/// The authorities in a file.
pub(super) fn authorities(file: &Path) -> Result<Authorities, TlsError> {
    Authorities::new(certificates(file)?).map_err(|_| wrong(file, "malformed certificate"))
}

/// The certificates in a file, one at least.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| wrong(file, error.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong(file, "no certificate in PEM format found"));
    }
    Ok(certificates)
}

/// The private key in a file.
pub(super) fn private_key(file: &Path, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, TlsError> {
    let bytes = read(file)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| wrong(file, format!("no private key in PEM format found ({error})")))?;
    let key = provider.key_provider.load_private_key(key);
    key.map_err(|error| {
        let kinds = "RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384 and Ed25519 are supported";
        wrong(file, format!("private key not usable: {error} ({kinds})"))
    })
}

/// `chain` with its issuers among `others`, up to a self-signed one, for peers that do not have
/// them.
pub(super) fn with_issuers(
    mut chain: Vec<CertificateDer<'static>>,
    others: &[CertificateDer<'static>],
) -> Vec<CertificateDer<'static>> {
    const LONGEST: usize = 10;
    while chain.len() < LONGEST {
        let Some(Ok(last)) = chain.last().map(EndEntityCert::try_from) else {
            break;
        };
        if last.subject() == last.issuer() {
            break;
        }
        let issued = |other: &&CertificateDer<'_>| {
            EndEntityCert::try_from(*other).is_ok_and(|other| other.subject() == last.issuer())
        };
        match others.iter().find(issued) {
            Some(next) => chain.push(next.clone()),
            None => break,
        }
    }
    chain
}

/// Writes the certificate of an authority to a new file.
pub(super) fn write_authority(file: &Path, der: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let text = pem(der)?;
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(file)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(file);
    }
    written
}

fn pem(der: &[u8]) -> io::Result<String> {
    pem_rfc7468::encode_string("CERTIFICATE", pem_rfc7468::LineEnding::LF, der).map_err(io::Error::other)
}
