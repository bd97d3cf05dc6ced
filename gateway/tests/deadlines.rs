//! Who keeps the gateway waiting is not waited for longer than the limits say: with real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_gateway::{ClientLimits, Gateway, GatewayConfig, RunningGateway, TlsSource};

const SHORT: Duration = Duration::from_millis(200);
/// Well below every default.
const SOON: Duration = Duration::from_secs(8);

/// Storage is nowhere: nothing here asks for it.
async fn gateway(limits: ClientLimits, tls: Option<TlsSource>) -> (RunningGateway, Registry) {
    let config = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        storage: "127.0.0.1:1".to_owned(),
        limits,
        tls,
        ..GatewayConfig::default()
    };
    let registry = Registry::new();
    (Gateway::start(config, registry.clone()).await.unwrap(), registry)
}

async fn connect(gateway: &RunningGateway) -> TcpStream {
    TcpStream::connect(gateway.local_addr()).await.unwrap()
}

/// Writes the same again and again, reads nothing, and returns once the other side has closed.
async fn pour(stream: &mut TcpStream, bytes: &[u8]) {
    let poured = async { while stream.write_all(bytes).await.is_ok() {} };
    timeout(SOON, poured).await.expect("who takes nothing is still waited for");
}

/// Waits until the metrics say so: what is closed is counted a moment later.
async fn counted(registry: &Registry, line: &str) {
    let metrics = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let says_so = async {
        while !metrics().contains(line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, says_so).await.unwrap_or_else(|_| panic!("{line} in {}", metrics()));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_and_not_waited_for() {
    let limits = ClientLimits { body_time_max: SHORT, ..ClientLimits::default() };
    let (gateway, _) = gateway(limits, None).await;
    let mut stream = connect(&gateway).await;
    let head =
        "POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nthe beginning";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.expect("it waits on").unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    for part in ["application/problem+json", "\"request_timeout\"", "\"outcome\":\"none\""] {
        assert!(answer.contains(part), "{answer}");
    }
}

const HEALTHY: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Everything that is answered until the connection is closed.
async fn answer_to(mut stream: TcpStream, said: &str) -> String {
    stream.write_all(said.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.expect("it waits on").unwrap();
    answer
}

/// A connection on which a request was answered.
async fn answered(gateway: &RunningGateway) -> TcpStream {
    let mut stream = connect(gateway).await;
    stream.write_all(HEALTHY.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    stream
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let limits = ClientLimits { head_time_max: SHORT, ..ClientLimits::default() };
    let (gateway, registry) = gateway(limits, None).await;
    // Nothing was asked, or it is not known in which version of HTTP.
    for said in ["", "P", "PRI * HTT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = connect(&gateway).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it waits on").unwrap();
        assert!(!answer.starts_with(b"HTTP/1"), "{said:?}: {answer:?}");
    }
    assert_eq!(answer_to(answered(&gateway).await, "").await, "", "who rests is told nothing");
    for (is_first, said) in
        [(true, "PO"), (true, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"), (false, "G")]
    {
        let stream = if is_first { connect(&gateway).await } else { answered(&gateway).await };
        let answer = answer_to(stream, said).await;
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{said:?}: {answer}");
        for part in ["application/problem+json", "\"request_timeout\"", "\"outcome\":\"none\"", "200 ms"] {
            assert!(answer.contains(part), "{said:?}: {answer}");
        }
    }
    counted(&registry, "weir_gateway_requests_total{class=\"4xx\",operation=\"none\"} 3").await;
}

#[tokio::test]
async fn who_has_asked_for_nothing_or_rests_does_not_hold_up_a_stop() {
    let limits = ClientLimits { head_time_max: 10 * SOON, ..ClientLimits::default() };
    let (gateway, _) = gateway(limits, None).await;
    let (silent, mut begun) = (connect(&gateway).await, connect(&gateway).await);
    begun.write_all(b"P").await.unwrap();
    // They are accepted in their order: the others before this.
    let resting = answered(&gateway).await;
    timeout(SOON, gateway.shutdown(10 * SOON)).await.expect("it waits for who asks for nothing");
    for mut stream in [silent, begun, resting] {
        let mut answer = Vec::new();
        timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it waits on").unwrap();
        assert_eq!(answer, b"");
    }
}

#[tokio::test]
async fn a_head_that_breaks_off_is_answered() {
    let (gateway, _) = gateway(ClientLimits::default(), None).await;
    let mut stream = connect(&gateway).await;
    stream.write_all(b"POST /v1/topics/t/messages HTTP/1.1\r\nHo").await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = answer_to(stream, "").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("ends within its head"), "{answer}");
}

#[tokio::test]
async fn who_takes_no_answers_is_closed() {
    let limits = ClientLimits { write_time_max: SHORT, ..ClientLimits::default() };
    let (gateway, _) = gateway(limits, None).await;
    let mut stream = connect(&gateway).await;
    pour(&mut stream, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame: its kind, stream and payload.
async fn next_frame(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    timeout(SOON, stream.read_exact(&mut head)).await.expect("it waits on").unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await.unwrap();
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

#[tokio::test]
async fn an_answer_in_http2_that_is_not_taken_is_reset_and_the_others_go_on() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    let limits = ClientLimits { write_time_max: SHORT, ..ClientLimits::default() };
    let (gateway, _) = gateway(limits, None).await;
    let field = |name: &str, value: &str| {
        let sized = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        [&[0][..], &sized(name), &sized(value)].concat()
    };
    let asked = |path: &str| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
        fields.map(|(name, value)| field(name, value)).concat()
    };
    let mut stream = connect(&gateway).await;
    // No window for answers: nothing of any body is taken.
    let no_window = [0, 4, 0, 0, 0, 0];
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &no_window)].concat();
    stream.write_all(&begin).await.unwrap();
    for (id, path) in [(1, "/openapi.json"), (3, "/v1/nothing"), (5, "/healthz")] {
        stream.write_all(&frame(HEADERS, 5, id, &asked(path))).await.unwrap();
    }
    let mut reset = Vec::new();
    while reset.len() < 2 {
        let (kind, id, payload) = next_frame(&mut stream).await;
        match kind {
            RESET => reset.push(id),
            SETTINGS | HEADERS | PING | WINDOW_UPDATE => {}
            _ => panic!("{kind} on {id}: {payload:?}"),
        }
    }
    reset.sort_unstable();
    assert_eq!(reset, [1, 3], "what has no body is whole");
    // The connection goes on, and who takes what it asked for gets all of it.
    let window = [0, 4, 0, 1, 0, 0];
    stream.write_all(&frame(SETTINGS, 0, 0, &window)).await.unwrap();
    stream.write_all(&frame(HEADERS, 5, 7, &asked("/v1/nothing"))).await.unwrap();
    loop {
        let (kind, id, payload) = next_frame(&mut stream).await;
        if (kind, id) == (0, 7) && !payload.is_empty() {
            assert!(payload.starts_with(b"{\"type\":\"urn:weir:problem:route-not-found\""), "{payload:?}");
            break;
        }
    }
}

#[tokio::test]
async fn a_websocket_whose_client_takes_nothing_is_closed() {
    let limits = ClientLimits { socket_write_time_max: SHORT, ..ClientLimits::default() };
    let (gateway, registry) = gateway(limits, None).await;
    let mut stream = connect(&gateway).await;
    let handshake = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: weir.v1.json\r\n\r\n";
    stream.write_all(handshake.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    // Masked with zeros, which changes nothing; every ping is answered by a pong that nobody takes.
    let framed = |text: &str| {
        let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        frame
    };
    stream.write_all(&framed("{\"t\":\"hello\",\"v\":1}")).await.unwrap();
    pour(&mut stream, &framed("{\"t\":\"ping\",\"id\":9007199254740991}").repeat(1_000)).await;
    counted(&registry, "\nweir_gateway_websockets 0\n").await;
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ClientLimits { handshake_time_max: SHORT, ..ClientLimits::default() };
    let tls = TlsSource::SelfSigned { dir: dir.path().to_owned() };
    let (gateway, registry) = gateway(limits, Some(tls)).await;
    // Nothing at all, and the head of a record whose rest never comes.
    for said in [&b""[..], &[0x16, 3, 1, 2, 0]] {
        let mut stream = connect(&gateway).await;
        stream.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it waits on").unwrap();
        assert!(answer.is_empty(), "{answer:?}");
    }
    counted(&registry, "weir_gateway_tls_handshakes_failed_total{reason=\"timeout\"} 2").await;
}
