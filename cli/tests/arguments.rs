//! What is typed, as it is understood and as the help tells it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// Text that is not UTF-8.
fn bytes(before: &str, behind: &str) -> OsString {
    OsString::from_vec([before.as_bytes(), b"\xff", behind.as_bytes()].concat())
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn weir(dir: &Path, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(dir).args(arguments).env_clear().output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_not_utf_8_is_refused_and_nothing_panics() {
    let dir = scratch();
    let odd = bytes("", "");
    let word = OsStr::new;
    for line in [
        &[word("pub"), &odd][..],
        &[word("pub"), word("t"), &odd],
        &[word("--ns"), &odd, word("topic"), word("list")],
        &[word("sub"), word("t"), word("--from"), &odd],
        &[word("config"), word("print"), word("dev"), word("--listen"), &odd],
    ] {
        let output = weir(dir.path(), line);
        let why = said(&output);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {why}");
        assert!(why.contains("UTF-8") && why.contains(r#""\xFF""#), "{line:?}: {why}");
    }
    let command = weir(dir.path(), &[&odd]);
    assert!(
        command.status.code() == Some(2) && said(&command).contains("unrecognized"),
        "{}",
        said(&command)
    );
    let ns = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["topic", "list"])
        .env("WEIR_NS", &odd)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(ns.status.code() == Some(2) && said(&ns).contains("UTF-8"), "{}", said(&ns));
}

#[test]
fn a_file_may_have_any_name() {
    let dir = scratch();
    let config = dir.path().join(bytes("w-", ".toml"));
    std::fs::write(&config, "[dev]\ndata_shards = 65\n").unwrap();
    let flag = bytes("--config=w-", ".toml");
    let word = OsStr::new;
    for line in [
        &[word("config"), word("check"), config.as_os_str()][..],
        &[word("config"), word("check"), word("--config"), config.as_os_str()],
        &[&flag, word("config"), word("check")],
    ] {
        let why = said(&weir(dir.path(), line));
        assert!(why.contains("--data-shards"), "it was read: {line:?}: {why}");
    }
    let named = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["config", "check"])
        .env("WEIR_CONFIG", &config)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(said(&named).contains("--data-shards"), "{}", said(&named));
}

#[test]
fn what_stands_behind_two_dashes_is_no_flag() {
    let dir = scratch();
    let line = ["--url", "http://127.0.0.1:1", "topic", "get", "--", "--config=nowhere.toml"].map(OsStr::new);
    let why = said(&weir(dir.path(), &line));
    assert!(!why.contains("nowhere.toml"), "it is a name: {why}");
}

#[test]
fn help_shows_the_options_that_do_something() {
    let dir = scratch();
    let help = |words: &[&str]| {
        let words: Vec<_> = words.iter().chain(&["--help"]).map(OsStr::new).collect();
        let output = weir(dir.path(), &words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let of_clients = ["--url <URL>", "--ns <NAME>", "--ca-cert <FILE>", "--json"];
    for command in ["dev", "node", "gateway"] {
        let shown = help(&[command]);
        assert!(of_clients.iter().all(|option| !shown.contains(option)), "{command}: {shown}");
        assert!(shown.contains("--config <FILE>") && shown.contains("--workers <N>"), "{command}");
    }
    let check = help(&["config", "check"]);
    assert!(
        check.contains("--json") && of_clients[..3].iter().all(|option| !check.contains(option)),
        "{check}"
    );
    let get = help(&["namespace", "get"]);
    assert!(get.contains("--url <URL>") && !get.contains("--ns <NAME>"), "{get}");
    for words in [&[][..], &["pub"], &["topic", "list"]] {
        let shown = help(words);
        assert!(of_clients.iter().all(|option| shown.contains(option)), "{words:?}: {shown}");
    }
    let own_first = help(&["pub"]);
    let place = |option: &str| own_first.find(option).unwrap();
    assert!(of_clients.iter().all(|option| place(option) > place("--create")), "{own_first}");
    // Hidden is not gone: one script may run both.
    let line = ["dev", "--json", "--ns", "shop", "--url", "http://a", "--data-shards", "0"].map(OsStr::new);
    let why = said(&weir(dir.path(), &line));
    assert!(why.contains("--data-shards") && !why.contains("unexpected"), "{why}");
}

#[test]
fn what_is_out_of_its_range_is_said_as_it_was_typed() {
    let dir = scratch();
    for (line, named) in [
        (&["pull", "s", "--wait", "61s"][..], "'61s' for '--wait <TIME>': 0ms to 1m are allowed"),
        (&["pull", "s", "--lease", "1ms"], "'1ms' for '--lease <TIME>': 1s to 12h are allowed"),
        (&["subscription", "create", "s", "--topic", "t", "--lease", "13h"], "'--lease <TIME>': 1s to 12h"),
        (&["pull", "s", "--max", "0"], "'--max <N>'"),
        (&["dev", "--journal-max", "40MiB", "--journal-file", "32MiB"], "--journal-max is 40MiB"),
        (&["node", "--journal-file", "16777217"], "--journal-file is 16777217B; only steps of 4KiB"),
        (&["gateway", "--tls-cert", "c"], "--tls-key"),
    ] {
        let words: Vec<_> = line.iter().map(OsStr::new).collect();
        let why = said(&weir(dir.path(), &words));
        assert!(why.contains(named), "{line:?}: {why}");
    }
}

/// Nothing that they would install or build with is to be found here, should one not listen.
#[test]
fn a_script_that_is_asked_for_help_says_what_it_is_for_and_does_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let is_command = |name: &str| !name.contains('.');
    let entries = std::fs::read_dir(root.join("scripts")).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let names = files.map(|entry| entry.file_name().into_string().unwrap());
    let names: Vec<_> = names.filter(|name| is_command(name)).collect();
    assert!(names.len() > 8, "{names:?}");
    let dir = scratch();
    for name in names {
        for flag in ["--help", "-h"] {
            let mut command = Command::new(root.join("scripts").join(&name));
            command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(dir.path());
            let output = command.arg(flag).output().unwrap();
            let text = String::from_utf8(output.stdout.clone()).unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{name}: {text}{}", said(&output));
            let source = std::fs::read_to_string(root.join("scripts").join(&name)).unwrap();
            let head = source.lines().skip(1).take_while(|line| line.starts_with('#'));
            let head: Vec<_> = head.map(|line| line.trim_start_matches('#').trim()).collect();
            let told: Vec<_> = text.lines().map(str::trim).collect();
            assert!(!head.is_empty() && told == head, "{name}: {text}");
        }
    }
}

#[test]
fn what_an_address_cannot_have_is_refused_with_what_to_write() {
    let dir = scratch();
    for (url, write) in [
        ("http://127.0.0.1:1/?x=1", "write http://127.0.0.1:1"),
        ("http://127.0.0.1:1#x", "write http://127.0.0.1:1"),
        ("http://me:secret@127.0.0.1:1", "write http://127.0.0.1:1"),
        ("127.0.0.1:1", "as http://127.0.0.1:8080"),
    ] {
        for command in [&["topic", "list"][..], &["sub", "t"], &["pub", "t", "x"], &["pull", "s"]] {
            let words: Vec<_> = command.iter().copied().chain(["--url", url]).map(OsStr::new).collect();
            let output = weir(dir.path(), &words);
            let why = said(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {why}");
            assert!(why.starts_with("error: --url") && why.contains(write), "{words:?}: {why}");
        }
    }
}
