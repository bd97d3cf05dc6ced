//! A store that is asked over TLS, as those of clouds are: large bodies go by a client of ours there too.

use std::error::Error;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use weir_tier::store::{PART_BYTES, Store, StoreConfig};

use crate::minio::Minio;
use crate::suite::noise;

/// Passes on, to what is at `to`, what comes over TLS with a certificate that nobody knows; gives its address.
async fn terminate(to: String) -> String {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, to) = (acceptor.clone(), to.clone());
            tokio::spawn(async move {
                // Whoever does not believe the certificate hangs up.
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let mut inside = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    addr.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_go_over_tls_to_whom_the_settings_believe() {
    let minio = Minio::start();
    let mut options = minio.options();
    let at = |options: &[(String, String)], name| options.iter().position(|(key, _)| key == name).unwrap();
    let endpoint = at(&options, "AWS_ENDPOINT");
    let plain = options[endpoint].1.trim_start_matches("http://").to_owned();
    options[endpoint].1 = format!("https://{}", terminate(plain).await);
    options.remove(at(&options, "AWS_ALLOW_HTTP"));
    let open = |more: &[(&str, &str)]| {
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = options.iter().cloned().chain(more).collect();
        Store::open(StoreConfig { options, ..StoreConfig::new(Minio::url("tls")) }).unwrap()
    };
    let believing = open(&[("AWS_ALLOW_INVALID_CERTIFICATES", "true")]);
    for (name, bytes) in [("small", 1_000), ("one", 2 << 20), ("parts", PART_BYTES + 1)] {
        let mut upload = believing.upload(name);
        upload.write(noise(bytes)).await.unwrap();
        // Read back and compared by the library's own client.
        assert_eq!(upload.finish().await.unwrap().bytes, bytes as u64, "{name}");
    }
    let mut upload = open(&[]).upload("refused");
    upload.write(noise(2 << 20)).await.unwrap();
    let refused = upload.finish().await.unwrap_err();
    let causes = std::iter::successors(Some(&refused as &dyn Error), |error| (*error).source());
    let why: Vec<_> = causes.map(ToString::to_string).collect();
    assert!(why.iter().any(|why| why.contains("certificate")), "{why:?}");
}
