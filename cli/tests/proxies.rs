//! Weir behind a proxy: refused until somebody says that it may be there, and right below a path of it.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use product::{Connection, Product, started};
use serde_json::{Value, json};

/// Whatever is wrong, an answer or the end of the connection comes within this.
const DEADLINE: Duration = Duration::from_secs(60);

fn with_options(options: &[&str]) -> (tempfile::TempDir, Product, Connection) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", options);
    let http = Connection::open(&product.address).unwrap();
    (dir, product, http)
}

/// What is answered to these bytes, until the connection ends.
fn answered(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_comes_through_a_proxy_is_refused_until_somebody_says_that_it_keeps_others_out() {
    let (_dir, product, mut http) = started();
    let signs = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=203.0.113.9"),
        ("X-Real-IP", "203.0.113.9"),
        ("Via", "1.1 nginx"),
    ];
    for sign in signs {
        for line in ["GET /v1/topics", "GET /v1/ws", "POST /v1/topics/t/messages", "GET /metrics"] {
            let refused = http.request(line, &[sign], b"").unwrap();
            let problem = refused.json();
            let told = (refused.status, &problem["code"], &problem["field"]);
            assert_eq!(told, (403, &json!("proxy_forbidden"), &json!(sign.0.to_lowercase())), "{line}");
            assert!(problem["detail"].as_str().unwrap().contains("--behind-proxy"), "{problem}");
        }
        for line in ["GET /healthz", "GET /readyz"] {
            assert_eq!(http.request(line, &[sign], b"").unwrap().status, 204, "load balancers ask");
        }
    }
    // As nginx speaks where its configuration says nothing but `proxy_pass`.
    let plain = answered(&product.address, "GET /v1/topics HTTP/1.0\r\nHost: 127.0.0.1:8080\r\n\r\n");
    assert!(plain.contains(" 403 ") && plain.contains("proxy_forbidden"), "{plain}");
    assert_eq!(http.request("GET /v1/topics", &[], b"").unwrap().status, 200);

    let (_dir, product, mut http) = with_options(&["--behind-proxy"]);
    for sign in signs {
        assert_eq!(http.request("GET /v1/topics", &[sign], b"").unwrap().status, 200, "{sign:?}");
    }
    let log = product.log();
    assert!(log.contains("--behind-proxy") && log.contains("must keep others out"), "{log}");
    let (_dir, _product, mut http) = with_options(&["--insecure-public"]);
    assert_eq!(http.request("GET /v1/topics", &[signs[0]], b"").unwrap().status, 200, "everybody may");
}

#[test]
fn places_and_links_are_where_the_clients_of_a_proxy_are() {
    let (_dir, _product, mut http) = with_options(&["--base-path", "/mq/", "--behind-proxy"]);
    let place = |answer: &product::Answer| answer.header("location").unwrap_or_default().to_owned();
    // The proxy may take the path off or not.
    for (before, topic) in [("/mq", "a"), ("", "b")] {
        let made = http.request(&format!("PUT {before}/v1/topics/{topic}"), &[], b"{}").unwrap();
        assert_eq!((made.status, place(&made)), (201, format!("/mq/v1/topics/{topic}")));
        let sent = http.request(&format!("POST {before}/v1/topics/{topic}/messages"), &[], b"1").unwrap();
        assert_eq!(place(&sent), format!("/mq/v1/ns/default/topics/{topic}/messages/0/0"));
        let page =
            http.request(&format!("GET {before}/v1/topics/{topic}/messages?limit=1"), &[], b"").unwrap();
        let link = page.header("link").unwrap();
        assert!(link.starts_with(&format!("</mq/v1/topics/{topic}/messages?from=1")), "{link}");
        let body = json!({"topics": [topic]}).to_string();
        let made =
            http.request(&format!("PUT {before}/v1/subscriptions/{topic}"), &[], body.as_bytes()).unwrap();
        assert_eq!(place(&made), format!("/mq/v1/subscriptions/{topic}"));
        let fork = format!("POST {before}/v1/subscriptions/{topic}:fork");
        let forked = json!({"name": format!("{topic}-fork"), "at": "now"}).to_string();
        let forked = http.request(&fork, &[], forked.as_bytes()).unwrap();
        assert_eq!(place(&forked), format!("/mq/v1/subscriptions/{topic}-fork"));
    }
    let shown = http.request("GET /mq/", &[("Accept", "text/html")], b"").unwrap();
    assert_eq!((shown.status, place(&shown)), (307, "/mq/console/".to_owned()));
    let other = [("X-Forwarded-Prefix", "/other")];
    let made = http.request("PUT /v1/topics/c", &other, b"{}").unwrap();
    assert_eq!(place(&made), "/other/v1/topics/c");
    let bad = http.request("PUT /v1/topics/d", &[("X-Forwarded-Prefix", "/a\"b")], b"{}").unwrap();
    assert_eq!((bad.status, &bad.json()["field"]), (400, &json!("x-forwarded-prefix")));

    let (_dir, _product, mut http) = with_options(&["--insecure-public"]);
    let made = http.request("PUT /v1/topics/c", &other, b"{}").unwrap();
    assert_eq!(place(&made), "/v1/topics/c", "what anybody may say counts for nothing");
}

