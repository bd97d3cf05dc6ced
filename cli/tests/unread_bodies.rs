//! Bodies that nobody reads: what is said of the connection behind them.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use product::started;

/// Whatever is wrong, an answer or the end of the connection comes within this.
const DEADLINE: Duration = Duration::from_secs(60);
const NEXT: &str = "GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n";

struct Client(TcpStream);

impl Client {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Status and head of an answer; its body is read too.
    fn answer(&mut self) -> Option<(u16, String)> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if self.0.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).unwrap();
        Some((head.split(' ').nth(1)?.parse().ok()?, head))
    }
}

fn post(headers: &str, length: usize) -> String {
    format!(
        "POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n"
    )
}

#[test]
fn a_refusal_says_whether_the_connection_goes_on_behind_it_and_then_it_does() {
    let (_dir, product, _) = started();
    let twice = "Message-Key: a\r\nMessage-Key: b\r\n";
    for (what, headers, length, status, goes_on) in [
        ("a header twice, and little to take", twice, 60_000, 400, true),
        ("a header twice, and much", twice, 1 << 20, 400, false),
        ("a byte too much", "", (1 << 20) + 1, 413, false),
        ("what the route does not take", "Confirm: maybe\r\n", 60_000, 400, true),
        (
            "a body that was never wanted",
            "Expect: 100-continue\r\nIf-Match: x\r\nMessage-Key: a\r\nMessage-Key: b\r\n",
            10,
            400,
            false,
        ),
    ] {
        let mut client = Client::open(&product.address);
        client.send(post(headers, length).as_bytes());
        let is_sent = !headers.starts_with("Expect");
        if is_sent {
            // As much as the gateway takes of it: an answer may end the connection before.
            let _ = client.0.write_all(&vec![b'x'; length]);
        }
        let (told, head) = client.answer().unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(told, status, "{what}: {head}");
        assert_eq!(!head.contains("connection: close"), goes_on, "{what}: {head}");
        let _ = client.0.write_all(NEXT.as_bytes());
        let next = client.answer().map(|(status, _)| status);
        assert_eq!(next, goes_on.then_some(200), "{what}");
    }
}

#[test]
fn a_body_where_none_is_taken_does_not_end_the_connection() {
    let (_dir, product, _) = started();
    let mut client = Client::open(&product.address);
    for length in [0, 5, 60_000] {
        let head = format!("GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        client.send(head.as_bytes());
        client.send(&vec![b'x'; length]);
        let (status, head) = client.answer().unwrap();
        assert!(status == 200 && !head.contains("connection: close"), "{length}: {head}");
    }
    client.send(NEXT.as_bytes());
    assert_eq!(client.answer().map(|(status, _)| status), Some(200));
}
