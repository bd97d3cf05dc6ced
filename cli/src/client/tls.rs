//! Which servers are trusted.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};

/// What is wrong with the server's certificate, or that it has none, and what to do, if that is why there is
/// no connection: another attempt would end the same way.
pub(crate) fn distrusted(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        match error.downcast_ref() {
            Some(rustls::Error::InvalidCertificate(why)) => return Some(advice(why)),
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                return Some("what it answers is not TLS: --url with http:// asks without");
            }
            _ => {}
        }
        // An I/O error made of another is that one, and names its source.
        let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = within.map(|within| within as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

fn advice(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::UnknownIssuer => {
            "no authority that is trusted here signed its certificate: --ca-cert FILE trusts that authority, or the certificate itself"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired by this machine's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet by this machine's clock"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for other names: --url must have one of them"
        }
        _ => {
            "its certificate does not identify a server. One that `openssl req -x509` made calls itself an authority: sign \
             another with it and give it to --ca-cert, or make it with -addext basicConstraints=critical,CA:FALSE"
        }
    }
}

/// Trusts the system's authorities and, if given, the certificates in a PEM file.
pub(crate) fn client_config(extra: Option<&Path>) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = extra {
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("cannot read certificates from {}", path.display()))?;
        anyhow::ensure!(!certificates.is_empty(), "{} holds no PEM certificate", path.display());
        for certificate in certificates {
            roots
                .add(certificate)
                .with_context(|| format!("{}: not a usable certificate", path.display()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("the TLS library offers no usable protocol version")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