/// nginx with a configuration from the operators' guide; ended when dropped.
struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    fn start(dir: &Path, server: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let server = server.replace("listen 443 ssl;", &format!("listen {address};"));
        let server: String =
            server.lines().filter(|line| !line.contains("ssl_")).map(|l| format!("{l}\n")).collect();
        let at = dir.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};"))
            .concat();
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/nginx.pid; error_log {at}/error.log;\n\
             events {{ worker_connections 64; }}\nhttp {{ access_log off; {temporary}\n{server}\n}}\n"
        );
        let path = dir.join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        // Debian has it where not everybody looks.
        let program = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let mut command = Command::new(program);
        command.arg("-p").arg(dir).arg("-c").arg(&path).arg("-e").arg(dir.join("error.log"));
        let child = command.spawn().expect("nginx is installed: scripts/test does that");
        let start = Instant::now();
        while TcpStream::connect(&address).is_err() {
            let log = || std::fs::read_to_string(dir.join("error.log")).unwrap_or_default();
            assert!(start.elapsed() < DEADLINE, "nginx does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, address }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It ends its worker with it, which SIGKILL would leave behind.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// The block of the operators' guide that begins with this line.
fn documented(first: &str) -> String {
    let guide = include_str!("../../docs/operations.md");
    let block =
        guide.split("```").find(|block| block.lines().nth(1).is_some_and(|line| line.starts_with(first)));
    let block = block.unwrap_or_else(|| panic!("docs/operations.md has no block that begins with {first}"));
    block.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn what_the_guide_says_of_nginx_serves_the_api_streams_sockets_uploads_and_the_console_below_a_path() {
    let options = ["--behind-proxy", "--base-path", "/weir", "--host-name", "mq.example.org"];
    let (dir, product, _) = with_options(&options);
    let server = documented("map $http_upgrade").replace("127.0.0.1:8080", &product.address);
    let nginx = Nginx::start(dir.path(), &server);
    let mut http = Connection::open(&nginx.address).unwrap();
    let asked = [("X-Forwarded-Prefix", "/evil"), ("Origin", "http://mq.example.org")];
    let named = |line: &str| format!("{line} HTTP/1.1\r\nHost: mq.example.org\r\nConnection: close\r\n");

    let made = http.request("PUT /weir/v1/topics/t", &asked[..1], b"{}").unwrap();
    assert_eq!((made.status, made.header("location")), (201, Some("/weir/v1/topics/t")), "{}", made.text());
    let large = vec![b'x'; 1 << 20];
    let sent = http.request("POST /weir/v1/topics/t/messages", &[], &large).unwrap();
    assert_eq!(sent.status, 201, "{}", sent.text());
    let place = sent.header("location").unwrap().to_owned();
    assert_eq!(http.request(&format!("GET {place}"), &[], b"").unwrap().body, large);
    let lines = "{\"data\":1}\n".repeat(10_000);
    let media = [("Content-Type", "application/x-ndjson")];
    let batch = http.request("POST /weir/v1/topics/t/messages:batch", &media, lines.as_bytes()).unwrap();
    assert_eq!(batch.status, 200, "{}", batch.text());
    let page = http.request("GET /weir/v1/topics/t/messages?from=1&limit=1", &[], b"").unwrap();
    assert!(page.header("link").unwrap().starts_with("</weir/v1/topics/t/messages?from=2"), "{page:?}");

    // A page that the proxy serves is the gateway's own, and one of elsewhere is not.
    for (origin, status) in [("http://mq.example.org", "200"), ("http://evil.example", "403")] {
        let request = named("GET /weir/v1/topics") + &format!("Origin: {origin}\r\n\r\n");
        let answer = answered(&nginx.address, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{origin}: {answer}");
    }
    let stranger = named("GET /weir/v1/topics").replace("mq.example.org", "evil.example") + "\r\n";
    assert!(answered(&nginx.address, &stranger).contains("unknown_host"));

    let console = answered(&nginx.address, &(named("GET /weir/console/ns/default") + "\r\n"));
    assert!(console.starts_with("HTTP/1.1 200"), "{console}");
    let is_built = !console.contains("not part of this build");
    assert!(!is_built || console.contains("<base href=\"/weir/console/\" />"), "{console}");
    let redirect = answered(&nginx.address, &(named("GET /weir/console") + "\r\n"));
    assert!(redirect.to_lowercase().contains("location: /weir/console/\r\n"), "{redirect}");

    follows(&nginx.address);
    converses(&nginx.address);
}

/// Events come when there are any, and not when a buffer is full.
fn follows(address: &str) {
    let mut events = Connection::open(address).unwrap();
    let headers = [("Accept", "text/event-stream")];
    events.send("GET /weir/v1/topics/t/messages?from=latest", &headers, b"").unwrap();
    assert_eq!(events.head().unwrap().0, 200);
    let mut http = Connection::open(address).unwrap();
    assert_eq!(http.request("POST /weir/v1/topics/t/messages", &[], b"soon").unwrap().status, 201);
    let start = Instant::now();
    while !events.line().unwrap().contains("\"offset\":10001") {
        assert!(start.elapsed() < DEADLINE);
    }
}

/// A WebSocket, whose messages are read up to the answer to `hello`.
fn converses(address: &str) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let handshake = "GET /weir/v1/ws HTTP/1.1\r\nHost: mq.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: weir.v1.json\r\nOrigin: http://mq.example.org\r\n\r\n";
    socket.write_all(handshake.as_bytes()).unwrap();
    let hello = json!({"t": "hello", "v": 1}).to_string();
    let mut frame = vec![0x81, 0x80 | u8::try_from(hello.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(hello.as_bytes());
    socket.write_all(&frame).unwrap();
    let (mut told, mut piece) = (Vec::new(), [0; 4 << 10]);
    let start = Instant::now();
    while !String::from_utf8_lossy(&told).contains("\"t\":\"welcome\"") {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0 && start.elapsed() < DEADLINE, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..read]);
    }
    assert!(told.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&told));
}

#[test]
fn a_plain_proxy_pass_lets_nobody_in() {
    let (dir, product, _) = started();
    let server =
        format!("server {{ listen 443 ssl; location / {{ proxy_pass http://{}; }} }}", product.address);
    let nginx = Nginx::start(dir.path(), &server);
    let mut http = Connection::open(&nginx.address).unwrap();
    let refused = http.request("GET /v1/topics", &[], b"").unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("proxy_forbidden")));
    assert_ne!(refused.json()["detail"], Value::Null);
}
