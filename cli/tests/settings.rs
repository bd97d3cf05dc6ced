//! Where a setting's value comes from, and that a wrong one is refused before anything starts.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::path::Path;
use std::process::{Command, Output};

use product::{Connection, Running};

fn weir(dir: &Path, env: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(dir).args(arguments).env_clear().envs(env.iter().copied());
    command.output().unwrap()
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What `weir config print` says of a setting of `dev`, and where that comes from.
fn printed(dir: &Path, env: &[(&str, &str)], flags: &[&str], key: &str) -> (String, String) {
    let output = weir(dir, env, &[&["--json", "config", "print", "dev"], flags].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let settings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = settings.as_array().unwrap();
    let setting =
        settings.iter().find(|setting| setting["key"] == key && setting["section"] == "dev").unwrap();
    let value = setting["value"].as_str().map_or_else(|| setting["value"].to_string(), str::to_owned);
    (value, setting["source"].as_str().unwrap().to_owned())
}

#[test]
fn flags_win_over_the_environment_that_over_the_file_and_that_over_defaults() {
    let dir = scratch();
    std::fs::write(
        dir.path().join("weir.toml"),
        "[dev]\ndata_shards = 2\ncheckpoint = \"2MiB\"\nhost_name = [\"file.example\"]\ninsecure_public = true\n",
    )
    .unwrap();
    let cases = [
        ("data_shards", "WEIR_DATA_SHARDS", "3", ["--data-shards", "5"], ["2", "3", "5"]),
        ("checkpoint", "WEIR_CHECKPOINT", "3MiB", ["--checkpoint", "5MiB"], ["2MiB", "3MiB", "5MiB"]),
        (
            "host_name",
            "WEIR_HOST_NAME",
            "a.example,b.example",
            ["--host-name", "flag.example"],
            [r#"["file.example"]"#, r#"["a.example","b.example"]"#, r#"["flag.example"]"#],
        ),
    ];
    for (key, variable, value, flag, expected) in cases {
        let env = [(variable, value)];
        assert_eq!(printed(dir.path(), &[], &[], key), (expected[0].into(), "file".into()));
        assert_eq!(printed(dir.path(), &env, &[], key), (expected[1].into(), "env".into()));
        assert_eq!(printed(dir.path(), &env, &flag, key), (expected[2].into(), "flag".into()));
    }
    let public = |value| printed(dir.path(), &[("WEIR_INSECURE_PUBLIC", value)], &[], "insecure_public");
    assert_eq!(public("0"), ("false".into(), "env".into()), "a variable also says no");
    let empty = scratch();
    assert_eq!(printed(empty.path(), &[], &[], "data_shards"), ("4".into(), "default".into()));
}

#[test]
fn a_variable_that_is_empty_is_none() {
    let dir = scratch();
    std::fs::write(dir.path().join("weir.toml"), "[dev]\ndata_shards = 2\nobject_store = \"local\"\n")
        .unwrap();
    let settings = |env: &[(&str, &str)]| {
        let output = weir(dir.path(), env, &["--json", "config", "print"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let unset = settings(&[]);
    let named = unset.as_array().unwrap().iter().filter_map(|setting| setting["env"].as_str());
    // As a compose file passes on what nobody has set.
    let empty: Vec<_> = named.chain(["WEIR_CONFIG", "WEIR_LOG"]).map(|name| (name, "")).collect();
    assert!(empty.len() > 40, "{}", empty.len());
    assert_eq!(settings(&empty), unset);
    assert!(weir(dir.path(), &empty, &["config", "check"]).status.success());
    // What is wrong is still the file's.
    std::fs::write(dir.path().join("weir.toml"), "[dev]\ndata_shards = 65\n").unwrap();
    let refused = weir(dir.path(), &empty, &["config", "check"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("weir.toml: dev.data_shards") && !said.contains("WEIR_"), "{said}");
}

#[test]
fn a_file_is_checked_and_the_exit_status_says_so() {
    let dir = scratch();
    let check = |text: &str| {
        std::fs::write(dir.path().join("w.toml"), text).unwrap();
        let output = weir(dir.path(), &[], &["config", "check", "w.toml"]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check("[dev]\ndata_shards = 2\n").0, Some(0));
    for (text, named) in [
        ("[dev]\ndata_shards = 65\n", "--data-shards"),
        ("[dev]\nlissten = \"x\"\n", "dev.lissten is unknown"),
        ("[gateway]\nrequest_bytes_max = \"1MiB\"\n", "10MiB to 1TiB"),
        ("[node]\njournal_max = \"40MiB\"\njournal_file = \"32MiB\"\n", "at least two journal files"),
        ("not toml", "is not TOML"),
    ] {
        let (code, said) = check(text);
        assert!(code == Some(1) && said.contains(named), "{text}: {code:?} {said}");
    }
    let missing = weir(dir.path(), &[], &["config", "check", "nowhere.toml"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn what_a_server_would_refuse_at_its_start_a_check_tells_before() {
    let dir = scratch();
    let check = |text: &str| {
        std::fs::write(dir.path().join("w.toml"), text).unwrap();
        let output = weir(dir.path(), &[], &["config", "check", "w.toml"]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (text, named) in [
        ("[dev]\nlisten = \"0.0.0.0:8080\"\n", "dev: 0.0.0.0:8080 can be reached from other machines"),
        ("[gateway]\nlisten = \"[::]:8080\"\n", "gateway: [::]:8080 can be reached from other machines"),
        ("[gateway]\nhost_name = [\"a b\"]\n", "gateway: --host-name \"a b\" is no name"),
        ("[dev]\nallow_origin = [\"*\"]\n", "dev: the origin \"*\" cannot be allowed"),
        ("[gateway]\nconsole_prefix = \"ops\"\n", "gateway: the console prefix \"ops\" is not possible"),
        ("[node]\nobject_store = \"s4://a\"\n", "node: object store \"s4://a\": s4: is no store"),
    ] {
        let (code, said) = check(text);
        assert!(code == Some(1) && said.contains(named), "{text}: {code:?} {said}");
        assert_eq!(said.matches("error: ").count(), 1, "nothing is told twice: {said}");
    }
    let all = "[dev]\nlisten = \"0.0.0.0:8080\"\njournal_max = \"40MiB\"\njournal_file = \"32MiB\"\ntls_self_signed = true\n\
        tls_cert = \"c\"\ntls_key = \"k\"\n[node]\nlisten = \"10.0.0.1:7070\"\nadmin = \"10.0.0.1:7071\"\n";
    let (_, said) = check(all);
    for named in
        ["0.0.0.0:8080", "--journal-max is 40MiB", "exclude each other", "node: --listen", "node: --admin"]
    {
        assert_eq!(said.matches(named).count(), 1, "{named}: {said}");
    }
    for fine in [
        "[dev]\nlisten = \"0.0.0.0:8080\"\ninsecure_public = true\nobject_store = \"local\"\n",
        "[gateway]\nhost_name = [\"mq.example\"]\nallow_origin = [\"https://a.example\"]\nconsole_prefix = \"/ops/\"\n",
        "[node]\nobject_store = \"s3://bucket/prefix\"\n",
    ] {
        assert_eq!(check(fine).0, Some(0), "{fine}");
    }
}

/// What `weir config check` prints for programs, and whether it succeeded.
fn checked(dir: &Path, env: &[(&str, &str)], text: &str) -> (bool, serde_json::Value) {
    std::fs::write(dir.join("w.toml"), text).unwrap();
    let output = weir(dir, env, &["--json", "config", "check", "w.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output.status.success(), value)
}

const WRONG: &str = "top = 1\n[client]\nnamespace = \"a\"\n[dev]\nlissten = \"x\"\ndata_shards = 65\nsync = \"never\"\n\
    record_max = []\n[gateway]\ndata_dir = \"x\"\nlisten = \"nowhere\"\n[node]\njournal_max = \"40MiB\"\njournal_file = \"32MiB\"\n[server]\nlisten = 1\n";
const WRONG_SAYS: [&str; 10] = [
    "top stands outside",
    "client.namespace is unknown",
    "dev.lissten is unknown; did you mean dev.listen?",
    "dev.data_shards: invalid value '65' for '--data-shards <N>'",
    "dev.sync: invalid value 'never'",
    "dev.record_max takes one value, not a list",
    "gateway.data_dir is unknown; did you mean dev.data_dir?",
    "gateway.listen: invalid value 'nowhere'",
    "--journal-max is 40MiB; at least two journal files are needed, and --journal-file is 32MiB",
    "server.listen is unknown; the sections are client, dev, node, gateway",
];

#[test]
fn a_check_tells_all_that_is_wrong_at_once() {
    let dir = scratch();
    std::fs::write(dir.path().join("weir.toml"), WRONG).unwrap();
    let check = |env: &[(&str, &str)]| {
        let output = weir(dir.path(), env, &["config", "check"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = check(&[]);
    for wrong in WRONG_SAYS {
        assert_eq!(said.matches(wrong).count(), 1, "{wrong}: {said}");
    }
    assert_eq!(said.matches("error: ").count(), WRONG_SAYS.len(), "{said}");
    let said = check(&[("WEIR_CHECKPOINT", "1B"), ("WEIR_CONNECTIONS_MAX", "0")]);
    for wrong in ["WEIR_CHECKPOINT: invalid", "WEIR_CONNECTIONS_MAX: invalid", "dev.data_shards: invalid"] {
        assert_eq!(said.matches(wrong).count(), 1, "{wrong}: {said}");
    }
    // Nothing else works with such a file, and says all of its keys that are unknown.
    let output = weir(dir.path(), &[], &["dev", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !dir.path().join("weir-data").exists());
    assert!(said.contains("dev.lissten is unknown") && said.contains("server.listen is unknown"), "{said}");

    // A file that is named is checked, whatever lies here.
    let (ok, value) = checked(dir.path(), &[], "[dev]\ndata_shards = 2\n");
    assert!(ok && value["errors"] == serde_json::json!([]) && value["settings"] == 1, "{value}");
}

#[test]
fn a_check_is_data_for_programs() {
    let dir = scratch();
    let (ok, value) = checked(dir.path(), &[("WEIR_CONNECTIONS_MAX", "0")], WRONG);
    assert!(!ok);
    let errors = value["errors"].as_array().unwrap();
    assert_eq!(errors.len(), WRONG_SAYS.len() + 1, "{value}");
    for wrong in WRONG_SAYS {
        let says = |error: &&serde_json::Value| error["message"].as_str().unwrap().contains(wrong);
        assert_eq!(errors.iter().filter(says).count(), 1, "{wrong}: {value}");
    }
    let of = |field: &str, value: &str| errors.iter().filter(|error| error[field] == value).count();
    assert_eq!((of("key", "data_shards"), of("section", "gateway")), (1, 2));
    assert_eq!(of("variable", "WEIR_CONNECTIONS_MAX"), 1, "of dev and of gateway the same");
    assert_eq!(value["file"], "w.toml");
    let (ok, value) = checked(dir.path(), &[], "not toml");
    assert!(!ok && value["errors"][0]["message"].as_str().unwrap().contains("is not TOML"), "{value}");
}

#[test]
fn a_variable_that_no_setting_has_is_named_and_holds_nothing_up() {
    let dir = scratch();
    let env =
        [("WEIR_LISTN", "127.0.0.1:9"), ("WEIR_LOG", "info"), ("WEIR_NS", "a"), ("WEIR_PORT_80_TCP", "x")];
    let (ok, value) = checked(dir.path(), &env, "");
    let warnings: Vec<_> = value["warnings"].as_array().unwrap().iter().map(|one| &one["variable"]).collect();
    assert!(ok, "containers are given variables of other meaning: {value}");
    assert_eq!(warnings, ["WEIR_LISTN", "WEIR_PORT_80_TCP"]);
    let named = "warning: WEIR_LISTN is set, and no setting has that variable; did you mean WEIR_LISTEN?";
    let check = weir(dir.path(), &env, &["config", "check", "w.toml"]);
    assert!(String::from_utf8_lossy(&check.stderr).contains(named));

    let data = dir.path().join("data");
    let line = ["dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let product = Running::start_with_env(dir.path(), &line, &[("WEIR_LISTN".into(), "127.0.0.1:9".into())]);
    let log = std::fs::read_to_string(&product.log).unwrap();
    assert_eq!(log.matches(named).count(), 1, "{log}");
}

#[test]
fn nothing_starts_and_nothing_is_made_with_a_value_out_of_its_range() {
    let dir = scratch();
    for (env, arguments) in [
        ([("WEIR_CHECKPOINT", "1B")], &["dev"][..]),
        ([("WEIR_TAIL_RING", "2TiB")], &["node"]),
        ([("WEIR_CONNECTIONS_MAX", "0")], &["gateway"]),
        ([("WEIR_NS", "default")], &["dev", "--journal-max", "31MiB"]),
        ([("WEIR_NS", "default")], &["node", "--journal-max", "255MiB", "--journal-file", "128MiB"]),
        ([("WEIR_TLS_SELF_SIGNED", "1")], &["dev", "--tls-cert", "c", "--tls-key", "k"]),
    ] {
        let output = weir(dir.path(), &env, arguments);
        assert!(!output.status.success(), "{env:?} {arguments:?}");
        assert!(!dir.path().join("weir-data").exists(), "{env:?} {arguments:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_with_its_flag_and_nothing_is_made() {
    let dir = scratch();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, flag) in [
        (&["dev", "--listen", &taken][..], "--listen"),
        (&["node", "--listen", &taken, "--admin", "127.0.0.1:0"], "--listen"),
        (&["node", "--listen", "127.0.0.1:0", "--admin", &taken], "--admin"),
        (&["gateway", "--listen", &taken], "--listen"),
    ] {
        let output = weir(dir.path(), &[], arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let is_named = said.contains(&taken) && said.contains(&format!("{flag} ")) && said.contains("in use");
        assert!(!output.status.success() && is_named, "{arguments:?}: {said}");
        assert!(!dir.path().join("weir-data").exists(), "{arguments:?}");
    }
}

#[test]
fn a_value_that_nobody_typed_is_refused_where_it_stands() {
    let dir = scratch();
    let said = |env: &[(&str, &str)], arguments: &[&str]| {
        let output = weir(dir.path(), env, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let why = "invalid value 'lots' for '--journal-max <SIZE>': expected a number";
    let variable = [("WEIR_JOURNAL_MAX", "lots")];
    let text = said(&variable, &["dev"]);
    assert!(text.starts_with(&format!("error: WEIR_JOURNAL_MAX: {why}")), "{text}");
    for typed in [&["dev", "--journal-max", "lots"][..], &["dev", "--journal-max=lots"]] {
        let text = said(&variable, typed);
        assert!(text.starts_with(&format!("error: {why}")), "{text}");
    }
    std::fs::write(dir.path().join("weir.toml"), "[node]\njournal_max = \"lots\"\n").unwrap();
    let text = said(&[], &["node"]);
    assert!(text.starts_with(&format!("error: weir.toml: node.journal_max: {why}")), "{text}");
}

#[test]
fn nothing_is_made_for_a_server_that_could_not_serve() {
    let dir = scratch();
    let tls = ["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"];
    let tls = [&["dev", "--listen", "127.0.0.1:0"][..], &tls].concat();
    for (arguments, named) in [
        (&["dev", "--listen", "0.0.0.0:0"][..], "--insecure-public"),
        (&tls, "nowhere.pem"),
        (&["dev", "--listen", "127.0.0.1:0", "--console-prefix", "x"], "console prefix"),
        (&["dev", "--listen", "127.0.0.1:0", "--allow-origin", "https://a.example/"], "https://a.example/"),
        (&["dev", "--listen", "127.0.0.1:0", "--tls-self-signed", "--host-name", "bücher.example"], "xn--"),
        (&["dev", "--listen", "127.0.0.1:0", "--host-name", "https://mq.example"], "https://mq.example"),
        (&["dev", "--listen", "127.0.0.1:0", "--object-store", "ftp://a.example"], "is no store"),
        (
            &["dev", "--listen", "127.0.0.1:0", "--object-store", "/srv/old"],
            "a folder is written file:///srv/old",
        ),
        (&["dev", "--listen", "127.0.0.1:0", "--object-store", "old"], "it begins with s3://"),
        (&["node", "--object-store", "s3://a?b"], "do not belong"),
        (&["node", "--cluster-secret", "nowhere"], "nowhere"),
    ] {
        let output = weir(dir.path(), &[], arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{arguments:?}: {said}");
        assert!(!dir.path().join("weir-data").exists(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_data_directory_is_made_for_its_owner_alone_and_one_that_is_there_stays_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = scratch();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let start = |data: &Path| {
        let fixed = ["dev", "--listen", "127.0.0.1:0", "--object-store", "local", "--data-dir"];
        drop(Running::start(dir.path(), &[&fixed[..], &[data.to_str().unwrap()]].concat()));
    };
    let (made, there) = (dir.path().join("made"), dir.path().join("there"));
    std::fs::create_dir(&there).unwrap();
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o755)).unwrap();
    start(&made);
    start(&there);
    assert_eq!((mode(&made), mode(&there)), (0o700, 0o755));
    for folder in ["wal", "blobs", "cache", "objects"] {
        assert_eq!(mode(&there.join(folder)), 0o700, "{folder} holds messages");
    }
}

#[test]
fn a_failure_says_its_reason_once() {
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let output = weir(dir.path(), &[], &["dev", "--data-dir", "file", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("os error").count(), 1, "{said}");
}

/// Bounds, each another one than is set by default.
const BOUNDS: [[&str; 2]; 13] = [
    ["--journal-max", "64MiB"],
    ["--journal-file", "16MiB"],
    ["--journal-pending", "5MiB"],
    ["--journal-index", "2MiB"],
    ["--tail-ring", "3MiB"],
    ["--dedupe-rows", "1500"],
    ["--connections-max", "77"],
    ["--request-bytes-max", "11MiB"],
    ["--answer-bytes-max", "33MiB"],
    ["--publish-bytes-max", "17MiB"],
    ["--read-credit-bytes-max", "6MiB"],
    ["--feed-bytes-max", "7MiB"],
    ["--topics-max", "88"],
];

/// The names of what is bounded, in the log line with its bound as it would be typed, and in the metrics.
#[test]
fn every_limit_is_in_the_log_at_the_start_and_beside_what_it_limits_in_the_metrics() {
    let dir = scratch();
    let data = dir.path().join("data");
    let fixed = ["dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let product = Running::start(dir.path(), &[&fixed, BOUNDS.concat().as_slice()].concat());
    let log = std::fs::read_to_string(&product.log).unwrap();
    for field in [
        "journal=64MiB",
        "journal_admitted=5MiB",
        "journal_queue=10MiB",
        "journal_memory=15MiB",
        "journal_index=2MiB",
        "tail_ring=3MiB",
        "staged=32MiB",
        "outbox_rows_per_shard=10000",
        "outputs_per_shard=10000",
        "output_bytes_per_shard=8MiB",
        "dedupe_rows_per_shard=1500",
        "connections=77",
        "requests=11MiB",
        "answers=33MiB",
        "publishes=17MiB",
        "read_credit=6MiB",
        "feeds=7MiB",
        "topics=88",
    ] {
        assert!(log.contains(&format!(" {field}")), "{field} in {log}");
    }
    let address = product.said[0].strip_prefix("http://").unwrap();
    let metrics = Connection::open(address).unwrap().request("GET /metrics", &[], b"").unwrap().text();
    for (bounded, bound) in [
        ("weir_journal_used_bytes", 64 << 20),
        ("weir_journal_admitted_bytes", 5 << 20),
        ("weir_journal_queue_bytes", 10 << 20),
        ("weir_journal_memory_bytes", 15 << 20),
        ("weir_journal_index_bytes", 2 << 20),
        ("weir_node_tail_ring_bytes", 3 << 20),
        ("weir_node_staged_bytes", 32 << 20),
        ("weir_node_outbox_rows", 10_000),
        ("weir_node_outputs", 10_000),
        ("weir_node_output_bytes", 8 << 20),
        ("weir_node_dead_letters", 100_000),
        ("weir_node_dedupe_rows", 1_500),
        ("weir_gateway_connections", 77),
        ("weir_gateway_request_bytes", 11 << 20),
        ("weir_gateway_answer_bytes", 33 << 20),
        ("weir_gateway_publish_bytes", 17 << 20),
        ("weir_gateway_read_credit_bytes", 6 << 20),
        ("weir_gateway_feed_bytes", 7 << 20),
        ("weir_gateway_topics", 88),
    ] {
        assert!(
            metrics.contains(&format!("\n{bounded}_max {bound}\n")),
            "{bounded}_max {bound} in {metrics}"
        );
        let has_gauge = [' ', '{'].iter().any(|next| metrics.contains(&format!("\n{bounded}{next}")));
        assert!(has_gauge, "{bounded} in {metrics}");
    }
}
