//! The product as a child process, spoken to over plain sockets as any HTTP client would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Whatever runs until it is stopped is ready within this.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

/// A long-running command; killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// What its ready file says, by line.
    pub(crate) said: Vec<String>,
    /// What it writes to standard error.
    pub(crate) log: PathBuf,
}

impl Running {
    /// Starts `weir` and returns once it is ready.
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with_env(dir, arguments, &[])
    }

    /// The same with more variables in its environment.
    pub(crate) fn start_with_env(dir: &Path, arguments: &[&str], env: &[(String, String)]) -> Self {
        let run = ulid::Ulid::new();
        let (ready, log) = (dir.join(format!("ready-{run}")), dir.join(format!("log-{run}")));
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(arguments)
            .envs(env.iter().cloned())
            .arg("--ready-file")
            .arg(&ready)
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .spawn()
            .unwrap();
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            if !text.is_empty() {
                return Self { child, said: text.lines().map(str::to_owned).collect(), log };
            }
            assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ended before it was ready");
            assert!(start.elapsed() < READY_TIME_MAX, "{arguments:?} was not ready within a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the process as a crash would: SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop (SIGTERM) and waits; true if it stopped by itself with success.
    pub(crate) fn stop(&mut self) -> bool {
        self.signal("-TERM");
        self.child.wait().unwrap().success()
    }

    /// Most memory that it has had, in bytes.
    pub(crate) fn memory_peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Memory that it has now, in bytes.
    pub(crate) fn memory_now(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let bytes = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        bytes.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// Sends it a signal, `-STOP` or another that `kill` knows.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `weir dev`.
pub(crate) struct Product {
    running: Running,
    /// `host:port` of the gateway.
    pub(crate) address: String,
}

impl Product {
    /// Starts on `dir` and returns once it answers.
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_at(dir, "127.0.0.1:0")
    }

    /// The same at a given address.
    pub(crate) fn start_at(dir: &Path, listen: &str) -> Self {
        Self::start_with(dir, listen, &[])
    }

    /// The same with more options.
    pub(crate) fn start_with(dir: &Path, listen: &str, options: &[&str]) -> Self {
        Self::start_with_env(dir, listen, options, &[])
    }

    /// The same with more variables in its environment.
    pub(crate) fn start_with_env(
        dir: &Path,
        listen: &str,
        options: &[&str],
        env: &[(String, String)],
    ) -> Self {
        let data = dir.join("data");
        let fixed = ["dev", "--listen", listen, "--data-dir", data.to_str().unwrap()];
        let running = Running::start_with_env(dir, &[&fixed, options].concat(), env);
        let (_, address) = running.said[0].split_once("://").unwrap();
        Self { address: address.to_owned(), running }
    }

    /// Most memory that it has had, in bytes.
    pub(crate) fn memory_peak(&self) -> u64 {
        self.running.memory_peak()
    }

    /// Memory that it has now, in bytes.
    pub(crate) fn memory_now(&self) -> u64 {
        self.running.memory_now()
    }

    /// What it has written to standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.running.log).unwrap()
    }

    /// Ends the process as a crash would: SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }

    /// Asks it to stop (SIGTERM) and waits; true if it stopped by itself with success.
    pub(crate) fn stop(&mut self) -> bool {
        self.running.stop()
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A keep-alive HTTP/1.1 connection, opened again where the server closed it before a request: as it does
/// once it was silent for ten seconds, which a test may be in between.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    patience: Duration,
}

impl Connection {
    pub(crate) fn open(address: &str) -> std::io::Result<Self> {
        let patience = Duration::from_secs(20);
        Ok(Self { stream: Self::connect(address, patience)?, address: address.to_owned(), patience })
    }

    fn connect(address: &str, patience: Duration) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(BufReader::new(stream))
    }

    fn is_closed(&self) -> std::io::Result<bool> {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(matches!(peeked, Ok(0)) && self.stream.buffer().is_empty())
    }

    /// Waits longer for answers.
    pub(crate) fn patience(&mut self, patience: Duration) {
        self.patience = patience;
        self.stream.get_mut().set_read_timeout(Some(patience)).unwrap();
    }

    /// Sends one request and reads its answer; an error if the server went away.
    pub(crate) fn request(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        self.send(line, headers, body)?;
        self.answer()
    }

    /// The same, with a body that is sent `late` after the server has begun to wait for it.
    pub(crate) fn request_late(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        late: Duration,
    ) -> std::io::Result<Answer> {
        let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Expect: 100-continue\r\n\r\n");
        self.stream.get_mut().write_all(text.as_bytes())?;
        assert_eq!(self.head()?.0, 100);
        std::thread::sleep(late);
        self.stream.get_mut().write_all(body)?;
        self.answer()
    }

    /// Reads one answer.
    fn answer(&mut self) -> std::io::Result<Answer> {
        let (status, headers) = self.head()?;
        let find = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let is_chunked = find("transfer-encoding").is_some();
        let length: usize = find("content-length").map_or(0, |(_, value)| value.parse().unwrap());
        let body = if is_chunked { self.chunks()? } else { self.take(length)? };
        Ok(Answer { status, headers, body })
    }

    fn take(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A body of an answer whose length was not known when it began.
    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.chunk()? {
                chunk if chunk.is_empty() => return Ok(body),
                chunk => body.extend(chunk),
            }
        }
    }

    /// The next part of such a body; empty at its end.
    pub(crate) fn chunk(&mut self) -> std::io::Result<Vec<u8>> {
        let length = usize::from_str_radix(&self.line()?, 16).unwrap();
        let chunk = self.take(length)?;
        self.line()?;
        Ok(chunk)
    }

    pub(crate) fn send(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<()> {
        if self.is_closed()? {
            self.stream = Self::connect(&self.address, self.patience)?;
        }
        let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Sends the head of a request with a body of `length` bytes that never comes.
    pub(crate) fn declare(&mut self, line: &str, media: &str, length: usize) -> std::io::Result<()> {
        let text = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads an answer's status and headers.
    pub(crate) fn head(&mut self) -> std::io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line()?;
        let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(gone)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                None => return Ok((status, headers)),
            }
        }
    }

    /// Reads one line, without its end; an error if it was cut short.
    pub(crate) fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The product on a directory of its own, and a connection to it.
pub(crate) fn started() -> (tempfile::TempDir, Product, Connection) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let connection = Connection::open(&product.address).unwrap();
    (dir, product, connection)
}

/// Sends JSON.
pub(crate) fn send(http: &mut Connection, line: &str, body: &Value) -> Answer {
    http.request(line, &[], body.to_string().as_bytes()).unwrap()
}

/// Sends JSON that is accepted; what is answered.
pub(crate) fn done(http: &mut Connection, line: &str, body: &Value) -> Value {
    let answer = send(http, line, body);
    assert!(answer.status < 300, "{line}: {} {}", answer.status, answer.text());
    if answer.status == 204 { Value::Null } else { answer.json() }
}
