//! Who takes nothing of what it asked for costs a bounded number of bytes, whatever it asked for; others are served
//! beside it, and who does take it gets everything.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use product::{Connection, Product};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use weir_gateway::{ClientLimits, Gateway, GatewayConfig, RunningGateway, TlsSource};
use weir_storage_node::{Node, NodeConfig, RunningNode, Surroundings};

/// The smallest budget; a quarter of it is what one address gets.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
const SHARE_BYTES: u64 = ANSWER_BYTES_MAX / 4;
const LARGE_BYTES: usize = 1_000_000;
const LARGE_MESSAGES: usize = 12;
/// Each asks for as much as half of the share.
const CROWD: usize = 24;
const SOON: Duration = Duration::from_secs(20);
const PAGE: &str = "GET /v1/topics/big/messages?max_bytes=4194304";

/// A gateway and its node in this process.
struct Served {
    runtime: tokio::runtime::Runtime,
    registry: prometheus::Registry,
    gateway: RunningGateway,
    _node: RunningNode,
    dir: tempfile::TempDir,
}

impl Served {
    fn start(limits: ClientLimits, tls: bool) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let registry = prometheus::Registry::new();
        let node = NodeConfig { data_dir: dir.path().join("data"), data_shards: 1, ..NodeConfig::default() };
        let node = runtime.block_on(Node::start_in(node, Surroundings::default())).unwrap();
        let gateway = GatewayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            storage: node.local_addr().to_string(),
            answer_bytes_max: ANSWER_BYTES_MAX,
            tls: tls.then(|| TlsSource::SelfSigned { dir: dir.path().to_owned() }),
            limits,
            ..GatewayConfig::default()
        };
        let gateway = runtime.block_on(Gateway::start(gateway, registry.clone())).unwrap();
        Self { runtime, registry, gateway, _node: node, dir }
    }

    /// The same with a topic of large messages, and a queue of it.
    fn with_large_messages(limits: ClientLimits) -> Self {
        let served = Self::start(limits, false);
        let mut http = served.http();
        let payload: Vec<u8> = (0..LARGE_BYTES).map(|i| (i * i % 251) as u8).collect();
        let queue = br#"{"mode":"queue","topics":["big"],"max_unacked":10000}"#;
        assert_eq!(http.request("PUT /v1/topics/big", &[], b"{}").unwrap().status, 201);
        assert_eq!(http.request("PUT /v1/topics/beside", &[], b"{}").unwrap().status, 201);
        assert_eq!(http.request("PUT /v1/subscriptions/s", &[], queue).unwrap().status, 201);
        let binary = [("Content-Type", "application/octet-stream")];
        for _ in 0..LARGE_MESSAGES {
            assert_eq!(http.request("POST /v1/topics/big/messages", &binary, &payload).unwrap().status, 201);
        }
        served
    }

    fn http(&self) -> Connection {
        Connection::open(&self.gateway.local_addr().to_string()).unwrap()
    }

    /// A metric's value.
    fn value(&self, name: &str) -> u64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let value = metric.get_gauge().get_value().max(metric.get_counter().get_value()) as u64;
        value
    }

    fn held(&self) -> u64 {
        self.value("weir_gateway_answer_bytes")
    }

    /// A connection from `from`, which has hardly any room for what comes.
    fn narrow(&self, from: Ipv4Addr) -> TcpStream {
        self.connect(from, 4 << 10)
    }

    fn connect(&self, from: Ipv4Addr, buffer: u32) -> TcpStream {
        let to = self.gateway.local_addr();
        let stream = self.runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(buffer).unwrap();
            socket.bind(SocketAddr::from((from, 0))).unwrap();
            socket.connect(to).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Waits until it is so.
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < SOON, "{what}: {} bytes are held", self.held());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What is held at the most while nothing changes any more, for a while.
    fn most_held(&self) -> u64 {
        let (mut most, mut since, mut last) = (0, Instant::now(), None);
        while since.elapsed() < Duration::from_millis(700) {
            let now = self.held();
            if last != Some(now) {
                (last, since) = (Some(now), Instant::now());
            }
            most = most.max(now);
            std::thread::sleep(Duration::from_millis(10));
        }
        most
    }

    /// An answer to somebody at another address.
    fn beside(&self, request: &str) -> String {
        let mut stream = self.narrow(Ipv4Addr::new(127, 0, 0, 2));
        stream.write_all(head(request, "Connection: close\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn head(request: &str, headers: &str) -> String {
    format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

fn page(accept: &str) -> Vec<u8> {
    head(PAGE, &format!("Accept: {accept}\r\n")).into_bytes()
}

/// The status that a connection was answered, if it was within a while.
fn status(stream: &mut TcpStream) -> Option<(u16, String)> {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut start = vec![0; 1_500];
    let read = stream.read(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start[..read]).into_owned();
    Some((text.get(9..12)?.parse().ok()?, text))
}

/// `asked` by a crowd at one address that takes nothing: what is held of it, and how many were refused.
fn crowd(served: &Served, asked: &[u8]) -> (u64, usize) {
    let mut crowd: Vec<_> = (0..CROWD).map(|_| served.narrow(Ipv4Addr::LOCALHOST)).collect();
    for stream in &mut crowd {
        stream.write_all(asked).unwrap();
    }
    served.until("nothing is held", |served| served.held() > 0);
    let most = served.most_held();
    // Others are served as before.
    let page = served.beside("GET /v1/topics/big/messages?max_bytes=2000000");
    assert!(
        page.starts_with("HTTP/1.1 200 ") && page.contains("\"next\":2"),
        "{}",
        &page[..page.len().min(500)]
    );
    let published = served.http().request("POST /v1/topics/beside/messages", &[], b"x").unwrap();
    assert_eq!(published.status, 201);
    let answers: Vec<_> = crowd.iter_mut().filter_map(status).collect();
    let refused: Vec<_> = answers.iter().filter(|(status, _)| *status == 503).collect();
    for (_, text) in &refused {
        for part in ["\"answers_full\"", "\"outcome\":\"none\"", "\"retryable\":true", "retry-after: 1\r\n"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    let refused = refused.len();
    drop(crowd);
    served.until("it is kept", |served| served.held() == 0);
    (most, refused)
}

#[test]
fn a_crowd_that_takes_no_pages_holds_a_quarter_in_every_form_and_others_are_served() {
    let served = Served::with_large_messages(ClientLimits::default());
    assert_eq!(served.value("weir_gateway_answer_bytes_max"), ANSWER_BYTES_MAX);
    let pull = br#"{"max":100,"max_bytes":4194304}"#;
    let length = format!("Content-Length: {}\r\n", pull.len());
    let pull = [head("POST /v1/subscriptions/s:pull", &length).as_bytes(), pull].concat();
    for (form, asked) in [
        ("JSON", page("application/json")),
        ("lines", page("application/x-ndjson")),
        ("batches", page("application/vnd.weir.batch")),
        ("CloudEvents", page("application/cloudevents-batch+json")),
        ("leases", pull),
    ] {
        let (most, refused) = crowd(&served, &asked);
        assert!(most <= SHARE_BYTES, "{form}: {most} bytes are held");
        assert!(refused >= CROWD / 2, "{form}: {refused} of {CROWD} were refused");
    }
    assert!(served.value("weir_gateway_answers_refused_total") >= CROWD as u64);
}

#[test]
fn a_crowd_that_takes_no_single_messages_and_no_documents_holds_a_quarter() {
    let served = Served::with_large_messages(ClientLimits::default());
    let one = head("GET /v1/topics/big/messages/0/3", "");
    let (most, refused) = crowd(&served, one.as_bytes());
    assert!(most <= SHARE_BYTES, "{most} bytes are held");
    assert!(refused >= CROWD / 2, "{refused} of {CROWD} were refused");
    // One after the other on each connection: the first fill what the system holds.
    let document = head("GET /openapi.json", "").repeat(40);
    let (most, _) = crowd(&served, document.as_bytes());
    assert!((200_000..=SHARE_BYTES).contains(&most), "{most} bytes are held");
}

#[test]
fn a_crowd_that_takes_no_events_holds_a_quarter_and_who_takes_them_gets_all() {
    let served = Served::with_large_messages(ClientLimits::default());
    let events = head("GET /v1/topics/big/messages", "Accept: text/event-stream\r\n");
    let (most, refused) = crowd(&served, events.as_bytes());
    assert!((LARGE_BYTES as u64..=SHARE_BYTES).contains(&most), "{most} bytes are held");
    assert_eq!(refused, 0, "they wait");
    // As many that take what comes, slowly at first: each gets every message.
    let mut streams: Vec<_> = (0..CROWD / 2).map(|_| served.http()).collect();
    for stream in &mut streams {
        stream.send("GET /v1/topics/big/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    }
    std::thread::scope(|scope| {
        for stream in &mut streams {
            scope.spawn(|| takes_all(stream));
        }
    });
}

/// Takes an event stream of all large messages.
fn takes_all(stream: &mut Connection) {
    assert_eq!(stream.head().unwrap().0, 200);
    let (mut next, mut text) = (0, String::new());
    while next < LARGE_MESSAGES as u64 {
        let Some((line, rest)) = text.split_once('\n') else {
            text.push_str(std::str::from_utf8(&stream.chunk().unwrap()).unwrap());
            continue;
        };
        let (line, rest) = (line.to_owned(), rest.to_owned());
        text = rest;
        if let Some(data) = line.strip_prefix("data: {\"topic\"") {
            let message: serde_json::Value = serde_json::from_str(&format!("{{\"topic\"{data}")).unwrap();
            if let Some(offset) = message["offset"].as_u64() {
                assert_eq!(offset, next, "each once, in order");
                assert_eq!(message["data_base64"].as_str().unwrap().len(), LARGE_BYTES.div_ceil(3) * 4);
                next += 1;
            }
        }
    }
}

/// A frame of a WebSocket, masked with zeros.
fn ws_frame(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&[0x81, 0x80 | 126][..], &length, &[0; 4], text.as_bytes()].concat()
}

#[test]
fn a_crowd_of_websockets_that_takes_nothing_holds_a_quarter() {
    let served = Served::with_large_messages(ClientLimits::default());
    let handshake = head(
        "GET /v1/ws",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: weir.v1.json\r\n",
    );
    let hello = ws_frame(r#"{"t":"hello","v":1}"#);
    let sub =
        r#"{"t":"sub","ch":1,"topic":"big","from":"earliest","limit":{"msgs":1000000,"bytes":10000000000}}"#;
    let asked = [handshake.as_bytes(), &hello, &ws_frame(sub)].concat();
    let (most, _) = crowd(&served, &asked);
    assert!((LARGE_BYTES as u64..=SHARE_BYTES).contains(&most), "{most} bytes are held");
}

#[test]
fn a_crowd_over_tls_holds_a_quarter_too() {
    let served = Served::start(ClientLimits::default(), true);
    let address = format!("https://{}", served.gateway.local_addr());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    let cert: &Path = &served.dir.path().join("development-cert.pem");
    roots.add(CertificateDer::from_pem_file(cert).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let connect = |from| {
        let name = "localhost".try_into().unwrap();
        let session = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
        rustls::StreamOwned::new(session, served.narrow(from))
    };
    let mut crowd: Vec<_> = (0..CROWD).map(|_| connect(Ipv4Addr::LOCALHOST)).collect();
    // The document is small beside a page: many of them on each connection.
    let asked = head("GET /openapi.json", "").repeat(40);
    for stream in &mut crowd {
        stream.write_all(asked.as_bytes()).unwrap();
        stream.flush().unwrap();
    }
    served.until("nothing is held", |served| served.held() > 0);
    let most = served.most_held();
    assert!((200_000..=SHARE_BYTES).contains(&most), "{most} bytes are held, over {address}");
    let mut beside = connect(Ipv4Addr::new(127, 0, 0, 2));
    beside.write_all(head("GET /openapi.json", "Connection: close\r\n").as_bytes()).unwrap();
    let mut document = Vec::new();
    let _ = beside.read_to_end(&mut document);
    assert!(document.starts_with(b"HTTP/1.1 200 ") && document.len() > 200_000, "{}", document.len());
    drop(crowd);
    served.until("it is kept", |served| served.held() == 0);
}

#[test]
fn a_hundred_streams_without_a_window_on_one_connection_hold_a_quarter() {
    let served = Served::with_large_messages(ClientLimits::default());
    let sized = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let field = |name: &str, value: &str| [&[0][..], &sized(name), &sized(value)].concat();
    let path = PAGE.strip_prefix("GET ").unwrap();
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    let asked = fields.map(|(name, value)| field(name, value)).concat();
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut stream = served.narrow(Ipv4Addr::LOCALHOST);
    let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &no_window].concat()).unwrap();
    for id in 0..100 {
        stream.write_all(&frame(1, 5, 2 * id + 1, &asked)).unwrap();
    }
    served.until("nothing is held", |served| served.held() > 0);
    let most = served.most_held();
    assert!((LARGE_BYTES as u64..=SHARE_BYTES).contains(&most), "{most} bytes are held");
    let page = served.beside(PAGE);
    assert!(page.starts_with("HTTP/1.1 200 ") && page.len() > 4 * LARGE_BYTES, "{}", page.len());
    drop(stream);
    served.until("it is kept", |served| served.held() == 0);
}

#[test]
fn who_takes_nothing_is_closed_and_who_takes_slowly_gets_everything() {
    let limits = ClientLimits { write_time_max: Duration::from_secs(2), ..ClientLimits::default() };
    let served = Served::with_large_messages(limits);
    let mut none = served.narrow(Ipv4Addr::LOCALHOST);
    let mut slow = served.connect(Ipv4Addr::new(127, 0, 0, 2), 256 << 10);
    none.write_all(&page("application/json")).unwrap();
    slow.write_all(head(PAGE, "Connection: close\r\n").as_bytes()).unwrap();
    let start = Instant::now();
    let (mut taken, mut part) = (Vec::new(), vec![0; 48 << 10]);
    loop {
        let read = slow.read(&mut part).unwrap();
        if read == 0 {
            break;
        }
        taken.extend_from_slice(&part[..read]);
        // What it took lies behind it: several times what a client may take nothing for, in all.
        if start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(start.elapsed() > Duration::from_secs(4), "it was too fast to tell");
    assert!(
        String::from_utf8_lossy(&taken[taken.len() - 200..]).contains("\"up_to_date\":false"),
        "not whole"
    );
    served.until("who takes nothing is still waited for", |served| served.held() == 0);
    let mut rest = Vec::new();
    let _ = none.read_to_end(&mut rest);
    assert!(rest.len() < 4 * LARGE_BYTES, "it got {} bytes", rest.len());
}

#[test]
fn memory_goes_back_once_a_burst_is_over() {
    const KEPT_BYTES: u64 = 64 << 20;
    const BODY_BYTES: usize = 9 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let before = product.memory_now();
    // Bodies that are nearly there.
    let part = vec![b' '; BODY_BYTES];
    let mut burst = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&product.address).unwrap();
        let headers = format!("Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n", BODY_BYTES + 1);
        stream.write_all(head("POST /v1/topics/t/messages:batch", &headers).as_bytes()).unwrap();
        stream.write_all(&part).unwrap();
        burst.push(stream);
    }
    let more = || product.memory_now().saturating_sub(before);
    let start = Instant::now();
    while more() < 2 * KEPT_BYTES {
        assert!(start.elapsed() < SOON, "{} bytes more are no burst", more());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(burst);
    let start = Instant::now();
    while more() > KEPT_BYTES {
        assert!(start.elapsed() < Duration::from_secs(10), "{} bytes more than before are kept", more());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn pages_and_documents_are_compressed_for_who_names_an_encoding_and_have_a_tag_of_their_own() {
    let served = Served::start(ClientLimits::default(), false);
    let mut http = served.http();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(1_000));
    let lines = [("Content-Type", "application/x-ndjson")];
    let all = line.repeat(300);
    assert_eq!(http.request("POST /v1/topics/t/messages:batch", &lines, all.as_bytes()).unwrap().status, 200);
    let small = "GET /v1/topics/t/messages?from=0&limit=5";
    for line in [small, "GET /v1/topics/t/messages?from=0&limit=250", "GET /openapi.json", "GET /metrics"] {
        let plain = http.request(line, &[], b"").unwrap();
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{line}");
        for coding in ["gzip", "zstd"] {
            let accept = [("Accept-Encoding", coding)];
            let packed = http.request(line, &accept, b"").unwrap();
            assert_eq!((packed.status, packed.header("content-encoding")), (200, Some(coding)), "{line}");
            let vary = packed.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
            assert!(vary.clone().any(|(_, value)| value.contains("Accept-Encoding")), "{line}");
            assert!(packed.body.len() * 2 < plain.body.len(), "{line}: {}", packed.body.len());
            if line != "GET /metrics" {
                assert!(unpacked(coding, &packed.body) == plain.body, "{line} as {coding}");
                let tag = packed.header("etag").unwrap();
                assert_ne!(Some(tag), plain.header("etag"), "{line}");
                let known = http.request(line, &[accept[0], ("If-None-Match", tag)], b"").unwrap();
                assert_eq!((known.status, known.header("etag")), (304, Some(tag)), "{line}");
            }
        }
    }
    // What is compressed already, and what follows without end, goes out as it is.
    let batches = [("Accept", "application/vnd.weir.batch"), ("Accept-Encoding", "gzip")];
    assert_eq!(http.request(small, &batches, b"").unwrap().header("content-encoding"), None);
    http.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream"), batches[1]], b"").unwrap();
    assert!(!http.head().unwrap().1.iter().any(|(name, _)| name == "content-encoding"));
    drop(http);
    served.until("it is kept", |served| served.held() == 0);
}

fn unpacked(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        "gzip" => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut out).map(drop).unwrap(),
        _ => out = zstd::decode_all(bytes).unwrap(),
    }
    out
}

const MESSAGES: u64 = 400;
const MESSAGE_BYTES: usize = 10_000;
/// A few messages.
const EVENTS_BYTES_MAX: u64 = 32 << 10;

#[test]
fn an_event_stream_is_sent_ahead_no_more_than_its_limit_and_nothing_is_left_out() {
    let limits = ClientLimits { events_bytes_max: EVENTS_BYTES_MAX, ..ClientLimits::default() };
    let served = Served::start(limits, false);
    let mut http = served.http();
    assert_eq!(http.request("PUT /v1/topics/t", &[], b"{}").unwrap().status, 201);
    let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(MESSAGE_BYTES));
    let lines = [("Content-Type", "application/x-ndjson")];
    let all = line.repeat(usize::try_from(MESSAGES).unwrap());
    assert_eq!(http.request("POST /v1/topics/t/messages:batch", &lines, all.as_bytes()).unwrap().status, 200);

    let mut events = served.http();
    events.send("GET /v1/topics/t/messages", &[("Accept", "text/event-stream")], b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    let (mut next, mut most) = (0, 0);
    while next < MESSAGES {
        // Bytes that storage was allowed to send and that were not handed on yet.
        most = most.max(served.value("weir_gateway_read_credit_bytes"));
        let line = events.line().unwrap();
        if let Some(data) = line.strip_prefix("data: {\"topic\"") {
            let message: serde_json::Value = serde_json::from_str(&format!("{{\"topic\"{data}")).unwrap();
            if let Some(offset) = message["offset"].as_u64() {
                assert_eq!(offset, next, "each once, in order");
                next += 1;
            }
        }
    }
    assert!(most > 0, "nothing was measured");
    assert!(most <= EVENTS_BYTES_MAX, "{most} bytes were sent ahead");
}
