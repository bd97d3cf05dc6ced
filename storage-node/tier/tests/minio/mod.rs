//! A real MinIO for tests: one process per test, on a free port, in a folder of its own, killed when dropped.
#![expect(unreachable_pub, reason = "tests of several crates include it")]

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports;

/// The bucket that there is.
pub const BUCKET: &str = "weir-test";
const USER: &str = "weir-test";
const SECRET: &str = "weir-test-secret";
const START_WITHIN: Duration = Duration::from_secs(60);

/// A server with one empty bucket.
pub struct Minio {
    child: Option<Child>,
    addr: SocketAddr,
    folder: tempfile::TempDir,
}

impl Minio {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut minio = Self { child: None, addr: ports::own(), folder };
        minio.begin();
        minio
    }

    /// URL of the bucket and `prefix` in it.
    pub fn url(prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// What a client must know, by the names of environment variables.
    pub fn options(&self) -> Vec<(String, String)> {
        let options = [
            ("AWS_ENDPOINT", format!("http://{}", self.addr)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", USER.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        options.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again, on the same port and folder.
    pub fn begin(&mut self) {
        let program = program();
        let child = Command::new(&program)
            .args(["server", "--quiet", "--address", &self.addr.to_string()])
            .arg(self.folder.path())
            .env("MINIO_ROOT_USER", USER)
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .env("MINIO_UPDATE", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        self.child = Some(child);
        let until = Instant::now() + START_WITHIN;
        while !self.is_ready() {
            assert!(Instant::now() < until, "minio does not answer at {}", self.addr);
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert_eq!(ended, None, "minio has ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&self) -> bool {
        use std::io::{Read as _, Write as _};
        let Ok(mut stream) = TcpStream::connect(self.addr) else { return false };
        let mut answer = [0; 12];
        stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
            && stream
                .write_all(b"GET /minio/health/ready HTTP/1.1\r\nHost: minio\r\nConnection: close\r\n\r\n")
                .is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer[9..] == b"200"
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What MINIO names, else what scripts/setup.sh built, else what PATH finds.
fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("MINIO") {
        return named.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("scripts/setup.sh").exists());
    let built = root.map(|root| root.join(".cache/tools/bin/minio")).filter(|path| path.exists());
    let on_path = || {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join("minio"))
            .find(|path| path.exists())
    };
    built.or_else(on_path).expect(
        "these tests need MinIO, and there is none: run `scripts/test rust`, which builds it, or name one in MINIO",
    )
}
