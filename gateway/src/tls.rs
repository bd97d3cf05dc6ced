//! TLS for clients: which certificate is shown, and how it is replaced while connections go on.
//!
//! A certificate comes from two PEM files or is made once for development and kept in a directory. [`Tls::reload`]
//! reads it anew; a file that cannot be used leaves the one in use, so a mistake does not stop the gateway.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one place of files: certificates, read at start and on SIGHUP"
)]

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TlsSource {
    /// Two PEM files: the chain, the gateway's own certificate first, and its private key.
    Files {
        /// The chain.
        cert: PathBuf,
        /// The private key: PKCS #8, PKCS #1 or SEC 1.
        key: PathBuf,
    },
    /// A certificate for development that nobody else vouches for, kept in this directory as `development-cert.pem`
    /// and `development-key.pem`. Made if it is missing or names other hosts.
    SelfSigned {
        /// The directory; made if missing.
        dir: PathBuf,
    },
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate and the key cannot be used together.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("no certificate could be made: {0}")]
    Generate(#[from] rcgen::Error),
}

/// The server's side of TLS. Offers HTTP/2 and HTTP/1.1, TLS 1.3 and 1.2.
pub(crate) struct Tls {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the certificate, or makes it for `names` and `addr` if the source says so.
    pub(crate) fn new(source: &TlsSource, names: &[String], addr: IpAddr) -> Result<Self, TlsError> {
        let (chain, key) = match source {
            TlsSource::Files { cert, key } => (cert.clone(), key.clone()),
            TlsSource::SelfSigned { dir } => self_signed(dir, names, addr)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let current = Arc::new(Current(RwLock::new(Arc::new(read(&chain, &key, &provider)?))));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { chain, key, provider, current, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Does handshakes.
    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Shows the certificate that the files hold now to whoever connects from now on.
    ///
    /// # Errors
    /// The certificate in use stays.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(read(&self.chain, &self.key, &self.provider)?);
        *self.current.0.write() = new;
        Ok(())
    }

    /// The file a client may trust, and the SHA-256 of the certificate in use, as `AB:CD:…`.
    pub(crate) fn certificate(&self) -> (PathBuf, String) {
        let der = self.current.0.read().cert.first().map(|der| der.to_vec()).unwrap_or_default();
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der);
        let pairs: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        (self.chain.clone(), pairs.join(":"))
    }
}

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// Refuses a key that does not belong to the certificate.
fn read(chain: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let pem = |path: &Path, error: &dyn std::fmt::Display| TlsError::Pem {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<_, _>>)
        .map_err(|error| pem(chain, &error))?;
    if certificates.is_empty() {
        return Err(pem(chain, &"holds no PEM certificate"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| pem(key, &error))?;
    Ok(CertifiedKey::from_der(certificates, private, provider)?)
}

fn self_signed(dir: &Path, names: &[String], addr: IpAddr) -> Result<(PathBuf, PathBuf), TlsError> {
    let (chain, key, listed) =
        (dir.join("development-cert.pem"), dir.join("development-key.pem"), dir.join("development-names"));
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    all.extend(names.iter().cloned());
    all.push(addr.to_string());
    all.sort();
    all.dedup();
    let text = all.join("\n");
    // The list is written last: a making that was broken off is done again.
    if std::fs::read_to_string(&listed).is_ok_and(|known| known == text) && chain.exists() && key.exists() {
        return Ok((chain, key));
    }
    let made = rcgen::generate_simple_self_signed(all)?;
    std::fs::create_dir_all(dir).map_err(|source| TlsError::File { path: dir.to_owned(), source })?;
    write(&key, &made.signing_key.serialize_pem())?;
    write(&chain, &made.cert.pem())?;
    write(&listed, &text)?;
    Ok((chain, key))
}

/// Nobody else may read what is written.
fn write(path: &Path, text: &str) -> Result<(), TlsError> {
    let error = |source| TlsError::File { path: path.to_owned(), source };
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(error)?;
    file.write_all(text.as_bytes()).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(dir: &Path, names: &[&str]) -> Tls {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Tls::new(&TlsSource::SelfSigned { dir: dir.to_owned() }, &names, [127, 0, 0, 1].into()).unwrap()
    }

    #[test]
    fn a_development_certificate_is_kept_until_it_has_to_name_other_hosts() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let first = tls(dir.path(), &[]).certificate();
        assert_eq!(tls(dir.path(), &[]).certificate(), first);
        assert_ne!(tls(dir.path(), &["weir.example"]).certificate(), first);
        let mode = std::fs::metadata(dir.path().join("development-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_new_certificate_is_shown_after_a_reload_and_an_unusable_one_never() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (used, next) = (tls(dir.path(), &[]), tls(other.path(), &[]));
        let first = used.certificate().1;
        let copy = |name: &str| std::fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
        copy("development-cert.pem");
        assert!(matches!(used.reload(), Err(TlsError::Unusable(_))), "the key is another one");
        assert_eq!(used.certificate().1, first);
        copy("development-key.pem");
        used.reload().unwrap();
        assert_eq!(used.certificate().1, next.certificate().1);
        std::fs::write(dir.path().join("development-cert.pem"), "nothing").unwrap();
        assert!(matches!(used.reload(), Err(TlsError::Pem { .. })));
        assert_eq!(used.certificate().1, next.certificate().1);
    }
}
