//! `--ssl-protocols`, `--ssl-ciphers` and `--ssl-ciphersuites`: which versions and ciphers a
//! handshake may choose, in OpenSSL's syntax (openssl-ciphers(1)).
//!
//! Only what rustls has can be chosen: TLS 1.2 and 1.3, ciphers with forward secrecy and
//! authentication. A list that selects none of these is an error.

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// Why a list is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// Of versions.
    #[error("{0}: SSL protocol not recognized (TLSv1.2 and TLSv1.3 are supported)")]
    UnknownProtocol(String),
    /// Of versions, all of them too old.
    #[error("{0}: none of these SSL protocols is supported (TLSv1.2 and TLSv1.3 are)")]
    NoProtocol(String),
    /// Of ciphers.
    #[error("{0}: no cipher match (AES-GCM and ChaCha20-Poly1305 with ECDHE are supported)")]
    NoCipher(String),
    /// Of cipher suites of TLS 1.3.
    #[error(
        "{0}: no cipher suite match (TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256 and \
         TLS_CHACHA20_POLY1305_SHA256 are supported)"
    )]
    NoSuite(String),
}

/// The names by which OpenSSL knows the ciphers of TLS 1.2, and theirs.
const NAMES: &[(&str, CipherSuite)] = &[
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The versions that a list names, separated by commas or spaces.
///
/// # Errors
/// A name that is none, or nothing but versions that are too old.
pub(super) fn protocols(list: &str) -> Result<Vec<&'static SupportedProtocolVersion>, CipherError> {
    let mut chosen = Vec::new();
    for word in list.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => chosen.push(&TLS12),
            "tlsv1.3" => chosen.push(&TLS13),
            "tlsv1" | "tlsv1.0" | "tlsv1.1" => {}
            _ => return Err(CipherError::UnknownProtocol(word.to_owned())),
        }
    }
    // Open vSwitch's list sets the limits of a range that has no upper end of its own.
    if chosen.is_empty() {
        return Err(CipherError::NoProtocol(list.to_owned()));
    }
    Ok(chosen)
}

/// The ciphers of TLS 1.2 that a list of OpenSSL's chooses.
///
/// # Errors
/// The list leaves none.
pub(super) fn ciphers(list: &str) -> Result<Vec<SupportedCipherSuite>, CipherError> {
    let mut chosen: Vec<&(&str, CipherSuite)> = Vec::new();
    let mut killed: Vec<&str> = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        match word.split_at(1) {
            ("!", kinds) => {
                killed.extend(NAMES.iter().map(|(name, _)| *name).filter(|name| is(name, kinds)));
                chosen.retain(|(name, _)| !is(name, kinds));
            }
            ("-", kinds) => chosen.retain(|(name, _)| !is(name, kinds)),
            ("+", kinds) => chosen.sort_by_key(|(name, _)| is(name, kinds)),
            // A level of security or an order: what is here is above every level, and ordered by
            // strength.
            ("@", _) => {}
            _ => {
                let more = NAMES
                    .iter()
                    .filter(|(name, _)| is(name, word) && !killed.contains(name));
                for suite in more {
                    if !chosen.contains(&suite) {
                        chosen.push(suite);
                    }
                }
            }
        }
    }
    if chosen.is_empty() {
        return Err(CipherError::NoCipher(list.to_owned()));
    }
    let named = chosen
        .iter()
        .filter_map(|(_, id)| ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == *id));
    Ok(named.copied().collect())
}

/// The cipher suites of TLS 1.3 that a list names, separated by colons, most wanted first.
///
/// # Errors
/// An unknown name, or an empty list.
pub(super) fn ciphersuites(list: &str) -> Result<Vec<SupportedCipherSuite>, CipherError> {
    let known = |name: &str| {
        let id = match name {
            "TLS_AES_256_GCM_SHA384" => CipherSuite::TLS13_AES_256_GCM_SHA384,
            "TLS_AES_128_GCM_SHA256" => CipherSuite::TLS13_AES_128_GCM_SHA256,
            "TLS_CHACHA20_POLY1305_SHA256" => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            _ => return None,
        };
        ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == id).copied()
    };
    let mut chosen = Vec::new();
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        let suite = known(name).ok_or_else(|| CipherError::NoSuite(name.to_owned()))?;
        if !chosen.contains(&suite) {
            chosen.push(suite);
        }
    }
    if chosen.is_empty() {
        return Err(CipherError::NoSuite(list.to_owned()));
    }
    Ok(chosen)
}

