//! How the product stops when it is asked to.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use product::Connection;

#[test]
fn a_stop_that_was_asked_for_logs_no_warning() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    // Whether a node or its gateway notices first is a race, so it is run a few times.
    for round in 0..5 {
        let (log, ready) = (path(&format!("log-{round}")), path(&format!("ready-{round}")));
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(path("data"))
            .arg("--ready-file")
            .arg(&ready)
            .env_remove("WEIR_LOG")
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let url = loop {
            match std::fs::read_to_string(&ready) {
                Ok(url) if !url.is_empty() => break url,
                _ => assert!(begun.elapsed() < Duration::from_secs(60), "it never got ready"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // Links to every shard, a follower that waits, and a connection that is kept alive.
        let address = url.split_once("://").unwrap().1;
        let mut http = Connection::open(address).unwrap();
        let config = br#"{"partitions":4}"#;
        http.request("PUT /v1/topics/wide", &[("Content-Type", "application/json")], config).unwrap();
        let text = [("Content-Type", "text/plain")];
        for _ in 0..8 {
            let sent = http.request("POST /v1/topics/wide/messages", &text, b"x").unwrap();
            assert_eq!(sent.status, 201, "{}", sent.text());
        }
        let mut events = Connection::open(address).unwrap();
        events.send("GET /v1/topics/wide/messages", &[("Accept", "text/event-stream")], b"").unwrap();
        assert_eq!(events.head().unwrap().0, 200);

        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("stopping: finishing what is in flight"), "{log}");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "round {round}: {log}");
    }
}
