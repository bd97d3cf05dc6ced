//! Google Cloud Storage and Azure Blob Storage for tests: fake-gcs-server, with what it lacks in front of it,
//! and Azurite, each on a free port, with nothing in it, killed when dropped.
#![expect(unreachable_pub, reason = "tests of several crates include it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports;

/// The bucket, or container, that there is.
const BUCKET: &str = "weir-test";
const START_WITHIN: Duration = Duration::from_secs(60);
/// The account that every Azurite has.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Signed with its key: whoever has it may make containers until 2099.
const AZURE_MAY_CREATE: &str = "sv=2021-08-06&ss=b&srt=c&sp=c&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp\
                                &sig=FqObWDUKe4RWtcUgP%2BSTCsPDKwg2wxurj7thZw8rDTg%3D";

/// A cloud's store of objects, with one empty bucket.
pub struct Cloud {
    scheme: &'static str,
    options: Vec<(String, String)>,
    children: Vec<Child>,
    /// Where credentials are, as long as they are needed.
    _folder: Option<tempfile::TempDir>,
}

impl Cloud {
    /// Starts Google's, where a second write of a name within `pause` is refused, and waits until it answers.
    pub fn google(pause: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (addr, server) = (ports::own(), ports::own());
        let key = folder.path().join("key.json");
        let mut fake = Command::new(fake_gcs_server());
        fake.args(["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"])
            .args(["-port", &server.port().to_string(), "-public-host", &server.to_string()]);
        let mut front = Command::new("node");
        let front_source = root().join("storage-node/tier/tests/clouds/google.mjs");
        front.arg(front_source).args([addr.port(), server.port()].map(|port| port.to_string()));
        front.arg(BUCKET).arg(&key).arg(pause.as_millis().to_string());
        let options = [
            ("GOOGLE_BASE_URL", format!("http://{addr}")),
            ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
            ("GOOGLE_APPLICATION_CREDENTIALS", key.display().to_string()),
        ];
        let mut cloud = Self::new("gs", &options, Some(folder));
        cloud.run(fake);
        cloud.run(front);
        cloud.wait(|| TcpStream::connect(addr).is_ok());
        cloud
    }

    /// Starts Azure's and waits until it answers.
    pub fn azure() -> Self {
        let addr = ports::own();
        let mut azurite = Command::new("node");
        azurite
            .arg(installed(".cache/tools/azurite/node_modules/azurite/dist/src/blob/main.js"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &addr.port().to_string()])
            .args(["--silent", "--disableTelemetry", "--inMemoryPersistence"]);
        let options = [
            ("AZURE_ENDPOINT", format!("http://{addr}/{AZURE_ACCOUNT}")),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.to_owned()),
        ];
        let mut cloud = Self::new("az", &options, None);
        cloud.run(azurite);
        cloud.wait(|| makes_container(addr));
        cloud
    }

    /// URL of the bucket and `prefix` in it.
    pub fn url(&self, prefix: &str) -> String {
        format!("{}://{BUCKET}/{prefix}", self.scheme)
    }

    /// What a client must know, by the names of environment variables.
    pub fn options(&self) -> Vec<(String, String)> {
        self.options.clone()
    }

    fn new(scheme: &'static str, options: &[(&str, String)], folder: Option<tempfile::TempDir>) -> Self {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Self { scheme, options, children: Vec::new(), _folder: folder }
    }

    fn run(&mut self, mut command: Command) {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        self.children.push(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
    }

    fn wait(&mut self, is_ready: impl Fn() -> bool) {
        let until = Instant::now() + START_WITHIN;
        while !is_ready() {
            assert!(Instant::now() < until, "{}: does not answer", self.scheme);
            for child in &mut self.children {
                assert_eq!(child.try_wait().unwrap(), None, "{}: has ended by itself", self.scheme);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn makes_container(addr: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(addr) else { return false };
    let line = format!("PUT /{AZURE_ACCOUNT}/{BUCKET}?restype=container&{AZURE_MAY_CREATE} HTTP/1.1\r\n");
    let headers = format!("Host: {addr}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let mut answer = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(10))).is_ok()
        && stream.write_all((line + &headers).as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer[9..] == b"201"
}

/// What `FAKE_GCS_SERVER` names, else what scripts/setup.sh built.
fn fake_gcs_server() -> PathBuf {
    std::env::var_os("FAKE_GCS_SERVER")
        .map_or_else(|| installed(".cache/tools/bin/fake-gcs-server"), PathBuf::from)
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(
        path.exists(),
        "{} is missing: `scripts/test rust` installs what these tests need",
        path.display()
    );
    path
}

fn root() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("scripts/setup.sh").exists()).expect("tests run in a checkout")
}
