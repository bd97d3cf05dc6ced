//! Malformed, oversize, truncated, slow and half-open input over raw sockets: an error or a close within a deadline,
//! no effect, and the product serves on.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bare;
mod product;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use bare::{DEADLINE, close_code, masked, upgraded};
use product::{Connection, Product};

const HEAD: &str = "POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n";

fn product() -> (tempfile::TempDir, Product) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let made = Connection::open(&product.address).unwrap().request("PUT /v1/topics/t", &[], b"{}").unwrap();
    assert_eq!(made.status, 201);
    (dir, product)
}

/// Everything that is answered until the connection ends. Writing may fail once the other side has closed.
fn exchange(product: &Product, bytes: &[u8], then_close: bool) -> String {
    let mut stream = TcpStream::connect(&product.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let _ = stream.write_all(bytes);
    if then_close {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no answer within {DEADLINE:?}: {error}"),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn end(product: &Product) -> u64 {
    let mut http = Connection::open(&product.address).unwrap();
    http.request("GET /v1/topics/t", &[], b"").unwrap().json()["partitions"][0]["end"].as_u64().unwrap()
}

/// The status of an answer and the code of its problem: nothing is refused without one.
fn told(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let head = head.to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    for said in
        ["content-type: application/problem+json", "x-content-type-options: nosniff", "x-request-id: "]
    {
        assert!(head.contains(&format!("\r\n{said}")), "{said}: {answer}");
    }
    assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{answer}");
    let problem: serde_json::Value =
        serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"));
    assert_eq!((problem["status"].as_u64(), &problem["outcome"]), (Some(status.into()), &"none".into()));
    (status, problem["code"].as_str().unwrap().to_owned())
}

#[test]
fn requests_that_are_none_are_refused_and_have_no_effect() {
    let (_dir, product) = product();
    let many = (0..70).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    let more = (0..110).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    let long = format!("X: {}\r\n", "y".repeat(20 << 10));
    let longer = format!("X: {}\r\n", "y".repeat(200 << 10));
    let name = "n".repeat(30 << 10);
    let path = "n".repeat(100 << 10);
    let close = "Connection: close\r\n\r\n";
    let host = "Host: localhost\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (request, status, code) in [
        // What the HTTP library cannot take for a request.
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\r\n\r\n".to_owned(), 400, "malformed"),
        ("GARBAGE\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400, "malformed"),
        (format!("{HEAD}{more}{close}"), 431, "headers_too_large"),
        (format!("{HEAD}{longer}{close}"), 431, "headers_too_large"),
        (format!("GET /{path} HTTP/1.1\r\n{host}{close}"), 431, "headers_too_large"),
        (format!("{HEAD}Content-Length: 3\r\nContent-Length: 4\r\n{close}abcd"), 400, "malformed"),
        (format!("{HEAD}Content-Length: -1\r\n{close}"), 400, "malformed"),
        (format!("{HEAD}Content-Length: abc\r\n{close}"), 400, "malformed"),
        (format!("{HEAD}Transfer-Encoding: gzip\r\n{close}abc"), 400, "malformed"),
        (format!("{HEAD}Bad Header: x\r\n{close}"), 400, "malformed"),
        // What it can.
        (format!("{HEAD}{many}{close}"), 431, "headers_too_large"),
        (format!("{HEAD}{long}{close}"), 431, "headers_too_large"),
        (format!("{HEAD}Transfer-Encoding: chunked\r\n{close}XYZ\r\nabc\r\n0\r\n\r\n"), 400, "malformed"),
        // Nobody undoes a coding but chunked, and that once: what were stored is not what was sent.
        (format!("{HEAD}Transfer-Encoding: gzip, chunked\r\n{close}1\r\na\r\n0\r\n\r\n"), 400, "malformed"),
        (format!("{HEAD}{chunked}{chunked}{close}1\r\na\r\n0\r\n\r\n"), 400, "malformed"),
        (format!("{HEAD}Content-Length: 99999999\r\n{close}"), 413, "too_large"),
        (format!("GET /v1/topics/{name} HTTP/1.1\r\n{host}{close}"), 400, "invalid_name"),
        (
            format!("GET /v1/topics/t/messages?from={name} HTTP/1.1\r\n{host}{close}"),
            400,
            "invalid_parameter",
        ),
        (format!("GET /v1/topics/%zz HTTP/1.1\r\n{host}{close}"), 400, "malformed"),
        (format!("GET /v1/topics/%ff HTTP/1.1\r\n{host}{close}"), 400, "malformed"),
        (format!("GET /nowhere HTTP/1.1\r\n{host}{close}"), 404, "route_not_found"),
        (format!("GET http://localhost/nowhere HTTP/1.1\r\n{host}{close}"), 404, "route_not_found"),
        (format!("CONNECT localhost:443 HTTP/1.1\r\n{host}{close}"), 404, "route_not_found"),
        (format!("TRACE /v1 HTTP/1.1\r\n{host}{close}"), 405, "method_not_allowed"),
        (format!("BREW /v1/topics/t HTTP/1.1\r\n{host}{close}"), 405, "method_not_allowed"),
        (format!("POST /console/ HTTP/1.1\r\n{host}{close}"), 405, "method_not_allowed"),
        (format!("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n{close}"), 421, "unknown_host"),
        (format!("GET /healthz HTTP/1.1\r\n{close}"), 400, "invalid_header"),
        (format!("GET /healthz HTTP/1.0\r\n{close}"), 400, "invalid_header"),
    ] {
        let answer = exchange(&product, request.as_bytes(), false);
        let shown: String = request.chars().take(90).collect();
        assert_eq!(told(&answer), (status, code.to_owned()), "{shown:?}: {answer:.300}");
    }
    assert_eq!(end(&product), 0, "no refused request had an effect");
}

#[test]
fn what_is_no_request_behind_requests_is_refused_behind_their_answers() {
    let (_dir, product) = product();
    let publish = format!("{HEAD}Content-Length: 22\r\n\r\nHTTP/1.1 400 whatever\n");
    let read = "GET /v1/topics/t/messages/0/0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Each of them when the one before it was answered, and all at once.
    let mut stream = TcpStream::connect(&product.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut one_by_one = String::new();
    for (request, last) in
        [(publish.as_str(), "}"), (read, "HTTP/1.1 400 whatever\n"), ("GARBAGE\r\n\r\n", "}")]
    {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(last.as_bytes()) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.extend_from_slice(&byte);
        }
        one_by_one.push_str(&String::from_utf8(answer).unwrap());
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed behind it");
    let at_once = exchange(&product, format!("{publish}{read}GARBAGE\r\n\r\n").as_bytes(), false);
    for answers in [one_by_one, at_once] {
        let (before, refused) = answers.split_at(answers.rfind("HTTP/1.1 400 Bad Request").unwrap());
        assert_eq!(told(refused), (400, "malformed".to_owned()), "{answers}");
        // What a message holds is told as it is, whatever it looks like.
        assert!(
            before.starts_with("HTTP/1.1 201") && before.ends_with("HTTP/1.1 400 whatever\n"),
            "{answers}"
        );
    }
    assert_eq!(end(&product), 2);
}

#[test]
fn header_limits_are_answered_with_a_problem() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let long = "y".repeat(20 << 10);
    let answer = http.request("POST /v1/topics/t/messages", &[("X-Long", &long)], b"x").unwrap();
    assert_eq!(answer.status, 431);
    let problem = answer.json();
    assert_eq!(
        (problem["code"].as_str(), problem["limit"].as_u64()),
        (Some("headers_too_large"), Some(16 << 10))
    );
    assert_eq!(problem["outcome"], "none");
}

#[test]
fn who_sends_too_much_at_once_is_told_so() {
    let (_dir, product) = product();
    // More than the buffers in between hold.
    let body = vec![b'x'; 8 << 20];
    for line in ["Content-Length: 8388608\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut stream = TcpStream::connect(&product.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(format!("{HEAD}{line}\r\n").as_bytes()).unwrap();
        if line.starts_with("Transfer") {
            stream.write_all(b"800000\r\n").unwrap();
        }
        // Most clients send all they have before they look for an answer.
        stream.write_all(&body).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(told(&String::from_utf8_lossy(&answer)), (413, "too_large".to_owned()), "{line}");
    }
    assert_eq!(end(&product), 0);
}

#[test]
fn bodies_that_break_off_have_no_effect() {
    let (_dir, product) = product();
    for request in [
        format!("{HEAD}Content-Length: 100\r\n\r\nonly this"),
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhe"),
        HEAD.to_owned(),
        "POST /v1/top".to_owned(),
    ] {
        let answer = exchange(&product, request.as_bytes(), true);
        // Nobody is there to be told, or is told.
        assert!(answer.is_empty() || told(&answer).0 == 400, "{request:?}: {answer}");
    }
    assert_eq!(end(&product), 0);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn a_stream_that_is_reset_within_its_body_has_no_effect_whatever_its_code() {
    let (_dir, product) = product();
    let field = |name: &str, value: &str| {
        let sized = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        [&[0][..], &sized(name), &sized(value)].concat()
    };
    let head = [
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":authority", "localhost"),
        field(":path", "/v1/topics/t/messages"),
    ]
    .concat();
    let mut stream = TcpStream::connect(&product.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, b"")].concat();
    stream.write_all(&begin).unwrap();
    // No error, internal error, cancel; proxies say the first when their own client has gone.
    for (number, code) in [0u32, 2, 8].into_iter().enumerate() {
        let id = u32::try_from(2 * number + 1).unwrap();
        let part = [frame(1, 4, id, &head), frame(0, 0, id, b"a part")].concat();
        stream.write_all(&[part, frame(3, 0, id, &code.to_be_bytes())].concat()).unwrap();
    }
    // One that is whole, behind them.
    let whole = [frame(1, 4, 7, &head), frame(0, 1, 7, b"all of it")].concat();
    stream.write_all(&whole).unwrap();
    let start = Instant::now();
    while end(&product) == 0 {
        assert!(start.elapsed() < DEADLINE, "what is whole is stored");
        std::thread::yield_now();
    }
    let mut http = Connection::open(&product.address).unwrap();
    let page = http.request("GET /v1/topics/t/messages", &[], b"").unwrap().json();
    let stored: Vec<_> = page["messages"].as_array().unwrap().iter().map(|it| &it["data_base64"]).collect();
    assert_eq!(stored, ["YWxsIG9mIGl0"], "{page}");
}

#[test]
fn who_never_finishes_a_header_is_closed_and_does_not_hold_others_up() {
    let (_dir, product) = product();
    let mut slow: Vec<_> = (0..50).map(|_| TcpStream::connect(&product.address).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(HEAD.as_bytes()).unwrap();
    }
    let start = Instant::now();
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201);
    for mut stream in slow {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut answer = Vec::new();
        // Closed, with an answer or without one.
        let _ = stream.read_to_end(&mut answer).map_err(|error| {
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset,
                "still open after {:?}",
                start.elapsed()
            );
        });
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || told(&answer).0 == 408, "half a request was served: {answer}");
    }
    assert_eq!(end(&product), 1);
}

