//! A lasting topic shares objects with one whose messages go: what lasts moves to new objects, in a real S3,
//! and is read from there after the product was killed in the middle.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/minio/mod.rs"]
mod minio;
#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;
mod sealing;

use std::path::Path;
use std::time::{Duration, Instant};

use minio::Minio;
use product::{Connection, Product};
use sealing::{metric, publish, until, value};

/// Published to the topic whose messages go; the journal may hold 64 MiB.
const MESSAGES: u64 = 400;
/// One of so many goes to the lasting topic too.
const LASTING_EVERY: u64 = 10;
const BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(300);

fn start(dir: &Path, minio: &Minio) -> (Product, Connection) {
    let url = Minio::url("rewriting");
    let mut options = vec!["--object-store", url.as_str()];
    options.extend(sealing::OPTIONS.as_flattened());
    let product = Product::start_with_env(dir, "127.0.0.1:0", &options, &minio.options());
    let http = Connection::open(&product.address).unwrap();
    (product, http)
}

fn read_lasting(http: &mut Connection) {
    let mut next = 0;
    while next < MESSAGES / LASTING_EVERY {
        let line = format!("GET /v1/topics/lasting/messages?from={next}&limit=100&max_bytes=3000000");
        let answer = http.request(&line, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        for message in answer.json()["messages"].as_array().unwrap() {
            assert_eq!(message["offset"], next);
            assert!(message["data"] == value(next * LASTING_EVERY, BYTES), "message {next} is another");
            next += 1;
        }
    }
}

#[test]
fn what_lasts_moves_out_of_mostly_dead_objects_in_a_real_store() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let minio = Minio::start();
    let (mut product, mut http) = start(dir.path(), &minio);
    for topic in ["brief", "lasting"] {
        let line = format!("PUT /v1/topics/{topic}");
        assert_eq!(http.request(&line, &[], br#"{"partitions":1}"#).unwrap().status, 201);
    }
    let ends = Instant::now() + PATIENCE;
    for n in 0..MESSAGES {
        publish(&mut http, "brief", None, &value(n, BYTES), ends);
        if n % LASTING_EVERY == 0 {
            publish(&mut http, "lasting", None, &value(n, BYTES), ends);
        }
    }
    until(&mut http, "all is in the store", ends, &|http| {
        metric(http, "weir_storage_upload_lag_seconds") == 0.0
    });
    let before = metric(&mut http, "weir_storage_object_bytes");
    let patch = br#"{"retention":{"records":1}}"#;
    let answer = http.request("PATCH /v1/topics/brief", &[], patch).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    until(&mut http, "objects are replaced", ends, &|http| {
        metric(http, "weir_tier_packs_replaced_total") > 0.0
    });
    product.kill();
    let (mut product, mut http) = start(dir.path(), &minio);
    until(&mut http, "nothing is left to replace", ends, &|http| {
        metric(http, "weir_storage_object_bytes") < before / 4.0
            && metric(http, "weir_storage_unneeded_objects") == 0.0
    });
    read_lasting(&mut http);
    let topic = http.request("GET /v1/topics/lasting", &[], b"").unwrap().json();
    let storage = &topic["partitions"][0]["storage"];
    assert_eq!(storage["archived_to"], MESSAGES / LASTING_EVERY, "{topic}");
    assert!(storage["cold_bytes"].as_u64().unwrap() > 0, "some has left the journal: {topic}");
    assert!(topic["storage"]["object_bytes"].as_u64().unwrap() > 0, "{topic}");
    assert!(topic["storage"]["cost_per_day"]["total"].as_f64().unwrap() > 0.0, "{topic}");
    assert!(product.stop());
}
