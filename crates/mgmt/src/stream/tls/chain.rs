//! Whether a peer's certificate leads to an authority that is trusted.
//!
//! What is checked is what Open vSwitch checks: signatures, validity and purpose of every certificate up to one of the trusted file. No
//! name is compared: peers are known by their authority alone (ovs-pki(8)).

use std::error::Error as StdError;
use std::fmt;

use rustls::crypto::WebPkiSupportedAlgorithms;

use super::der::Malformed;
use super::x509::Certificate;

/// What the peer's certificate is to be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The peer listens.
    Server,
    /// The peer connected.
    Client,
}

/// Why a certificate is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be read.
    Malformed,
    /// It, or an authority's, is not valid any more.
    Expired,
    /// It, or an authority's, is not valid yet.
    NotYetValid,
    /// No trusted authority issued it.
    UnknownIssuer,
    /// A signature is wrong.
    BadSignature,
    /// A signature is of a kind that is not safe or not known.
    UnsupportedAlgorithm,
    /// It is not for this purpose.
    WrongPurpose,
    /// An issuer is no authority, or not for so long a chain.
    NotAnAuthority,
    /// It has a critical extension, or name constraints, that nothing here understands.
    UnknownExtension,
    /// Too long a chain, or too many ways to try.
    TooComplex,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Malformed => "malformed certificate",
            Fault::Expired => "certificate has expired",
            Fault::NotYetValid => "certificate is not yet valid",
            Fault::UnknownIssuer => "certificate is not issued by a trusted authority",
            Fault::BadSignature => "certificate signature failure",
            Fault::UnsupportedAlgorithm => "certificate signature algorithm not supported",
            Fault::WrongPurpose => "certificate is not for this purpose",
            Fault::NotAnAuthority => "issuer is not a certificate authority for this chain",
            Fault::UnknownExtension => "certificate has an extension that is not understood",
            Fault::TooComplex => "certificate chain too long",
        })
    }
}

impl StdError for Fault {}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Fault {
        Fault::Malformed
    }
}

/// Authorities between a peer's certificate and the trusted one.
const MAX_DEPTH: u32 = 8;

/// Certificates that a peer may send.
const MAX_SENT: usize = 16;

/// Signatures that are verified for one peer: each costs time that a stranger decides to spend.
const MAX_SIGNATURES: u32 = 32;

/// Checks a peer's certificate at `now`, seconds since 1970. `sent` are the other certificates that the peer sent.
///
/// # Errors
/// The [`Fault`] that is nearest to a trusted chain.
pub(super) fn verify(
    leaf: &[u8],
    sent: &[&[u8]],
    trusted: &[&[u8]],
    purpose: Purpose,
    now: i64,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Fault> {
    if sent.len() > MAX_SENT {
        return Err(Fault::TooComplex);
    }
    let leaf = Certificate::parse(leaf)?;
    let trusted: Vec<Certificate<'_>> = trusted
        .iter()
        .map(|der| Certificate::parse(der))
        .collect::<Result<_, _>>()?;
    // A certificate that cannot be read leads nowhere; the chain may do without it.
    let sent: Vec<Certificate<'_>> = sent.iter().filter_map(|der| Certificate::parse(der).ok()).collect();
    if leaf.extensions.key_usage.is_some_and(|usage| !usage.handshake) {
        return Err(Fault::WrongPurpose);
    }
    let mut search = Search {
        trusted: &trusted,
        sent: &sent,
        purpose,
        now,
        algorithms,
        signatures: 0,
    };
    search.check(&leaf)?;
    search.climb(&leaf, 0)
}

/// [`verify`] with the algorithms that handshakes use.
pub fn judge(leaf: &[u8], sent: &[&[u8]], trusted: &[&[u8]], purpose: Purpose, now: i64) -> Result<(), Fault> {
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    verify(leaf, sent, trusted, purpose, now, &algorithms)
}

struct Search<'a> {
    trusted: &'a [Certificate<'a>],
    sent: &'a [Certificate<'a>],
    purpose: Purpose,
    now: i64,
    algorithms: &'a WebPkiSupportedAlgorithms,
    signatures: u32,
}

