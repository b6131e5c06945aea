//! The checks of a peer's certificate during the handshake, for either side.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved, SignatureScheme,
};

use super::chain::{self, Fault, Purpose};
use super::x509::Certificate;

/// Whom to trust.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Whoever these authorities issued a certificate for.
    Authorities(Vec<CertificateDer<'static>>),
    /// The authority that the next peer sends, if that issued itself and the peer.
    Next,
    /// Everybody.
    Anyone,
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
        let authorities = match &trust {
            Trust::Authorities(authorities) => authorities.as_slice(),
            Trust::Next | Trust::Anyone => &[],
        };
        let hints = authorities
            .iter()
            .filter_map(|der| Some(Certificate::parse(der).ok()?.subject.to_vec().into()))
            .collect();
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
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        let sent: Vec<&[u8]> = sent.iter().map(AsRef::as_ref).collect();
        let trusted: Vec<&[u8]> = match &self.trust {
            Trust::Anyone => return Ok(()),
            Trust::Authorities(authorities) => authorities.iter().map(AsRef::as_ref).collect(),
            Trust::Next => vec![offered_authority(leaf, &sent).map_err(refusal)?],
        };
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        chain::verify(leaf, &sent, &trusted, purpose, now, &self.algorithms).map_err(refusal)
    }

    fn signature_12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = Certificate::parse(certificate).map_err(|malformed| refusal(malformed.into()))?;
        let known = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme);
        let Some((_, candidates)) = known else {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        };
        // In TLS 1.2 a scheme does not fix the curve: the key does.
        let suiting = candidates
            .iter()
            .find(|candidate| candidate.public_key_alg_id().as_ref() == certificate.key_algorithm);
        let suiting = suiting.ok_or_else(|| refusal(Fault::UnsupportedAlgorithm))?;
        suiting
            .verify_signature(certificate.key, message, signed.signature())
            .map(|()| HandshakeSignatureValid::assertion())
            .map_err(|_| refusal(Fault::BadSignature))
    }

    fn signature_13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = Certificate::parse(certificate).map_err(|malformed| refusal(malformed.into()))?;
        let key = SubjectPublicKeyInfoDer::from(certificate.spki);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// The authority that a peer offers: the last certificate it sent, which must have issued itself.
pub(super) fn offered_authority<'a>(leaf: &'a [u8], sent: &[&'a [u8]]) -> Result<&'a [u8], Fault> {
    let last = sent.last().copied().unwrap_or(leaf);
    if Certificate::parse(last)?.is_self_issued() {
        Ok(last)
    } else {
        Err(Fault::NotAnAuthority)
    }
}

fn refusal(fault: Fault) -> Error {
    Error::InvalidCertificate(match fault {
        Fault::Malformed => CertificateError::BadEncoding,
        Fault::Expired => CertificateError::Expired,
        Fault::NotYetValid => CertificateError::NotValidYet,
        Fault::UnknownIssuer => CertificateError::UnknownIssuer,
        Fault::BadSignature => CertificateError::BadSignature,
        Fault::WrongPurpose => CertificateError::InvalidPurpose,
        Fault::UnknownExtension => CertificateError::UnhandledCriticalExtension,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// Why a handshake failed, in words.
pub(super) fn explain(error: &Error) -> String {
    let fault = match error {
        Error::NoCertificatesPresented => return "the peer sent no certificate".to_owned(),
        Error::AlertReceived(alert) => return format!("the peer refused ({alert:?})"),
        Error::InvalidCertificate(CertificateError::BadEncoding) => Fault::Malformed,
        Error::InvalidCertificate(CertificateError::Expired) => Fault::Expired,
        Error::InvalidCertificate(CertificateError::NotValidYet) => Fault::NotYetValid,
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => Fault::UnknownIssuer,
        Error::InvalidCertificate(CertificateError::BadSignature) => Fault::BadSignature,
        Error::InvalidCertificate(CertificateError::InvalidPurpose) => Fault::WrongPurpose,
        Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension) => Fault::UnknownExtension,
        Error::InvalidCertificate(CertificateError::Other(other)) => return other.0.to_string(),
        other => return other.to_string(),
    };
    fault.to_string()
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
        self.check(leaf, sent, Purpose::Server, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_13(message, certificate, signed)
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
        self.check(leaf, sent, Purpose::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature_13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
