//! TLS between nodes. A node is identified by its certificate itself, not by an issuer or a name. The digest of the
//! certificate is sent along with the node's address, and a client accepts no other certificate.

use super::tls::provider;
use base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, ServerConfig, SignatureScheme, version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The SHA-256 of a node's certificate (DER).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificatePin(pub [u8; 32]);

/// A server's certificate and private key. `Debug` shows neither.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsIdentity {
    /// Makes a new key and a self-signed certificate for one job. The job's nodes exchange the pins.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no key can be made, and in a build without the feature `certificates`.
    #[cfg(feature = "certificates")]
    pub fn for_this_job() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["foreload".to_owned()])
            .map_err(|error| Error::Unavailable(format!("cannot make a certificate for peers: {error}")))?;
        let key =
            PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key as it was just written");
        Ok(Self { chain: vec![made.cert.into()], key })
    }

    /// Fails, because this build cannot make certificates.
    ///
    /// # Errors
    /// [`Error::Unavailable`] that names the missing feature.
    #[cfg(not(feature = "certificates"))]
    pub fn for_this_job() -> Result<Self> {
        Err(Error::left_out("certificates for peers", "certificates"))
    }

    /// Returns the pin by which the other nodes recognise this node.
    pub fn pin(&self) -> CertificatePin {
        pin_of(&self.chain[0])
    }

    /// Returns the server's side of TLS connections.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` if the key does not belong to the certificate.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has suites for TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| {
                Error::config(
                    "peers",
                    format!(
                        "tls: the private key cannot be used with the certificate: {error}; give the \
                         certificate's own key"
                    ),
                )
            })?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsIdentity(secret)")
    }
}

/// Returns the client's side of TLS connections to the node with this certificate.
pub fn connector(pin: CertificatePin) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has suites for TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier {
            pin,
            algorithms: ring::default_provider().signature_verification_algorithms,
        }))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Returns a placeholder: the handshake needs a server name, but nothing checks it.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("foreload").expect("a DNS name")
}

fn pin_of(certificate: &CertificateDer<'_>) -> CertificatePin {
    CertificatePin(Sha256::digest(certificate.as_ref()).into())
}

/// Accepts one certificate only. The handshake's signature proves that the server has the private key of the
/// certificate.
#[derive(Debug)]
struct PinVerifier {
    pin: CertificatePin,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if pin_of(certificate) == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(TlsError::General("the certificate is not the one that the node announced".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("only TLS 1.3 is supported".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
