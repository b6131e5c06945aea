//! Certificates of X.509 (RFC 5280), versions 1 to 3, as far as trust in a peer depends on them.
//!
//! Version 1, which has no extensions, is read too: certificate authorities made long ago are still in use with Open vSwitch.

use super::der::{Malformed, Reader, tag};

/// A certificate, read where its bytes stand.
#[derive(Debug, Clone)]
pub(super) struct Certificate<'a> {
    /// All of it.
    pub(super) der: &'a [u8],
    /// What is signed.
    pub(super) signed: &'a [u8],
    /// The algorithm of the signature: the contents of an AlgorithmIdentifier.
    pub(super) algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
    /// 1 to 3.
    pub(super) version: u32,
    /// A name as DER.
    pub(super) issuer: &'a [u8],
    /// A name as DER.
    pub(super) subject: &'a [u8],
    /// Seconds since 1970, both within.
    pub(super) validity: (i64, i64),
    /// SubjectPublicKeyInfo, whole.
    pub(super) spki: &'a [u8],
    /// The kind of the public key: the contents of an AlgorithmIdentifier.
    pub(super) key_algorithm: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) extensions: Extensions,
}

/// The extensions that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) basic_constraints: Option<BasicConstraints>,
    pub(super) key_usage: Option<KeyUsage>,
    pub(super) extended_key_usage: Option<ExtendedKeyUsage>,
    /// What must be understood and is not, or what would restrict the certificate in ways that are not checked here.
    pub(super) not_understood: bool,
}

/// Whether a certificate is that of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BasicConstraints {
    pub(super) ca: bool,
    /// How many authorities may stand between it and a peer's certificate.
    pub(super) path_len: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyUsage {
    /// For handshakes in any way.
    pub(super) handshake: bool,
    /// For signing certificates.
    pub(super) cert_sign: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExtendedKeyUsage {
    pub(super) server: bool,
    pub(super) client: bool,
}

/// Object identifiers, encoded.
mod oid {
    pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
    pub(super) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    pub(super) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
    pub(super) const POLICIES: &[u8] = &[0x55, 0x1d, 0x20];
    pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
    pub(super) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    pub(super) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
}

impl<'a> Certificate<'a> {
    pub(super) fn parse(der: &'a [u8]) -> Result<Certificate<'a>, Malformed> {
        let mut outer = Reader::new(der);
        let mut certificate = outer.sequence()?;
        outer.end()?;
        let signed = certificate.expect(tag::SEQUENCE)?;
        let algorithm = certificate.expect(tag::SEQUENCE)?.content;
        let signature = certificate.element()?.bit_string()?;
        certificate.end()?;

        let mut fields = signed.reader();
        let version = match fields.optional(tag::explicit(0))? {
            None => 1,
            Some(version) => match version.reader().element()?.small()? {
                v @ 0..=2 => v + 1,
                _ => return Err(Malformed),
            },
        };
        fields.expect(tag::INTEGER)?;
        // The algorithm stands twice, and must be the same.
        if fields.expect(tag::SEQUENCE)?.content != algorithm {
            return Err(Malformed);
        }
        let issuer = fields.expect(tag::SEQUENCE)?.whole;
        let mut validity = fields.sequence()?;
        let validity_times = (validity.element()?.time()?, validity.element()?.time()?);
        validity.end()?;
        let subject = fields.expect(tag::SEQUENCE)?.whole;
        let spki = fields.expect(tag::SEQUENCE)?;
        let mut key = spki.reader();
        let key_algorithm = key.expect(tag::SEQUENCE)?.content;
        let key_bits = key.element()?.bit_string()?;
        key.end()?;
        fields.optional(tag::implicit(1))?;
        fields.optional(tag::implicit(2))?;
        let extensions = match fields.optional(tag::explicit(3))? {
            None => Extensions::default(),
            Some(_) if version < 3 => return Err(Malformed),
            Some(extensions) => Extensions::parse(extensions.reader())?,
        };
        fields.end()?;
        Ok(Certificate {
            der,
            signed: signed.whole,
            algorithm,
            signature,
            version,
            issuer,
            subject,
            validity: validity_times,
            spki: spki.whole,
            key_algorithm,
            key: key_bits,
            extensions,
        })
    }

    /// Whether its issuer is itself, by name.
    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }
}

impl Extensions {
    fn parse(mut reader: Reader<'_>) -> Result<Extensions, Malformed> {
        let mut list = reader.sequence()?;
        reader.end()?;
        let mut found = Extensions::default();
        while !list.is_empty() {
            let mut extension = list.sequence()?;
            let id = extension.expect(tag::OID)?.content;
            let critical = match extension.optional(tag::BOOLEAN)? {
                Some(critical) => critical.boolean()?,
                None => false,
            };
            let value = extension.expect(tag::OCTET_STRING)?.content;
            extension.end()?;
            found.take(id, critical, value)?;
        }
        Ok(found)
    }

    fn take(&mut self, id: &[u8], critical: bool, value: &[u8]) -> Result<(), Malformed> {
        match id {
            oid::BASIC_CONSTRAINTS => once(&mut self.basic_constraints, BasicConstraints::parse(value)?),
            oid::KEY_USAGE => once(&mut self.key_usage, KeyUsage::parse(value)?),
            oid::EXTENDED_KEY_USAGE => once(&mut self.extended_key_usage, ExtendedKeyUsage::parse(value)?),
            // Names are not checked, and no policy is asked for.
            oid::SUBJECT_ALT_NAME | oid::POLICIES => Ok(()),
            oid::NAME_CONSTRAINTS => {
                self.not_understood = true;
                Ok(())
            }
            _ => {
                self.not_understood |= critical;
                Ok(())
            }
        }
    }
}

/// An extension may occur once.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}

impl BasicConstraints {
    fn parse(value: &[u8]) -> Result<BasicConstraints, Malformed> {
        let mut outer = Reader::new(value);
        let mut fields = outer.sequence()?;
        outer.end()?;
        let ca = match fields.optional(tag::BOOLEAN)? {
            Some(ca) => ca.boolean()?,
            None => false,
        };
        let path_len = match fields.optional(tag::INTEGER)? {
            Some(len) => Some(len.small()?),
            None => None,
        };
        fields.end()?;
        Ok(BasicConstraints { ca, path_len })
    }
}

impl KeyUsage {
    /// Bits are counted from the most significant (RFC 5280 section 4.2.1.3).
    fn parse(value: &[u8]) -> Result<KeyUsage, Malformed> {
        let mut outer = Reader::new(value);
        let bits = outer.expect(tag::BIT_STRING)?.content;
        outer.end()?;
        let (unused, bits) = bits.split_first().ok_or(Malformed)?;
        if *unused > 7 {
            return Err(Malformed);
        }
        let first = bits.first().copied().unwrap_or(0);
        Ok(KeyUsage {
            // digitalSignature, keyEncipherment, keyAgreement
            handshake: first & 0b1010_1000 != 0,
            cert_sign: first & 0b0000_0100 != 0,
        })
    }
}

impl ExtendedKeyUsage {
    fn parse(value: &[u8]) -> Result<ExtendedKeyUsage, Malformed> {
        let mut outer = Reader::new(value);
        let mut purposes = outer.sequence()?;
        outer.end()?;
        let mut found = ExtendedKeyUsage {
            server: false,
            client: false,
        };
        while !purposes.is_empty() {
            let purpose = purposes.expect(tag::OID)?.content;
            found.server |= purpose == oid::SERVER_AUTH;
            found.client |= purpose == oid::CLIENT_AUTH;
        }
        Ok(found)
    }
}
