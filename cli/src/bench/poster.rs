//! The leanest HTTP/1.1 client there can be, since it shares the machine: a socket, a prepared request, a reader that
//! looks for the end of the answer.

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A keep-alive connection.
pub(super) struct Poster {
    stream: TcpStream,
    host: String,
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Where the answer's body begins.
    body: usize,
}

impl Poster {
    /// Connects to the host of `url`; a path behind it is ignored.
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        let host = host(url)?.to_owned();
        let stream = TcpStream::connect(&host).await.with_context(|| format!("cannot reach {host}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, host, request: Vec::new(), answer: Vec::with_capacity(4 << 10), body: 0 })
    }

    /// The request that [`Poster::exchange`] sends from now on. `line` is method and path, `headers` whole lines.
    pub(super) fn prepare(&mut self, line: &str, headers: &str, body: &[u8]) {
        self.request.clear();
        let head = [line, " HTTP/1.1\r\nHost: ", &self.host, "\r\n", headers, "Content-Length: "];
        head.iter().for_each(|part| self.request.extend_from_slice(part.as_bytes()));
        self.request.extend_from_slice(body.len().to_string().as_bytes());
        self.request.extend_from_slice(b"\r\n\r\n");
        self.request.extend_from_slice(body);
    }

    /// Sends the request and reads the whole answer; its status.
    pub(super) async fn exchange(&mut self) -> anyhow::Result<u16> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await?;
            ensure!(read > 0, "the server closed the connection");
            if let Some((status, body)) = complete(&self.answer)? {
                self.body = body;
                return Ok(status);
            }
        }
    }

    /// [`Poster::prepare`] and [`Poster::exchange`]; an error unless the status is one of success.
    pub(super) async fn send(&mut self, line: &str, headers: &str, body: &[u8]) -> anyhow::Result<u16> {
        self.prepare(line, headers, body);
        let status = self.exchange().await?;
        let said = || String::from_utf8_lossy(self.body()).chars().take(300).collect::<String>();
        ensure!((200..300).contains(&status), "{line} was answered {status}: {}", said());
        Ok(status)
    }

    /// The body of the last answer.
    pub(super) fn body(&self) -> &[u8] {
        &self.answer[self.body..]
    }
}

/// `host:port` of an `http://` URL.
pub(super) fn host(url: &str) -> anyhow::Result<&str> {
    let rest = url.strip_prefix("http://").context("only http:// is measured")?;
    Ok(rest.split_once('/').map_or(rest, |(host, _)| host))
}

/// Status of an answer and where its body begins, once all of it is there.
fn complete(answer: &[u8]) -> anyhow::Result<Option<(u16, usize)>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).context("the answer's head is not text")?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).context("no status")?;
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let body = end + 4;
    if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(answer[body..].ends_with(b"0\r\n\r\n").then_some((status, body)));
    }
    let length: usize = field("content-length").map_or(Ok(0), str::parse)?;
    Ok((answer.len() >= body + length).then_some((status, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_its_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(answer).unwrap(), Some((201, answer.len() - 3)));
        assert_eq!(complete(&answer[..answer.len() - 1]).unwrap(), None);
        assert_eq!(complete(&answer[..20]).unwrap(), None);
        assert_eq!(complete(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some((204, 27)));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert_eq!(complete(&chunked[..chunked.len() - 5]).unwrap(), None);
        assert_eq!(complete(chunked).unwrap().unwrap().0, 200);
    }

    #[test]
    fn the_host_is_what_stands_before_the_path() {
        assert_eq!(host("http://h:1/a/b").unwrap(), "h:1");
        assert_eq!(host("http://h:1").unwrap(), "h:1");
        assert!(host("https://h").is_err());
    }
}
