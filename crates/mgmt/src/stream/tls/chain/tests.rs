use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use super::*;

/// Certificates made by openssl.
struct Pki(TempDir);

const DAYS: i64 = 86_400;

impl Pki {
    /// `None`, with the reason printed, without openssl.
    fn new() -> Option<Pki> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: needs openssl, which is not installed");
            return None;
        }
        Some(Pki(TempDir::new().unwrap()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        let output = command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn request(&self, name: &str, kind: &str) {
        self.openssl(&format!(
            "req -new -newkey {kind} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
    }

    /// A certificate issued by `issuer`, by itself if that is its own name.
    fn issue(&self, name: &str, issuer: &str, extensions: &str) {
        self.issue_with(
            name,
            issuer,
            extensions,
            "ec -pkeyopt ec_paramgen_curve:P-256",
            "-sha256",
        );
    }

    fn issue_with(&self, name: &str, issuer: &str, extensions: &str, kind: &str, hash: &str) {
        self.request(name, kind);
        fs::write(self.file("ext"), extensions.replace(';', "\n")).unwrap();
        let by = match issuer == name {
            true => format!("-signkey {name}.key"),
            false => format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial"),
        };
        let ext = if extensions.is_empty() { "" } else { "-extfile ext" };
        self.openssl(&format!(
            "x509 -req -in {name}.csr -out {name}.pem -days 100 {hash} {by} {ext}"
        ));
    }

    fn der(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(&format!("{name}.pem"))).unwrap()
    }

    fn verify_at(&self, now: i64, leaf: &str, sent: &[&str], trusted: &[&str], purpose: Purpose) -> Result<(), Fault> {
        let sent: Vec<_> = sent.iter().map(|name| self.der(name)).collect();
        let trusted: Vec<_> = trusted.iter().map(|name| self.der(name)).collect();
        let sent: Vec<&[u8]> = sent.iter().map(AsRef::as_ref).collect();
        let trusted: Vec<&[u8]> = trusted.iter().map(AsRef::as_ref).collect();
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify(&self.der(leaf), &sent, &trusted, purpose, now, &algorithms)
    }

    fn verify(&self, leaf: &str, sent: &[&str], trusted: &[&str]) -> Result<(), Fault> {
        self.verify_at(now(), leaf, sent, trusted, Purpose::Server)
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + 5
}

const CA: &str = "basicConstraints=critical,CA:TRUE";

#[test]
fn a_certificate_of_a_trusted_authority_is_trusted_while_both_are_valid() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("ca", "ca", CA);
    pki.issue("other", "other", CA);
    pki.issue("leaf", "ca", "subjectAltName=DNS:sc id:45efda84");
    assert_eq!(pki.verify("leaf", &[], &["other", "ca"]), Ok(()));
    assert_eq!(pki.verify("leaf", &[], &["other"]), Err(Fault::UnknownIssuer));
    // What the peer itself sends makes nothing trusted.
    assert_eq!(pki.verify("leaf", &["ca"], &["other"]), Err(Fault::UnknownIssuer));
    let at = |time| pki.verify_at(time, "leaf", &[], &["ca"], Purpose::Client);
    assert_eq!(at(now() - DAYS), Err(Fault::NotYetValid));
    assert_eq!(at(now() + 101 * DAYS), Err(Fault::Expired));
    assert_eq!(at(now() + 99 * DAYS), Ok(()));
}

#[test]
fn certificates_of_version_1_are_trusted_where_open_vswitch_trusts_them() {
    let Some(pki) = Pki::new() else { return };
    pki.issue_with("old", "old", "", "rsa:2048", "-sha256");
    pki.issue_with("leaf", "old", "", "rsa:2048", "-sha512");
    if Certificate::parse(&pki.der("old")).unwrap().version != 1 {
        eprintln!("skipped: this openssl makes no certificates of version 1");
        return;
    }
    assert_eq!(pki.verify("leaf", &[], &["old"]), Ok(()));
    // One that is its own authority, as ovs-pki's self-sign makes them.
    assert_eq!(pki.verify("old", &[], &["old"]), Ok(()));
    // But an authority between must say that it is one.
    pki.issue("root", "root", CA);
    pki.issue("between", "root", "");
    pki.issue("below", "between", "");
    assert_eq!(pki.verify("below", &["between"], &["root"]), Err(Fault::NotAnAuthority));
}

#[test]
fn authorities_may_stand_between_as_far_as_they_say() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("root", "root", "basicConstraints=CA:TRUE,pathlen:1");
    pki.issue("one", "root", CA);
    pki.issue("two", "one", "basicConstraints=CA:TRUE;keyUsage=keyCertSign");
    pki.issue("leaf", "one", "basicConstraints=CA:FALSE");
    pki.issue("deep", "two", "");
    pki.issue("fake", "leaf", "");
    assert_eq!(pki.verify("leaf", &["one"], &["root"]), Ok(()));
    assert_eq!(pki.verify("leaf", &[], &["root"]), Err(Fault::UnknownIssuer));
    assert_eq!(
        pki.verify("deep", &["one", "two"], &["root"]),
        Err(Fault::NotAnAuthority)
    );
    assert_eq!(pki.verify("deep", &["two"], &["one"]), Ok(()));
    assert_eq!(
        pki.verify("fake", &["leaf", "one"], &["root"]),
        Err(Fault::NotAnAuthority)
    );
}

#[test]
fn an_authority_of_the_same_name_with_another_key_is_another() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("ca", "ca", CA);
    pki.issue("leaf", "ca", "");
    let (leaf, first) = (pki.der("leaf"), pki.der("ca"));
    pki.issue("ca", "ca", CA);
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let check = |trusted: &[&[u8]]| verify(&leaf, &[], trusted, Purpose::Server, now(), &algorithms);
    let second = pki.der("ca");
    assert_eq!(check(&[&second]), Err(Fault::BadSignature));
    assert_eq!(check(&[&second, &first]), Ok(()));
}

