//! HTTPS and WSS: certificates, and what is offered in a handshake.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

/// PEM files of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificate chain, the server's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written, or is no PEM.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key do not go together.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("no certificate could be made: {0}")]
    Generate(#[from] rcgen::Error),
}

fn file_error(path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

/// The configuration of a listener: HTTP/2 and HTTP/1.1, TLS 1.2 and 1.3.
///
/// # Errors
/// [`TlsError`].
pub(crate) fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file_error(&files.cert, error))?;
    if chain.is_empty() {
        return Err(file_error(&files.cert, "there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| file_error(&files.key, error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A certificate for this machine's own names, made once and kept in `dir`: for development, since nobody trusts it
/// who was not told to.
///
/// # Errors
/// [`TlsError`] if the directory cannot be written.
pub fn self_signed(dir: &Path) -> Result<TlsFiles, TlsError> {
    let files = TlsFiles { cert: dir.join("development-cert.pem"), key: dir.join("development-key.pem") };
    if files.cert.exists() && files.key.exists() {
        return Ok(files);
    }
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names)?;
    fs::create_dir_all(dir).map_err(|error| file_error(dir, error))?;
    write_private(&files.key, &made.signing_key.serialize_pem())
        .map_err(|error| file_error(&files.key, error))?;
    fs::write(&files.cert, made.cert.pem()).map_err(|error| file_error(&files.cert, error))?;
    Ok(files)
}

/// Only the owner may read it.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_development_certificate_is_made_once_and_usable() {
        let dir = tempfile::tempdir().unwrap();
        let files = self_signed(dir.path()).unwrap();
        let first = fs::read(&files.cert).unwrap();
        assert_eq!(self_signed(dir.path()).unwrap(), files);
        assert_eq!(fs::read(&files.cert).unwrap(), first);
        server_config(&files).unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&files.key).unwrap().permissions().mode() & 0o77, 0);
    }

    #[test]
    fn files_that_do_not_serve_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) =
            (self_signed(&dir.path().join("a")).unwrap(), self_signed(&dir.path().join("b")).unwrap());
        let missing = TlsFiles { cert: dir.path().join("none.pem"), ..one.clone() };
        assert!(server_config(&missing).unwrap_err().to_string().contains("none.pem"));
        let empty = TlsFiles { cert: one.key.clone(), ..one.clone() };
        assert!(server_config(&empty).unwrap_err().to_string().contains("no certificate"));
        let mixed = TlsFiles { key: two.key, ..one };
        assert!(matches!(server_config(&mixed), Err(TlsError::Unusable(_))));
    }
}
