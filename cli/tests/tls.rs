//! HTTPS, HTTP/2 and WSS with a development certificate; both loopback addresses.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use product::{Connection, Product};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

fn weir(url: &str, cert: Option<&Path>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("--url").arg(url).args(args).stdin(std::process::Stdio::null());
    cert.map(|cert| command.arg("--ca-cert").arg(cert));
    command.output().unwrap()
}

#[test]
fn https_and_wss_are_served_to_who_trusts_the_certificate() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--tls-self-signed"]);
    let cert = dir.path().join("data/development-cert.pem");
    let url = format!("https://{}", product.address);
    let published = weir(&url, Some(&cert), &["pub", "secret", "over wss"]);
    assert!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let read = weir(&url, Some(&cert), &["sub", "secret", "--from", "earliest", "--no-follow"]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "over wss\n");
    let listed = weir(&url, Some(&cert), &["topic", "list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("secret"));
    let strangers = weir(&url, None, &["topic", "list"]);
    assert!(!strangers.status.success(), "nobody trusts it who was not told to");
    // Who forgets the s of https is told so.
    let plain = Connection::open(&product.address).unwrap().request("GET /healthz", &[], b"").unwrap();
    assert_eq!((plain.status, plain.json()["code"].as_str()), (400, Some("malformed")));
    let plain = weir(&format!("http://{}", product.address), None, &["topic", "list"]);
    let said = String::from_utf8_lossy(&plain.stderr);
    assert!(!plain.status.success() && said.contains("use https://"), "{said}");
    assert!(weir(&url, Some(&cert), &["topic", "list"]).status.success());
}

#[test]
fn who_does_not_trust_the_certificate_is_told_so_at_once_and_what_to_do() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--tls-self-signed"]);
    let url = format!("https://{}", product.address);
    for arguments in [&["topic", "list"][..], &["sub", "t", "--no-follow"], &["pub", "t", "hello"]] {
        let refused = weir(&url, None, arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("--ca-cert"), "{arguments:?}: {said}");
        assert!(!said.contains("trying again"), "another attempt would end the same way: {said}");
        assert!(!said.contains("Error("), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_negotiated_and_knows_its_own_origin() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--tls-self-signed"]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.path().join("data/development-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http2()
        .build();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let origin = format!("https://{}", product.address);
    let post = |origin: &str| {
        http::Request::post(format!("https://{}/v1/topics/t/messages", product.address))
            .header("origin", origin)
            .body(Full::from("hello"))
            .unwrap()
    };
    let answer = client.request(post(&origin)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (201, http::Version::HTTP_2));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\"partition\":0,\"offset\":0"));
    assert_eq!(client.request(post("https://evil.example")).await.unwrap().status().as_u16(), 403);
}

#[test]
fn who_does_not_finish_a_handshake_does_not_hold_others_up() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--tls-self-signed"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut client =
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    // More than may shake hands at once: they stop within their hello, or behind it.
    let slow = [&hello[..1], &hello].map(|said| {
        let stop = |_| {
            let mut stream = TcpStream::connect(&product.address).unwrap();
            stream.write_all(said).unwrap();
            stream
        };
        (0..80).map(stop).collect::<Vec<_>>()
    });
    let begun = Instant::now();
    let cert = dir.path().join("data/development-cert.pem");
    let listed = weir(&format!("https://{}", product.address), Some(&cert), &["topic", "list"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(slow);
}

#[test]
fn who_asks_a_gateway_without_tls_for_tls_is_told_so_at_once() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start(dir.path());
    let url = format!("https://{}", product.address);
    for arguments in [&["topic", "list"][..], &["pub", "t", "x"], &["sub", "t"]] {
        let refused = weir(&url, None, arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && !said.contains("trying again"), "{arguments:?}: {said}");
        assert!(said.contains("--url with http://"), "{arguments:?}: {said}");
    }
}

#[test]
fn who_is_refused_a_websocket_is_told_why_in_words() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--tls-self-signed"]);
    let url = format!("http://{}", product.address);
    for arguments in [&["topic", "list"][..], &["sub", "t"], &["sub", "t", "--no-follow"]] {
        let refused = weir(&url, None, arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{arguments:?}: {said}");
        let line = said.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(
            line.contains("(malformed): HTTP without TLS") && !line.contains('{'),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn both_loopback_addresses_are_listened_on() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let product = Product::start(dir.path());
    let port = product.address.rsplit(':').next().unwrap();
    let answer = Connection::open(&format!("[::1]:{port}"))
        .and_then(|mut http| http.request("GET /healthz", &[], b""));
    assert_eq!(answer.is_ok_and(|answer| answer.status == 204), has_ipv6, "where this machine has one");
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, "no certificate").unwrap();
    std::fs::write(&key, "no key").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--tls-cert")
        .arg(&cert)
        .arg("--tls-key")
        .arg(&key)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cert.pem"), "{error}");
}