#[test]
fn who_says_nothing_or_never_says_which_protocol_is_closed() {
    let (_dir, product) = product();
    let streams = ["", "PRI * HTT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].map(|said| {
        let mut stream = TcpStream::connect(&product.address).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        (said, stream)
    });
    for (said, mut stream) in streams {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        let is_open = ended.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionReset);
        assert!(!is_open, "still open after {said:?}");
    }
}

#[test]
fn who_finds_no_place_is_told_so_and_finds_one_when_another_leaves() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--connections-max", "2"]);
    let ask = |http: &mut Connection| http.request("GET /v1", &[], b"");
    let mut open: Vec<_> = (0..2).map(|_| Connection::open(&product.address).unwrap()).collect();
    assert!(open.iter_mut().all(|http| ask(http).unwrap().status == 200));
    for _ in 0..3 {
        let answer = ask(&mut Connection::open(&product.address).unwrap()).unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        let problem = answer.json();
        assert_eq!(
            (problem["code"].as_str(), problem["outcome"].as_str()),
            (Some("unavailable"), Some("none"))
        );
        assert_eq!(problem["limit"], 2);
    }
    assert_eq!(ask(&mut open[0]).unwrap().status, 200, "who has a place keeps it");
    open.pop();
    let start = Instant::now();
    while ask(&mut Connection::open(&product.address).unwrap()).unwrap().status != 200 {
        assert!(start.elapsed() < DEADLINE, "the place of who left stays taken");
        std::thread::yield_now();
    }
}

