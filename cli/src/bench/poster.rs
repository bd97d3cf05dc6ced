//! The leanest HTTP/1.1 client there can be, since it shares the machine: a socket, a prepared request, a reader that
//! looks for the end of the answer.

use std::ops::Range;

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
            if let Some((status, body, is_chunked)) = complete(&self.answer)? {
                self.body = body;
                if is_chunked {
                    join_chunks(&mut self.answer, body)?;
                }
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

/// Status of an answer, where its body begins, and whether that is in chunks, once all of it is there.
fn complete(answer: &[u8]) -> anyhow::Result<Option<(u16, usize, bool)>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).context("the answer's head is not text")?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).context("no status")?;
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let body = end + 4;
    if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        let mut at = body;
        while let Some(chunk) = chunk(answer, at)? {
            if chunk.is_empty() {
                return Ok(Some((status, body, true)));
            }
            at = chunk.end + 2;
        }
        return Ok(None);
    }
    let length: usize = field("content-length").map_or(Ok(0), str::parse)?;
    Ok((answer.len() >= body + length).then_some((status, body, false)))
}

/// The data of the chunk that begins at `at`, once all of it is there; that of the last one is empty. Weir sends no
/// extensions and no trailers.
fn chunk(answer: &[u8], at: usize) -> anyhow::Result<Option<Range<usize>>> {
    let rest = answer.get(at..).unwrap_or_default();
    let Some(end) = rest.windows(2).take(20).position(|two| two == b"\r\n") else {
        ensure!(rest.len() < 20, "no length of a chunk");
        return Ok(None);
    };
    let length = std::str::from_utf8(&rest[..end]).ok();
    let length =
        length.and_then(|length| usize::from_str_radix(length, 16).ok()).context("no length of a chunk")?;
    let data = at + end + 2;
    Ok((answer.len() >= data + length + 2).then_some(data..data + length))
}

/// Puts the chunks of a complete answer together, from where its body begins.
fn join_chunks(answer: &mut Vec<u8>, body: usize) -> anyhow::Result<()> {
    let (mut from, mut to) = (body, body);
    while let Some(data) = chunk(answer, from)?.filter(|data| !data.is_empty()) {
        from = data.end + 2;
        let length = data.len();
        answer.copy_within(data, to);
        to += length;
    }
    answer.truncate(to);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_its_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(answer).unwrap(), Some((201, answer.len() - 3, false)));
        assert_eq!(complete(&answer[..answer.len() - 1]).unwrap(), None);
        assert_eq!(complete(&answer[..20]).unwrap(), None);
        assert_eq!(complete(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some((204, 27, false)));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
        for cut in 0..chunked.len() {
            assert_eq!(complete(&chunked[..cut]).unwrap(), None, "{cut}");
        }
        let (status, body, is_chunked) = complete(chunked).unwrap().unwrap();
        assert_eq!((status, is_chunked), (200, true));
        let mut answer = chunked.to_vec();
        join_chunks(&mut answer, body).unwrap();
        assert_eq!(&answer[body..], b"0\r\n\r\n0123456789abcdef");
        assert!(complete(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n").is_err());
    }

    #[test]
    fn the_host_is_what_stands_before_the_path() {
        assert_eq!(host("http://h:1/a/b").unwrap(), "h:1");
        assert_eq!(host("http://h:1").unwrap(), "h:1");
        assert!(host("https://h").is_err());
    }
}
