//! Certificates that a client trusts, and certificates that it must not trust.

use crate::{Client, content, serve};
use range_server::{CertificateKind, Identity, Options, RangeServer, TlsVersions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;

fn connect(server: &RangeServer, pem: &str) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let plain = Client::new(server.address());
    Client { stream: StreamOwned::new(connection, plain.stream), left: Vec::new() }
}

fn secure(kind: CertificateKind, versions: TlsVersions) -> (tempfile::TempDir, RangeServer, String) {
    let mut identity = Identity::new(kind).unwrap();
    identity.versions = versions;
    let pem = identity.ca_pem.clone();
    let (directory, server) = serve(Options { tls: Some(identity), ..Options::default() });
    assert!(server.url().starts_with("https://127.0.0.1:"));
    (directory, server, pem)
}

#[test]
fn both_versions_are_spoken() {
    for (versions, spoken) in [
        (TlsVersions::Both, ProtocolVersion::TLSv1_3),
        (TlsVersions::Only13, ProtocolVersion::TLSv1_3),
        (TlsVersions::Only12, ProtocolVersion::TLSv1_2),
    ] {
        let (_directory, server, pem) = secure(CertificateKind::Sound, versions);
        let mut client = connect(&server, &pem);
        for (first, last) in [(5, 14), (100, 110_099), (0, 599_999)] {
            let reply = client.get("/object", &format!("bytes={first}-{last}"));
            assert!(
                reply.status == 206 && reply.body == content()[first..=last],
                "{versions:?}: {first}-{last}"
            );
        }
        assert_eq!(client.stream.conn.protocol_version(), Some(spoken));
        server.set_faults(vec!["cut:always:1000".parse().unwrap()]);
        let reply = client.get("/object", "bytes=0-9999");
        assert_eq!((reply.body.len(), reply.cut), (1000, Some(ErrorKind::UnexpectedEof)));
        assert_eq!(server.stats().connections, 1);
    }
}

#[test]
fn certificates_are_bad_as_they_say() {
    let (_directory, sound, _) = secure(CertificateKind::Sound, TlsVersions::Both);
    let stranger = Identity::new(CertificateKind::Sound).unwrap().ca_pem;
    let cases = [
        (CertificateKind::Expired, None, "Expired"),
        (CertificateKind::OtherHost, None, "NotValidForName"),
        (CertificateKind::SelfSigned, Some(&stranger), "UnknownIssuer"),
    ];
    let refused = |server: &RangeServer, pem: &str| {
        let mut client = connect(server, pem);
        let error = client.stream.conn.complete_io(&mut client.stream.sock).unwrap_err();
        format!("{error:?}")
    };
    for (kind, other, expected) in cases {
        let (_directory, server, own) = secure(kind, TlsVersions::Both);
        let error = refused(&server, other.unwrap_or(&own));
        assert!(error.contains(expected), "{kind:?}: {error}");
        while server.stats().failed_handshakes == 0 {
            std::thread::yield_now();
        }
    }
    let error = refused(&sound, &stranger);
    assert!(error.contains("UnknownIssuer"), "{error}");
}