/// What a handshake may choose from: these ciphers of TLS 1.2 and cipher suites of TLS 1.3; all of
/// a version where none was chosen.
pub(super) fn chosen(ciphers: &[SupportedCipherSuite], suites: &[SupportedCipherSuite]) -> Vec<SupportedCipherSuite> {
    let all = |newer: bool| {
        ALL_CIPHER_SUITES
            .iter()
            .filter(move |suite| suite.tls13().is_some() == newer)
    };
    let of = |chosen: &[SupportedCipherSuite], newer: bool| match chosen.is_empty() {
        true => all(newer).copied().collect(),
        false => chosen.to_vec(),
    };
    [of(suites, true), of(ciphers, false)].concat()
}

/// Whether a cipher is of all the kinds joined by `+`.
fn is(name: &str, kinds: &str) -> bool {
    kinds.split('+').all(|kind| {
        name == kind
            || match kind {
                "ALL" | "DEFAULT" | "COMPLEMENTOFALL" | "HIGH" | "TLSv1.2" | "AEAD" => kind != "COMPLEMENTOFALL",
                "kECDHE" | "kEECDH" | "ECDHE" | "EECDH" => true,
                "ECDSA" | "aECDSA" => name.contains("ECDSA"),
                "aRSA" => name.contains("-RSA-"),
                "AES" | "AESGCM" => name.contains("AES"),
                "AES128" => name.contains("AES128"),
                "AES256" => name.contains("AES256"),
                "CHACHA20" => name.contains("CHACHA20"),
                "SHA256" => name.ends_with("SHA256"),
                "SHA384" => name.ends_with("SHA384"),
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        ciphers(list)
            .unwrap()
            .iter()
            .map(|suite| NAMES.iter().find(|(_, id)| *id == suite.suite()).unwrap().0)
            .collect()
    }

    #[test]
    fn the_defaults_of_open_vswitch_leave_all() {
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), NAMES.len());
        assert_eq!(names("DEFAULT:@SECLEVEL=2").len(), NAMES.len());
    }

    #[test]
    fn ciphers_are_chosen_as_openssl_reads_the_list() {
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(names("aRSA+AES256"), ["ECDHE-RSA-AES256-GCM-SHA384"]);
        assert_eq!(names("HIGH:!AES:aRSA:!ECDSA"), ["ECDHE-RSA-CHACHA20-POLY1305"]);
        assert_eq!(names("CHACHA20:-aRSA:HIGH").len(), NAMES.len());
        assert_eq!(names("CHACHA20:-aRSA:HIGH")[0], "ECDHE-ECDSA-CHACHA20-POLY1305");
    }

    #[test]
    fn a_list_that_leaves_nothing_is_an_error() {
        for list in ["", "RC4-SHA", "AES128-SHA", "HIGH:!ALL"] {
            assert_eq!(ciphers(list).unwrap_err(), CipherError::NoCipher(list.to_owned()));
        }
    }

    #[test]
    fn suites_of_tls_1_3_are_chosen_by_name_and_apart_from_the_ciphers_of_tls_1_2() {
        let suites = ciphersuites("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256").unwrap();
        let ids: Vec<CipherSuite> = suites.iter().map(SupportedCipherSuite::suite).collect();
        let expected = [
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            CipherSuite::TLS13_AES_128_GCM_SHA256,
        ];
        assert_eq!(ids, expected);
        assert_eq!(chosen(&[], &suites).len(), 2 + NAMES.len());
        assert_eq!(chosen(&ciphers("aRSA+AES256").unwrap(), &[]).len(), 3 + 1);
        assert_eq!(chosen(&[], &[]).len(), 3 + NAMES.len());
        for list in ["", "TLS_AES_128_CCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
            assert!(matches!(ciphersuites(list), Err(CipherError::NoSuite(_))), "{list}");
        }
    }

    #[test]
    fn versions_too_old_are_left_out_and_alone_are_an_error() {
        assert_eq!(protocols("TLSv1,TLSv1.1,TLSv1.2").unwrap(), [&TLS12]);
        assert_eq!(protocols("TLSv1.3 TLSv1.2").unwrap(), [&TLS13, &TLS12]);
        assert!(matches!(protocols("TLSv1,TLSv1.1"), Err(CipherError::NoProtocol(_))));
        assert!(matches!(protocols("SSLv3"), Err(CipherError::UnknownProtocol(_))));
    }
}
