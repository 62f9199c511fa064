//! Certificates of the server: valid ones, and ones that a client must refuse.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, version};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The kind of a certificate, by its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// No error: signed by an authority, for `localhost`, `127.0.0.1` and `::1`.
    Sound,
    /// Signed by itself.
    SelfSigned,
    /// Expired.
    Expired,
    /// For `example.com`.
    OtherHost,
}

impl FromStr for CertificateKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sound" => Ok(Self::Sound),
            "self-signed" => Ok(Self::SelfSigned),
            "expired" => Ok(Self::Expired),
            "other-host" => Ok(Self::OtherHost),
            _ => Err(format!("{text}: no certificate; give sound, self-signed, expired or other-host")),
        }
    }
}

/// The versions of TLS that the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    Both,
    /// Only 1.2.
    Only12,
    /// Only 1.3.
    Only13,
}

/// A server's certificate and key, and the certificate of the authority that a client must trust.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The authority's certificate as PEM; the server's own if it is self-signed.
    pub ca_pem: String,
    /// The server's certificate as PEM.
    pub certificate_pem: String,
    /// The server's key as PEM.
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    /// The versions of TLS that the server speaks.
    pub versions: TlsVersions,
}

impl Identity {
    /// Makes a new identity with its own authority.
    ///
    /// # Errors
    /// The error of the library that makes certificates.
    pub fn new(kind: CertificateKind) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let names: &[&str] = match kind {
            CertificateKind::OtherHost => &["example.com"],
            _ => &["localhost", "127.0.0.1", "::1"],
        };
        let mut server =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        server.not_before = date_time_ymd(2020, 1, 1);
        server.not_after = date_time_ymd(if kind == CertificateKind::Expired { 2021 } else { 2099 }, 1, 1);
        let key = KeyPair::generate()?;
        server.distinguished_name.push(DnType::CommonName, named("server", &key));
        let (certificate, ca_pem) = if kind == CertificateKind::SelfSigned {
            let certificate = server.self_signed(&key)?;
            let pem = certificate.pem();
            (certificate, pem)
        } else {
            let mut authority = CertificateParams::new(Vec::new())?;
            authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority_key = KeyPair::generate()?;
            authority.distinguished_name.push(DnType::CommonName, named("authority", &authority_key));
            let pem = authority.self_signed(&authority_key)?.pem();
            (server.signed_by(&key, &Issuer::new(authority, authority_key))?, pem)
        };
        Ok(Self {
            ca_pem,
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
            versions: TlsVersions::Both,
        })
    }

    /// Writes `ca.pem`, `server.pem` and `key.pem` into a directory, which is created if necessary.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn write(&self, directory: &Path) -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("ca.pem"), &self.ca_pem)?;
        fs::write(directory.join("server.pem"), &self.certificate_pem)?;
        fs::write(directory.join("key.pem"), &self.key_pem)
    }

    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, Box<dyn Error + Send + Sync>> {
        let versions: &[_] = match self.versions {
            TlsVersions::Both => &[&version::TLS12, &version::TLS13],
            TlsVersions::Only12 => &[&version::TLS12],
            TlsVersions::Only13 => &[&version::TLS13],
        };
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(versions)?
                .with_no_client_auth()
                .with_single_cert(
                    vec![self.certificate.clone()],
                    PrivateKeyDer::try_from(self.key.clone())?,
                )?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A name that is unique to this key: a client looks for an issuer by its name.
fn named(role: &str, key: &KeyPair) -> String {
    let part: Vec<String> =
        key.public_key_raw().iter().skip(1).take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("range-server's {role} {}", part.concat())
}
