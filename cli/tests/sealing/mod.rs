//! A product that seals early, and what is published to it: far more than its journal holds.

use std::time::{Duration, Instant};

use super::product::Connection;

/// Small files, early packs, hardly anything in memory, nothing in a cache on disk.
pub(crate) const OPTIONS: [[&str; 2]; 9] = [
    ["--journal-max", "64MiB"],
    ["--journal-file", "16MiB"],
    ["--data-shards", "1"],
    ["--seal-after-ms", "2000"],
    ["--seal-size", "8MiB"],
    ["--snapshot-every-ms", "500"],
    ["--tail-ring", "1MiB"],
    ["--cache-memory", "16MiB"],
    ["--cache-disk", "0B"],
];

/// What message `n` holds: its number, and noise that compresses to half.
pub(crate) fn value(n: u64, bytes: usize) -> String {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("{n:08} ");
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// Publishes a text, again and again while there is no room.
pub(crate) fn publish(http: &mut Connection, topic: &str, key: Option<&str>, text: &str, until: Instant) {
    let line = format!("POST /v1/topics/{topic}/messages");
    let mut headers = vec![("Content-Type", "text/plain")];
    headers.extend(key.map(|key| ("Message-Key", key)));
    loop {
        let answer = http.request(&line, &headers, text.as_bytes()).unwrap();
        match answer.status {
            201 => return,
            429 | 503 => std::thread::sleep(Duration::from_millis(100)),
            _ => panic!("{}: {}", &text[..8], answer.text()),
        }
        assert!(Instant::now() < until, "no room for message {}", &text[..8]);
    }
}

/// A metric without labels.
pub(crate) fn metric(http: &mut Connection, name: &str) -> f64 {
    let metrics = http.request("GET /metrics", &[], b"").unwrap().text();
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

/// Waits until something holds.
pub(crate) fn until(
    http: &mut Connection,
    what: &str,
    ends: Instant,
    holds: &dyn Fn(&mut Connection) -> bool,
) {
    while !holds(http) {
        assert!(Instant::now() < ends, "{what}: it never did");
        std::thread::sleep(Duration::from_millis(20));
    }
}
