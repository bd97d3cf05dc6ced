//! Namespaces from the command line.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::process::Command;

use product::Product;
use serde_json::{Value, json};

struct Weir {
    _dir: tempfile::TempDir,
    product: Product,
}

impl Weir {
    fn start() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let product = Product::start(dir.path());
        Self { _dir: dir, product }
    }

    /// Whether it succeeded, what it said, and why it did not.
    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let url = format!("http://{}", self.product.address);
        let run =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).args(["--url", &url]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.success(), text(run.stdout), text(run.stderr))
    }

    fn said(&self, arguments: &[&str]) -> String {
        let (ok, said, why) = self.run(arguments);
        assert!(ok, "{arguments:?}: {why}");
        said
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let (ok, said, why) = self.run(arguments);
        assert!(!ok, "{arguments:?}: {said}");
        why
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(arguments)).unwrap()
    }
}

#[test]
fn what_takes_a_purge_back_is_said_as_it_can_be_pasted() {
    let weir = Weir::start();
    weir.said(&["namespace", "create", "shop", "--auto-create", "true"]);
    weir.said(&["--ns", "shop", "pub", "orders", "x"]);
    weir.said(&["--ns", "shop", "subscription", "create", "work", "--topic", "orders"]);
    let ready =
        || weir.json(&["--json", "--ns", "shop", "subscription", "get", "work"])["totals"]["ready"].clone();
    let (_, _, remark) = weir.run(&["--ns", "shop", "subscription", "purge", "work", "--yes"]);
    assert_eq!(ready(), json!(0));
    let pasted = remark.trim_end().strip_prefix("to take it back: weir ").unwrap();
    let line = format!("{} {pasted} --yes", env!("CARGO_BIN_EXE_weir"));
    let run = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(run.status.success(), "{pasted}: {}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(ready(), json!(1));
}

#[test]
fn a_namespace_is_made_shown_changed_and_listed() {
    let weir = Weir::start();
    let create = ["namespace", "create", "shop", "--auto-create", "true", "--origin", "https://shop.example"];
    assert_eq!(weir.said(&create), "shop created\n");
    assert_eq!(weir.said(&create), "shop exists\n");
    let shown = "version 1\nauto_create = true\ncors_origins = [\"https://shop.example\"]\n";
    assert_eq!(weir.said(&["namespace", "show", "shop"]), shown);

    let more = ["namespace", "set", "shop", "--origin", "https://a.example", "--origin", "https://b.example"];
    assert_eq!(weir.said(&more), "shop changed\n");
    let changed = json!({"name": "shop", "auto_create": true, "cache": "private", "version": 2,
        "cors_origins": ["https://a.example", "https://b.example"]});
    assert_eq!(weir.json(&["namespace", "get", "shop", "--json"]), changed, "what is not named stays");
    let none = weir.json(&["namespace", "set", "shop", "--no-origins", "--auto-create", "false", "--json"]);
    assert_eq!((&none["cors_origins"], &none["auto_create"]), (&json!([]), &json!(false)));

    let listed = weir.said(&["namespace", "list"]);
    let table = "NAMESPACE  AUTO-CREATE  ORIGINS\ndefault    true         -\nshop       false        -\n";
    assert_eq!(listed, table);
    let lines = weir.said(&["namespace", "ls", "--json", "--query", "sho"]);
    let names: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone()).collect();
    assert_eq!(names, [json!("shop")]);
    // Two match, and `default`, which does not, comes before them.
    weir.said(&["namespace", "create", "shop-2"]);
    let one = weir.said(&["namespace", "list", "--query", "sho", "--limit", "1", "--json"]);
    assert_eq!(one.lines().count(), 1, "{one}");
}

