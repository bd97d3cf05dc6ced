//! From a URL to a store.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::client::PacedConnector;
use super::error::StoreError;
use super::folder::PacedFolder;
use super::objects::{Store, StoreConfig};
use super::pacer::Pacer;

/// Requests of the store's own library are tried again for at most this long.
const RETRY_FOR: Duration = Duration::from_secs(20);
const RETRIES: usize = 5;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Why a store cannot be used. Unless that may pass, somebody has to change something.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is no URL that names a store.
    #[error("object store {url:?}: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The folder cannot be made or used.
    #[error("object store: folder {path}: {source}")]
    Folder {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Settings or credentials do not fit.
    #[error("object store {url}: {source}")]
    Settings {
        /// Where.
        url: String,
        /// What the store's library says.
        source: object_store::Error,
    },
    /// The store does not do what is relied upon, or refuses these credentials.
    #[error("object store {url} cannot be used: {why}")]
    SelfTest {
        /// Where.
        url: String,
        /// What it did.
        why: String,
    },
    /// The store cannot be reached, or could not do it now: whether it does what is relied upon is not known.
    #[error("object store {url} does not answer: {source}")]
    NoAnswer {
        /// Where.
        url: String,
        /// What became of asking.
        source: StoreError,
    },
}

impl OpenError {
    /// Trying again may help, without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }
}

impl Store {
    /// Opens the store at `config.url`; nothing is asked of it yet, see [`Store::self_test`].
    ///
    /// | URL | store | credentials from the environment |
    /// |-----|-------|----------------------------------|
    /// | `file:///folder` | a folder, made if missing unless `config` says otherwise; every object is synced | |
    /// | `s3://bucket/prefix` | S3 and compatibles | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, or the machine's role |
    /// | `gs://bucket/prefix` | Google Cloud Storage | `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_BASE_URL`, `GOOGLE_ALLOW_HTTP`, or the machine's account |
    /// | `az://container/prefix` | Azure Blob Storage | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_ENDPOINT`, `AZURE_ALLOW_HTTP`, or the machine's identity |
    ///
    /// `config.options` go by the same names and win over the environment.
    ///
    /// # Errors
    /// [`OpenError`], but for those of [`Store::self_test`].
    pub fn open(config: StoreConfig) -> Result<Self, OpenError> {
        let Named { kind, prefix } = named(&config.url)?;
        let pacer = Arc::new(Pacer::new(config.upload_pace()));
        let settings = |source| OpenError::Settings { url: config.url.clone(), source };
        let mut root = None;
        let (inner, endpoint): (Arc<dyn ObjectStore>, _) = match kind {
            Kind::Folder(path) => {
                let inner = folder(&path, config.makes_folder)?;
                root = Some(path.into());
                (Arc::new(PacedFolder::new(inner, Arc::clone(&pacer))), None)
            }
            Kind::S3 => s3(&config, &pacer).map_err(settings)?,
            Kind::Google => gcs(&config, &pacer).map_err(settings)?,
            Kind::Azure => azure(&config, &pacer).map_err(settings)?,
        };
        let place = endpoint.map_or_else(|| config.url.clone(), |at| format!("{} at {at}", config.url));
        let mut store = Self::over(inner, prefix, config);
        (store.place, store.root, store.pacer) = (place.into(), root, pacer);
        Ok(store)
    }
}

/// What a URL names.
struct Named {
    kind: Kind,
    /// Before the names of all objects; of a folder nothing.
    prefix: Path,
}

enum Kind {
    Folder(PathBuf),
    S3,
    Google,
    Azure,
}

/// Looks at a URL alone: whether it names a store, not whether there is one.
///
/// # Errors
/// [`OpenError::Url`].
pub fn check_url(url: &str) -> Result<(), OpenError> {
    named(url).map(drop)
}

fn named(given: &str) -> Result<Named, OpenError> {
    let refused = |why: String| OpenError::Url { url: given.to_owned(), why };
    let url = Url::parse(given).map_err(|error| refused(unread(given, error)))?;
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        let why = "credentials and options do not belong into it; in a name # is %23 and ? is %3F";
        return Err(refused(why.to_owned()));
    }
    let prefix = if url.scheme() == "file" { "" } else { url.path() };
    let prefix = Path::from_url_path(prefix).map_err(|error| refused(error.to_string()))?;
    let kind = match url.scheme() {
        "file" => Kind::Folder(
            url.to_file_path().map_err(|()| refused("it names no folder of this machine".to_owned()))?,
        ),
        "s3" => Kind::S3,
        "gs" => Kind::Google,
        "az" => Kind::Azure,
        other => return Err(refused(format!("{other}: is no store; file:, s3:, gs: and az: are"))),
    };
    Ok(Named { kind, prefix })
}