impl Search<'_> {
    /// Finds a way from a checked certificate, under which there are `depth` authorities, to a trusted one.
    fn climb(&mut self, certificate: &Certificate<'_>, depth: u32) -> Result<(), Fault> {
        let (trusted, sent) = (self.trusted, self.sent);
        if trusted.iter().any(|anchor| anchor.der == certificate.der) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(Fault::TooComplex);
        }
        let mut nearest = Fault::UnknownIssuer;
        for anchor in trusted.iter().filter(|anchor| anchor.subject == certificate.issuer) {
            match self.issued(certificate, anchor, depth, is_trusted_authority(anchor)) {
                Ok(()) => return Ok(()),
                Err(Fault::TooComplex) => return Err(Fault::TooComplex),
                Err(fault) => nearest = fault,
            }
        }
        let others = sent
            .iter()
            .filter(|other| other.subject == certificate.issuer && other.der != certificate.der);
        for issuer in others {
            let above = self
                .issued(certificate, issuer, depth, is_authority(issuer))
                .and_then(|()| self.climb(issuer, depth + 1));
            match above {
                Ok(()) => return Ok(()),
                Err(Fault::TooComplex) => return Err(Fault::TooComplex),
                Err(Fault::UnknownIssuer) => {}
                Err(fault) if nearest == Fault::UnknownIssuer => nearest = fault,
                Err(_) => {}
            }
        }
        Err(nearest)
    }

    /// Whether `issuer` issued `certificate` and may have.
    fn issued(
        &mut self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
        depth: u32,
        authority: bool,
    ) -> Result<(), Fault> {
        let path_len = issuer.extensions.basic_constraints.and_then(|c| c.path_len);
        if !authority || path_len.is_some_and(|most| depth > most) {
            return Err(Fault::NotAnAuthority);
        }
        self.check(issuer)?;
        self.signatures += 1;
        if self.signatures > MAX_SIGNATURES {
            return Err(Fault::TooComplex);
        }
        verify_signature(
            issuer,
            certificate.algorithm,
            certificate.signed,
            certificate.signature,
            self.algorithms,
        )
    }

    /// What holds for every certificate of a chain.
    fn check(&self, certificate: &Certificate<'_>) -> Result<(), Fault> {
        let (from, until) = certificate.validity;
        if self.now < from {
            return Err(Fault::NotYetValid);
        }
        if self.now > until {
            return Err(Fault::Expired);
        }
        if certificate.extensions.not_understood {
            return Err(Fault::UnknownExtension);
        }
        let fits = certificate
            .extensions
            .extended_key_usage
            .is_none_or(|usage| match self.purpose {
                Purpose::Server => usage.server,
                Purpose::Client => usage.client,
            });
        if fits { Ok(()) } else { Err(Fault::WrongPurpose) }
    }
}

/// Whether a certificate that a peer sent is an authority's.
fn is_authority(certificate: &Certificate<'_>) -> bool {
    let extensions = &certificate.extensions;
    extensions.basic_constraints.is_some_and(|constraints| constraints.ca)
        && extensions.key_usage.is_none_or(|usage| usage.cert_sign)
}

/// Whether a trusted certificate may issue others. One of version 1 cannot say so; that it is trusted and issued itself says it.
fn is_trusted_authority(certificate: &Certificate<'_>) -> bool {
    is_authority(certificate) || (certificate.version == 1 && certificate.is_self_issued())
}

/// Verifies what the holder of a certificate's key signed with an algorithm, which is the contents of an AlgorithmIdentifier.
fn verify_signature(
    signer: &Certificate<'_>,
    algorithm: &[u8],
    message: &[u8],
    signature: &[u8],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Fault> {
    let mut fault = Fault::UnsupportedAlgorithm;
    for candidate in algorithms.all {
        let suits = candidate.signature_alg_id().as_ref() == algorithm
            && candidate.public_key_alg_id().as_ref() == signer.key_algorithm;
        if suits {
            match candidate.verify_signature(signer.key, message, signature) {
                Ok(()) => return Ok(()),
                Err(_) => fault = Fault::BadSignature,
            }
        }
    }
    Err(fault)
}

#[cfg(test)]
mod tests;
