//! A journal with damage in what was confirmed: refused, explained, and cut off when somebody asks for it.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};

use product::{Connection, Product};

const MESSAGES: usize = 60;

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn publish(http: &mut Connection, text: &str) -> serde_json::Value {
    let answer = http.request("POST /v1/topics/t/messages", &[], text.as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

/// A product with messages of a page each, and the place of one of them in its journal.
fn with_messages(dir: &Path, end: impl FnOnce(&mut Product)) -> (std::path::PathBuf, u64) {
    with_messages_of(Product::start(dir), dir, end)
}

fn with_messages_of(
    mut product: Product,
    dir: &Path,
    end: impl FnOnce(&mut Product),
) -> (std::path::PathBuf, u64) {
    let mut http = Connection::open(&product.address).unwrap();
    for n in 0..MESSAGES {
        publish(&mut http, &format!("message {n:03} {}", "x".repeat(3_000)));
    }
    end(&mut product);
    let path = dir.join("data/wal/0000000000000001.wal");
    let bytes = std::fs::read(&path).unwrap();
    let needle = format!("message {:03} ", MESSAGES / 2);
    let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap();
    (path, at as u64)
}

fn damage(path: &Path, at: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_at(b"?", at).unwrap();
}

fn message(http: &mut Connection, offset: usize) -> (u16, String) {
    let answer = http.request(&format!("GET /v1/topics/t/messages/0/{offset}"), &[], b"").unwrap();
    (answer.status, answer.text())
}

#[test]
fn a_directory_without_data_is_not_called_damaged() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let nowhere = dir.path().join("nowhere");
    for (data, told) in [(dir.path(), "is no data directory of Weir"), (&nowhere, "does not exist")] {
        for more in [&[][..], &["--truncate"], &["--json"]] {
            let output = weir(&[&["repair", "--data-dir", data.to_str().unwrap()], more].concat());
            let said = both(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let named = said.contains(data.to_str().unwrap()) && said.contains(told);
            assert!(named && !said.contains("damaged"), "{said}");
        }
    }
    assert!(!nowhere.exists());
}

#[test]
fn damage_below_the_checkpoints_costs_messages_and_no_offsets() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let whole = with_messages(dir.path(), |product| assert!(product.stop()));
    assert!(weir(&["repair", "--data-dir", data]).status.success(), "nothing is damaged yet");
    damage(&whole.0, whole.1);

    let refused = weir(&["dev", "--listen", "127.0.0.1:0", "--data-dir", data]);
    let said = both(&refused);
    assert!(!refused.status.success() && said.contains("weir repair --data-dir"), "{said}");
    let before = std::fs::read(&whole.0).unwrap();
    let looked = weir(&["repair", "--data-dir", data]);
    let said = both(&looked);
    assert_eq!(looked.status.code(), Some(1), "{said}");
    for told in
        ["0000000000000001.wal is damaged from byte", "would lose: ", "entries of shard", "--truncate"]
    {
        assert!(said.contains(told), "{told} in {said}");
    }
    let looked = weir(&["repair", "--data-dir", data, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&looked.stdout).unwrap();
    assert_eq!(looked.status.code(), Some(1), "{told}");
    assert_eq!(
        (&told["whole"], &told["can_truncate"], &told["truncated"]),
        (&false.into(), &true.into(), &false.into())
    );
    assert!(told["byte"].is_u64() && told["losses"][0]["covered"].is_u64(), "{told}");
    assert!(std::fs::read(&whole.0).unwrap() == before, "looking changes nothing");

    let cut = weir(&["repair", "--data-dir", data, "--truncate"]);
    let said = both(&cut);
    assert!(cut.status.success(), "{said}");
    let kept = dir.path().join("data/0000000000000001.wal.damaged");
    assert!(said.contains(kept.to_str().unwrap()), "{said}");
    assert!(std::fs::read(kept).unwrap() == before, "what was cut is kept");
    assert!(weir(&["repair", "--data-dir", data]).status.success(), "it is whole now");

    let product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    let text = message(&mut http, MESSAGES / 2 - 1);
    assert!(text.0 == 200 && text.1.starts_with(&format!("message {:03}", MESSAGES / 2 - 1)), "{text:?}");
    for lost in [MESSAGES / 2, MESSAGES - 1] {
        let (status, said) = message(&mut http, lost);
        assert!(status >= 500 && said.contains("\"corrupt\""), "{status} {said}");
    }
    assert_eq!(publish(&mut http, "new")["offset"], MESSAGES, "offsets that were given are not given again");
    assert_eq!(message(&mut http, MESSAGES), (200, "new".to_owned()));
}

#[test]
fn damage_of_what_is_in_the_object_store_costs_no_message() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let start = || Product::start_with(dir.path(), "127.0.0.1:0", &["--object-store", "local"]);
    let (path, at) = with_messages_of(start(), dir.path(), |product| {
        let mut http = Connection::open(&product.address).unwrap();
        let sure = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000")];
        let last = http.request("POST /v1/topics/t/messages", &sure, b"the last").unwrap();
        assert_eq!(last.header("confirm-level"), Some("archived"), "{}", last.text());
        assert!(product.stop());
    });
    damage(&path, at);
    let cut = weir(&["repair", "--data-dir", data.to_str().unwrap(), "--truncate"]);
    assert!(cut.status.success(), "{}", both(&cut));
    let product = start();
    let mut http = Connection::open(&product.address).unwrap();
    for n in 0..MESSAGES {
        let (status, text) = message(&mut http, n);
        assert!(status == 200 && text.starts_with(&format!("message {n:03} ")), "{n}: {status} {text}");
    }
    assert_eq!(message(&mut http, MESSAGES), (200, "the last".to_owned()));
    assert_eq!(publish(&mut http, "new")["offset"], MESSAGES + 1);
}

#[test]
fn damage_behind_the_checkpoints_takes_the_end_of_the_log_with_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let (path, at) = with_messages(dir.path(), Product::kill);
    damage(&path, at);
    let cut = weir(&["repair", "--data-dir", data, "--truncate", "--json"]);
    assert!(cut.status.success(), "{}", both(&cut));
    let told: serde_json::Value = serde_json::from_slice(&cut.stdout).unwrap();
    // The next file too, if one had been prepared when the product was killed.
    let kept = told["kept"].as_array().unwrap();
    let damaged = kept.first().and_then(|file| file.as_str()).unwrap_or_default();
    assert!(told["truncated"] == true && damaged.ends_with("0000000000000001.wal.damaged"), "{told}");
    let mut product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(publish(&mut http, "new")["offset"], MESSAGES / 2);
    assert!(message(&mut http, MESSAGES / 2 - 1).1.starts_with(&format!("message {:03}", MESSAGES / 2 - 1)));
    assert!(product.stop());
    let mut product = Product::start(dir.path());
    let mut http = Connection::open(&product.address).unwrap();
    assert_eq!(message(&mut http, MESSAGES / 2), (200, "new".to_owned()));
    assert!(product.stop());
}
