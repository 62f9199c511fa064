//! TLS: the cryptography provider, and the certificates that the system trusts.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes the provider the process's default, for crates that use TLS themselves.
pub fn install_default_provider() {
    // If another library has already installed a default provider, that provider works as well.
    let _ = ring::default_provider().install_default();
}

/// Values of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
type TrustVariables = [Option<OsString>; 2];

/// The connector that was made last, and the variables that it was made for. It is cached because loading certificates
/// takes some milliseconds.
static TRUSTED: Mutex<Option<(TrustVariables, TlsConnector)>> = Mutex::new(None);

/// Returns the client's side of TLS connections to servers with a certificate that the system trusts. The trusted
/// certificates are in `SSL_CERT_FILE` and `SSL_CERT_DIR`, or else in the system's usual files.
///
/// # Errors
/// A message that says why there is no trusted certificate.
pub(super) fn system_trust_connector() -> Result<TlsConnector, String> {
    let variables = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
    let mut trusted = TRUSTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((under, connector)) = &*trusted
        && *under == variables
    {
        return Ok(connector.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!(
            "no trusted certificates were found{why}: install ca-certificates, or set SSL_CERT_FILE to a PEM file"
        ));
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    *trusted = Some((variables, connector.clone()));
    Ok(connector)
}
