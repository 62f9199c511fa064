//! Encryption: the one provider of its arithmetic, and whom the system trusts.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The arithmetic of all encryption here.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Has crates that encrypt by themselves use that arithmetic too; they look for it in the process.
pub fn provide_to_all() {
    // Who was first has provided it, which is as well.
    let _ = ring::default_provider().install_default();
}

/// The variables that say where trusted certificates are.
type TrustVariables = [Option<OsString>; 2];

/// What was loaded last, and under which variables: it takes some milliseconds.
static TRUSTED: Mutex<Option<(TrustVariables, TlsConnector)>> = Mutex::new(None);

/// The client's side of connections to servers that the system trusts: by `SSL_CERT_FILE` and `SSL_CERT_DIR`, or by the
/// usual files.
///
/// # Errors
/// Why there is no certificate to trust, in words.
pub(super) fn trusting_the_system() -> Result<TlsConnector, String> {
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
            "no trusted certificates were found{why}: install ca-certificates, or let SSL_CERT_FILE name a PEM file"
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