#[test]
fn a_page_of_names_that_match_is_filled() {
    let weir = Weir::start();
    let mut http = product::Connection::open(&weir.product.address).unwrap();
    let names: Vec<_> =
        (0..40).map(|n| format!("{}{n:02}", if n % 10 == 9 { "odd" } else { "even" })).collect();
    for name in &names {
        product::done(&mut http, &format!("PUT /v1/ns/{name}"), &json!({}));
        product::done(&mut http, &format!("PUT /v1/topics/{name}"), &json!({}));
        product::done(&mut http, &format!("PUT /v1/subscriptions/{name}"), &json!({"topics": [name]}));
    }
    let mut pages = |list: &str, q: &str, limit: usize| {
        let (mut found, mut cursor): (Vec<Vec<String>>, _) = (Vec::new(), String::new());
        loop {
            let line = format!("GET /v1/{list}?q={q}&limit={limit}{cursor}");
            let page = http.request(&line, &[], b"").unwrap().json();
            let items = page["items"].as_array().unwrap().iter();
            found.push(items.map(|item| item["name"].as_str().unwrap().to_owned()).collect());
            let Some(next) = page["next"].as_str() else { return found };
            cursor = format!("&cursor={next}");
        }
    };
    for list in ["ns", "ns/default/topics", "ns/default/subscriptions"] {
        let found = pages(list, "dd", 3);
        let names = [&["odd09", "odd19", "odd29"][..], &["odd39"]];
        assert_eq!(found, names, "{list}: as many requests as there are pages of what matches");
        let found: Vec<_> = pages(list, "e", 7).concat();
        let is_whole = found.iter().filter(|name| name.starts_with("even")).count() == 36;
        assert!(is_whole && found.is_sorted() && found.len() == 36 + usize::from(list == "ns"), "{found:?}");
        assert_eq!(pages(list, "nothing", 7), [[""; 0]], "{list}");
    }
    assert_eq!(pages("ns", "default", 1), [["default"]]);
}

#[test]
fn a_refusal_says_what_to_do() {
    let weir = Weir::start();
    weir.said(&["namespace", "create", "shop"]);
    let why = weir.refused(&["namespace", "create", "shop", "--auto-create", "true"]);
    let here = format!("weir --url http://{}", weir.product.address);
    assert!(why.contains("other settings") && why.contains(&format!("{here} namespace set shop")), "{why}");
    let why = weir.refused(&["namespace", "create", "bad", "--origin", "shop.example"]);
    assert!(why.contains("invalid_config") && why.contains("scheme://host"), "{why}");
    let why = weir.refused(&["namespace", "create", "a/b"]);
    assert!(why.contains("invalid_name"), "{why}");
    let why = weir.refused(&["namespace", "set", "shop"]);
    assert!(why.contains("nothing to change") && why.contains("weir namespace set --help"), "{why}");
    for command in [&["get"][..], &["set", "--no-origins"], &["delete", "--yes"]] {
        let why = weir.refused(&[&["namespace"], command, &["nowhere"]].concat());
        assert!(why.contains("namespace_not_found"), "{command:?}: {why}");
    }
}

#[test]
fn a_namespace_is_deleted_when_somebody_says_so_and_only_if_it_is_empty() {
    let weir = Weir::start();
    weir.said(&["namespace", "create", "shop"]);
    weir.said(&["--ns", "shop", "topic", "create", "orders"]);
    weir.said(&["--ns", "shop", "subscription", "create", "billing", "--topic", "orders"]);
    let delete = ["namespace", "delete", "shop", "--yes"];
    let there = format!("weir --url http://{} --ns shop", weir.product.address);
    let why = weir.refused(&delete);
    assert!(why.contains("has topics") && why.contains(&format!("{there} topic list")), "{why}");
    weir.said(&["--ns", "shop", "topic", "delete", "orders", "--yes"]);
    let why = weir.refused(&delete);
    assert!(
        why.contains("has subscriptions") && why.contains(&format!("{there} subscription list")),
        "{why}"
    );
    weir.said(&["--ns", "shop", "subscription", "delete", "billing", "--yes"]);

    let why = weir.refused(&["namespace", "delete", "shop"]);
    assert!(why.contains("not deleted") && why.contains("--yes"), "nobody was there to say yes: {why}");
    assert_eq!(weir.said(&delete), "deleted shop\n");
    assert!(weir.refused(&["namespace", "get", "shop"]).contains("namespace_not_found"));
    weir.said(&["namespace", "create", "shop"]);
    assert_eq!(weir.json(&["namespace", "rm", "shop", "--yes", "--json"]), json!({"deleted": "shop"}));
    assert!(weir.refused(&["namespace", "delete", "default", "--yes"]).contains("not_supported"));
}