/// Why a URL cannot be read. What is most often given instead of one is the path of a folder.
fn unread(given: &str, error: url::ParseError) -> String {
    match error {
        url::ParseError::RelativeUrlWithoutBase if given.starts_with('/') => {
            format!("a folder is written file://{given}")
        }
        url::ParseError::RelativeUrlWithoutBase => {
            "it begins with s3://, gs:// or az://, or with file:/// and the whole path of a folder".to_owned()
        }
        error => error.to_string(),
    }
}

/// Makes a folder, and those above it, for their owner alone: messages will lie there. One that is there
/// stays as it is.
pub(crate) fn make_folder(path: &FilePath) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn folder(path: &FilePath, is_made: bool) -> Result<LocalFileSystem, OpenError> {
    let refused = |source| OpenError::Folder { path: path.display().to_string(), source };
    if is_made { make_folder(path) } else { path.metadata().map(drop) }.map_err(refused)?;
    let store =
        LocalFileSystem::new_with_prefix(path).map_err(|error| refused(std::io::Error::other(error)))?;
    Ok(store.with_fsync(true))
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() }
}

/// How long the library waits. As settings and not as [`object_store::ClientOptions`], which would replace
/// what the environment says of the client: a proxy, plain HTTP.
fn limits(config: &StoreConfig) -> [(ClientConfigKey, String); 2] {
    [
        (ClientConfigKey::ConnectTimeout, format!("{}ms", CONNECT_WITHIN.as_millis())),
        (ClientConfigKey::Timeout, format!("{}ms", config.patience.as_millis())),
    ]
}

/// Folds the limits, and options that the store knows, into its builder; other options are of other stores.
macro_rules! configured {
    ($builder:expr, $key:ident, $config:expr, $pacer:expr) => {{
        let connector = PacedConnector {
            pacer: Arc::clone($pacer),
            connect_within: CONNECT_WITHIN,
            patience: $config.patience,
        };
        let builder =
            $builder.with_url($config.url.clone()).with_retry(retries()).with_http_connector(connector);
        let builder = limits($config)
            .into_iter()
            .fold(builder, |builder, (key, value)| builder.with_config($key::Client(key), value));
        $config.options.iter().fold(builder, |builder, (key, value)| {
            match key.to_ascii_lowercase().parse::<$key>() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            }
        })
    }};
}

/// Whether requests are signed without a hash of what they carry.
const UNSIGNED_PAYLOAD: &str = "AWS_UNSIGNED_PAYLOAD";

/// A store, and the address that it is asked at unless that follows from the URL.
type Opened = (Arc<dyn ObjectStore>, Option<String>);

fn s3(config: &StoreConfig, pacer: &Arc<Pacer>) -> object_store::Result<Opened> {
    let builder = s3_builder(config, pacer, std::env::var_os(UNSIGNED_PAYLOAD).is_some());
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    Ok((Arc::new(builder.build()?), endpoint))
}

/// Bodies are not signed unless the environment or an option asks for it: what was sent is read back and
/// compared, and hashing it costs both ends processors (docs/performance/experiments.md).
fn s3_builder(config: &StoreConfig, pacer: &Arc<Pacer>, is_set: bool) -> AmazonS3Builder {
    let builder = AmazonS3Builder::from_env();
    let builder = if is_set { builder } else { builder.with_unsigned_payload(true) };
    configured!(builder, AmazonS3ConfigKey, config, pacer)
}

fn gcs(config: &StoreConfig, pacer: &Arc<Pacer>) -> object_store::Result<Opened> {
    let builder = configured!(GoogleCloudStorageBuilder::from_env(), GoogleConfigKey, config, pacer);
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    Ok((Arc::new(builder.build()?), endpoint))
}

fn azure(config: &StoreConfig, pacer: &Arc<Pacer>) -> object_store::Result<Opened> {
    let builder = configured!(MicrosoftAzureBuilder::from_env(), AzureConfigKey, config, pacer);
    let of = |key| builder.get_config_value(key);
    // Containers of different accounts have the same names.
    let endpoint = of(&AzureConfigKey::Endpoint).or_else(|| of(&AzureConfigKey::AccountName));
    Ok((Arc::new(builder.build()?), endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_signed_where_that_is_asked_for() {
        let unsigned = |options: &[(&str, &str)], is_set| {
            let mut config = StoreConfig::new("s3://bucket/prefix");
            config.options = options.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            let builder = s3_builder(&config, &Arc::new(Pacer::new(1)), is_set);
            builder.get_config_value(&AmazonS3ConfigKey::UnsignedPayload).unwrap()
        };
        assert_eq!(unsigned(&[], false), "true");
        let from_env = AmazonS3Builder::from_env().get_config_value(&AmazonS3ConfigKey::UnsignedPayload);
        assert_eq!(Some(unsigned(&[], true)), from_env);
        assert_eq!(unsigned(&[(UNSIGNED_PAYLOAD, "false")], false), "false");
    }
}
