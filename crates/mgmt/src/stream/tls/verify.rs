//! The check of a peer's certificate during the handshake, for either side.
//!
//! `webpki` checks signatures, validity and purpose of every certificate up to a trusted authority
//! (RFC 5280 section 6). Names are not compared: a peer is trusted by its authority alone
//! (ovs-pki(8)). As with OpenSSL, a peer may also use the certificate of a trusted authority
//! itself: `openssl req -x509` makes one certificate for both.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};
use webpki::{EndEntityCert, KeyUsage};

/// Which peers to trust.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Peers with a certificate of one of these authorities.
    Authorities(Authorities),
    /// The authority that the next peer sends, if it issued itself and the peer's certificate.
    Next,
    /// Everybody.
    Anyone,
}

/// Trusted authorities.
#[derive(Debug, Clone)]
pub(super) struct Authorities {
    roots: RootCertStore,
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// # Errors
    /// One of the certificates is malformed.
    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Authorities, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone())?;
        }
        Ok(Authorities { roots, certificates })
    }
}

/// Checks peers' certificates.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    /// The names of the authorities, for clients that have several certificates.
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(trust: Trust, provider: &CryptoProvider) -> Arc<Verifier> {
        let hints = match &trust {
            Trust::Authorities(authorities) => authorities.roots.subjects(),
            Trust::Next | Trust::Anyone => Vec::new(),
        };
        Arc::new(Verifier {
            trust,
            hints,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<(), Error> {
        let offered;
        let authorities = match &self.trust {
            Trust::Anyone => return Ok(()),
            Trust::Authorities(authorities) => authorities,
            Trust::Next => {
                offered = Authorities::new(vec![offered_authority(leaf, sent)?.clone().into_owned()])?;
                &offered
            }
        };
        let roots = &authorities.roots.roots;
        let verified = EndEntityCert::try_from(leaf).and_then(|leaf| {
            leaf.verify_for_usage(self.algorithms.all, roots, sent, now, usage, None, None)
                .map(drop)
        });
        match verified {
            // A peer that shows the certificate of a trusted authority has that authority's key: it
            // could issue a certificate to itself. webpki checks the validity period before it
            // returns this error.
            Err(webpki::Error::CaUsedAsEndEntity) if authorities.certificates.contains(leaf) => Ok(()),
            other => other.map_err(refusal),
        }
    }
}

/// The authority that a peer offers: the last certificate it sent, which must be self-signed.
pub(super) fn offered_authority<'a>(
    leaf: &'a CertificateDer<'a>,
    sent: &'a [CertificateDer<'a>],
) -> Result<&'a CertificateDer<'a>, Error> {
    let last = sent.last().unwrap_or(leaf);
    let certificate = EndEntityCert::try_from(last).map_err(refusal)?;
    if certificate.subject() == certificate.issuer() {
        Ok(last)
    } else {
        Err(Error::General(
            "the peer sent no authority that issued itself".to_owned(),
        ))
    }
}

/// The error whose alert ends the handshake.
fn refusal(error: webpki::Error) -> Error {
    use webpki::Error as Why;
    Error::InvalidCertificate(match error {
        Why::BadDer | Why::BadDerTime | Why::TrailingData(_) => CertificateError::BadEncoding,
        Why::CertExpired { .. } => CertificateError::Expired,
        Why::CertNotValidYet { .. } => CertificateError::NotValidYet,
        Why::UnknownIssuer => CertificateError::UnknownIssuer,
        Why::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Why::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        Why::UnsupportedCriticalExtension => CertificateError::UnhandledCriticalExtension,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// Why a certificate cannot be used, in words.
pub(super) fn describe(error: &webpki::Error) -> String {
    use webpki::Error as Why;
    match error {
        Why::UnsupportedCertVersion => "certificate is not of X.509 version 3".to_owned(),
        Why::CaUsedAsEndEntity => "the certificate is that of an authority that is not trusted".to_owned(),
        Why::EndEntityUsedAsCa => "issuer is not a certificate authority".to_owned(),
        Why::PathLenConstraintViolated => "issuer is not a certificate authority for this chain".to_owned(),
        Why::MaximumPathDepthExceeded | Why::MaximumPathBuildCallsExceeded | Why::MaximumSignatureChecksExceeded => {
            "certificate chain too long".to_owned()
        }
        Why::UnsupportedSignatureAlgorithmContext(_) | Why::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            "certificate signature algorithm not supported".to_owned()
        }
        other => format!("certificate refused ({other})"),
    }
}

/// Why a handshake failed, in words.
pub(super) fn explain(error: &Error) -> String {
    let why = match error {
        Error::NoCertificatesPresented => "the peer sent no certificate",
        Error::AlertReceived(alert) => return format!("the peer refused ({alert:?})"),
        Error::InvalidCertificate(CertificateError::BadEncoding) => "malformed certificate",
        Error::InvalidCertificate(CertificateError::Expired) => "certificate has expired",
        Error::InvalidCertificate(CertificateError::NotValidYet) => "certificate is not yet valid",
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "certificate is not issued by a trusted authority"
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => "certificate signature failure",
        Error::InvalidCertificate(CertificateError::InvalidPurpose) => "certificate is not for this purpose",
        Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension) => {
            "certificate has an extension that is not understood"
        }
        Error::InvalidCertificate(CertificateError::Other(other)) => match other.0.downcast_ref::<webpki::Error>() {
            Some(error) => return describe(error),
            None => return other.0.to_string(),
        },
        other => return other.to_string(),
    };
    why.to_owned()
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(leaf, sent, KeyUsage::server_auth(), now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        !matches!(self.trust, Trust::Anyone)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(leaf, sent, KeyUsage::client_auth(), now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