#[test]
fn websockets_that_break_the_rules_are_closed_with_the_code_that_says_which() {
    let (_dir, product) = product();
    let oversize = {
        let mut head = vec![0x82, 0x80 | 127];
        head.extend_from_slice(&(1u64 << 40).to_be_bytes());
        head.extend_from_slice(&[0; 4]);
        head
    };
    let fragments: Vec<u8> = std::iter::once(masked(0x02, &[0; 1000]))
        .chain((0..9000).map(|_| masked(0x00, &[0; 1000])))
        .flatten()
        .collect();
    let (json, binary) = ("weir.v1.json", "weir.v1.bin");
    for (what, subprotocol, bytes, code) in [
        ("unmasked", json, vec![0x81, 2, b'{', b'}'], 1002),
        ("reserved bits", json, masked(0xf1, b"{}"), 1002),
        ("unknown opcode", json, masked(0x83, b"{}"), 1002),
        ("unknown control opcode", json, masked(0x8b, b""), 1002),
        ("a ping too long", json, masked(0x89, &[0; 126]), 1002),
        ("a ping in fragments", json, masked(0x09, b"x"), 1002),
        ("the rest of nothing", json, masked(0x80, b"x"), 1002),
        ("a close that is cut short", json, masked(0x88, &[3]), 1002),
        ("a close with a code that none may send", json, masked(0x88, &[0, 1]), 1002),
        ("not UTF-8", json, masked(0x81, &[0xff, 0xfe]), 1007),
        ("a length beyond all limits", binary, oversize, 1009),
        ("a message larger than the limit", json, masked(0x81, &vec![b' '; 5 << 20]), 1009),
        ("fragments without end", binary, fragments, 1009),
        ("not JSON", json, masked(0x81, b"{\"t\":"), 4500),
        ("binary garbage", binary, masked(0x82, &[0x7f; 64]), 4500),
        ("a frame cut short", binary, masked(0x82, &[1, 0, 0]), 4500),
        ("text in the binary form", binary, masked(0x81, b"{\"t\":\"hello\",\"v\":1}"), 4500),
        ("no hello", json, Vec::new(), 4002),
    ] {
        let mut stream = upgraded(&product, subprotocol);
        // Both may fail once the other side has closed: it takes what is still sent, but not for ever.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
        }
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(close_code(&answer), Some(code), "{what}: {text}");
        assert!(!text.contains("welcome"), "{what}: {text}");
        if code == 1009 {
            assert!(text.contains("\"too_large\"") && text.contains("4194304"), "{what}: {text}");
        }
    }
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(http.request("POST /v1/topics/t/messages", &[], b"x").unwrap().status, 201, "it serves on");
}

#[test]
fn a_handshake_without_our_subprotocol_is_refused() {
    let (_dir, product) = product();
    let mut http = Connection::open(&product.address).unwrap();
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "mqtt"),
    ];
    let answer = http.request("GET /v1/ws", &headers, b"").unwrap();
    assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid_header")));
    assert_eq!(answer.header("sec-websocket-version"), None);
    // Which version is understood is said to who names another (RFC 6455, section 4.2.2).
    let mut other = headers;
    (other[2].1, other[4].1) = ("8", "weir.v1.json");
    let answer = http.request("GET /v1/ws", &other, b"").unwrap();
    assert_eq!((answer.status, &answer.json()["field"]), (400, &"sec-websocket-version".into()));
    assert_eq!(answer.header("sec-websocket-version"), Some("13"));
}