#[test]
fn purposes_and_unknown_restrictions_are_heeded() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("ca", "ca", CA);
    pki.issue("client", "ca", "extendedKeyUsage=clientAuth");
    pki.issue("signer", "ca", "keyUsage=keyCertSign");
    pki.issue("strange", "ca", "1.2.3.4=critical,DER:0500");

    let purpose = |purpose| pki.verify_at(now(), "client", &[], &["ca"], purpose);
    assert_eq!(purpose(Purpose::Client), Ok(()));
    assert_eq!(purpose(Purpose::Server), Err(Fault::WrongPurpose));
    assert_eq!(pki.verify("signer", &[], &["ca"]), Err(Fault::WrongPurpose));
    assert_eq!(pki.verify("strange", &[], &["ca"]), Err(Fault::UnknownExtension));
}

#[test]
fn damaged_certificates_are_refused_wherever_the_damage_is() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("ca", "ca", CA);
    pki.issue("leaf", "ca", "basicConstraints=CA:FALSE;subjectAltName=DNS:x");
    let (leaf, ca) = (pki.der("leaf").to_vec(), pki.der("ca"));
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let check = |leaf: &[u8]| verify(leaf, &[], &[&ca], Purpose::Server, now(), &algorithms);
    assert_eq!(check(&leaf), Ok(()));
    for at in 0..leaf.len() {
        for bit in [0x01, 0x80] {
            let mut damaged = leaf.clone();
            damaged[at] ^= bit;
            assert!(check(&damaged).is_err(), "bit {bit:#x} of byte {at}");
        }
        assert!(check(&leaf[..at]).is_err());
    }
}

#[test]
fn a_peer_cannot_have_many_signatures_verified() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("root", "root", CA);
    pki.issue("a", "root", CA);
    pki.issue("leaf", "a", "");
    let many = ["a"; MAX_SENT + 1];
    assert_eq!(pki.verify("leaf", &many, &["root"]), Err(Fault::TooComplex));
}
