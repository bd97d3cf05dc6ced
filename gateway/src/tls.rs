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
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use crate::host::host_name;

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
    /// The key is another certificate's.
    #[error(
        "{key} is not the key of the first certificate in {chain}, which must be the gateway's own: name files that belong together",
        key = key.display(), chain = chain.display()
    )]
    Mismatch {
        /// The file of the chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The library refuses its settings: a defect.
    #[error("no TLS: {0}")]
    Settings(#[from] rustls::Error),
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
    config: Arc<ServerConfig>,
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
        Ok(Self { chain, key, provider, current, config: Arc::new(config) })
    }

    /// What handshakes are done with.
    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
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

/// Says which file is wrong, and what is missing in it. Refuses a key that does not belong to the certificate.
fn read(chain: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let wrong = |path: &Path, reason: String| TlsError::Pem { path: path.to_owned(), reason };
    let text =
        |path: &Path| std::fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source });
    let (chain_text, key_text) = (text(chain)?, text(key)?);
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&chain_text)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(chain, format!("is no PEM file that can be read: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong(
            chain,
            "no certificate in it: it must hold the chain as PEM, the gateway's own first".into(),
        ));
    }
    let private =
        PrivateKeyDer::from_pem_slice(&key_text).map_err(|error| wrong(key, no_key(&key_text, &error)))?;
    CertifiedKey::from_der(certificates, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { chain: chain.to_owned(), key: key.to_owned() }
        }
        rustls::Error::InvalidCertificate(why) => {
            wrong(chain, format!("its first certificate cannot be used: {why:?}"))
        }
        error => wrong(key, format!("its private key cannot be used: {error}")),
    })
}

/// What is to be done about a file in which no key can be read.
fn no_key(text: &[u8], error: &pem::Error) -> String {
    // So it says in both forms that such keys have; neither reads as a key.
    if text.windows(9).any(|part| part == b"ENCRYPTED") {
        return "its private key is encrypted, and nobody is asked for a password: store it decrypted (openssl pkey), for its \
                owner alone"
            .to_owned();
    }
    match error {
        pem::Error::NoItemsFound => {
            "no private key in it: it must hold one as PEM (PKCS #8, PKCS #1 or SEC 1)".to_owned()
        }
        error => format!("is no PEM file that can be read: {error}"),
    }
}

fn self_signed(dir: &Path, names: &[String], addr: IpAddr) -> Result<(PathBuf, PathBuf), TlsError> {
    let (chain, key, listed) =
        (dir.join("development-cert.pem"), dir.join("development-key.pem"), dir.join("development-names"));
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    // Without what stands around them in a URL.
    all.extend(names.iter().map(|name| host_name(name).trim_matches(['[', ']']).to_owned()));
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
        let named = tls(dir.path(), &["weir.example"]).certificate();
        assert_ne!(named, first);
        assert_eq!(tls(dir.path(), &["Weir.example:8443"]).certificate(), named, "the same name");
        drop(tls(dir.path(), &["[fd00::1]:8443"]));
        let names = std::fs::read_to_string(dir.path().join("development-names")).unwrap();
        assert!(names.lines().any(|name| name == "fd00::1"), "an address, and no name: {names}");
        let mode = std::fs::metadata(dir.path().join("development-key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_cannot_be_used_are_named_with_what_they_lack() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop((tls(dir.path(), &[]), tls(other.path(), &[])));
        let (cert, key) = ("development-cert.pem", "development-key.pem");
        let (own, strange) = (|name| dir.path().join(name), |name| other.path().join(name));
        std::fs::write(own("text"), "hello").unwrap();
        let label = "ENCRYPTED PRIVATE KEY";
        std::fs::write(own("locked"), format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n"))
            .unwrap();
        let label = "RSA PRIVATE KEY";
        let old = format!("-----BEGIN {label}-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END {label}-----\n");
        std::fs::write(own("locked before"), old).unwrap();
        std::fs::write(own("cut"), "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
        for (chain, private, named, said) in [
            (own(key), own(key), own(key), "no certificate in it"),
            (own("text"), own(key), own("text"), "no certificate in it"),
            (own("none"), own(key), own("none"), "No such file"),
            (own(cert), own(cert), own(cert), "no private key in it"),
            (own(cert), own("text"), own("text"), "no private key in it"),
            (own(cert), own("locked"), own("locked"), "openssl pkey"),
            (own(cert), own("locked before"), own("locked before"), "openssl pkey"),
            (own(cert), own("cut"), own("cut"), "is no PEM file that can be read"),
            (own(cert), own("none"), own("none"), "No such file"),
            (own(cert), strange(key), strange(key), "is not the key of the first certificate in"),
            (own(cert), strange(key), own(cert), "is not the key of the first certificate in"),
        ] {
            let files = TlsSource::Files { cert: chain, key: private };
            let error = Tls::new(&files, &[], [127, 0, 0, 1].into()).err().unwrap().to_string();
            assert!(error.contains(named.to_str().unwrap()) && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_new_certificate_is_shown_after_a_reload_and_an_unusable_one_never() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (used, next) = (tls(dir.path(), &[]), tls(other.path(), &[]));
        let first = used.certificate().1;
        let copy = |name: &str| std::fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
        copy("development-cert.pem");
        assert!(matches!(used.reload(), Err(TlsError::Mismatch { .. })), "the key is another one");
        assert_eq!(used.certificate().1, first);
        copy("development-key.pem");
        used.reload().unwrap();
        assert_eq!(used.certificate().1, next.certificate().1);
        std::fs::write(dir.path().join("development-cert.pem"), "nothing").unwrap();
        assert!(matches!(used.reload(), Err(TlsError::Pem { .. })));
        assert_eq!(used.certificate().1, next.certificate().1);
    }
}
