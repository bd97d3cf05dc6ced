//! The API guide shows WebSocket frames: they are frames, and every name in them exists.
#![expect(clippy::disallowed_methods, reason = "golden files and seeds are read in tests")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use serde_json::Value;
use weir_protocol::ws::{CloseCode, FrameType, json};

fn section() -> String {
    let guide = std::fs::read_to_string(format!("{}/../docs/api.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let start = guide.find("\n## WebSocket\n").expect("the guide has the section") + 1;
    let end = guide[start..].find("\n## ").map_or(guide.len(), |at| start + at);
    guide[start..end].to_owned()
}

/// Whether all of `shown` is in `whole`, whatever else is.
fn is_within(shown: &Value, whole: &Value) -> bool {
    match (shown, whole) {
        (Value::Object(shown), Value::Object(whole)) => {
            shown.iter().all(|(name, value)| whole.get(name).is_some_and(|other| is_within(value, other)))
        }
        (Value::Array(shown), Value::Array(whole)) => {
            shown.len() == whole.len() && shown.iter().zip(whole).all(|(a, b)| is_within(a, b))
        }
        _ => shown == whole,
    }
}

#[test]
fn every_frame_that_is_shown_reads_and_is_written_with_the_same_fields() {
    let section = section();
    let mut shown = 0;
    for line in section.lines().map(str::trim) {
        let mut written = String::new();
        let frame = if let Some(frame) = line.strip_prefix("→ ") {
            for read in json::client_frames(frame) {
                let (ch, read) = read.unwrap_or_else(|error| panic!("{frame}: {error}"));
                json::put_client_frame(&mut written, ch, &read);
            }
            frame
        } else if let Some(frame) = line.strip_prefix("← ") {
            for read in json::server_frames(frame) {
                let (ch, read) = read.unwrap_or_else(|error| panic!("{frame}: {error}"));
                json::put_server_frame(&mut written, ch, &read);
            }
            frame
        } else {
            continue;
        };
        let [shown_value, written_value]: [Value; 2] =
            [frame, &written].map(|text| serde_json::from_str(text).unwrap());
        assert!(is_within(&shown_value, &written_value), "{frame}\nis written\n{written}");
        shown += 1;
    }
    assert!(shown >= 15, "only {shown} frames were found");
}

#[test]
fn every_frame_is_named() {
    let section = section();
    for frame in FrameType::ALL.iter().map(|frame| frame.as_str()) {
        let is_named =
            section.contains(&format!("`{frame}`")) || section.contains(&format!("\"t\":\"{frame}\""));
        assert!(is_named, "{frame} is not in the guide");
    }
}

#[test]
fn close_codes_have_their_reasons() {
    let section = section();
    let mut found = 0;
    for row in section.lines().filter_map(|line| line.strip_prefix("| 4")) {
        let mut cells = row.split('|').map(str::trim);
        let number = format!("4{}", cells.next().unwrap()).parse().unwrap();
        let code = CloseCode::from_number(number).unwrap_or_else(|| panic!("{number} is no code"));
        assert_eq!(cells.next().unwrap(), format!("`{}`", code.as_str()));
        found += 1;
    }
    assert!(found > 5, "only {found} codes were found");
}
