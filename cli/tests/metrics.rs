//! The product against docs/metrics.md: every metric that `/metrics` shows is on the page, with its kind,
//! labels and help, and nothing else is.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use product::{Connection, Product};
use serde_json::json;

const PAGE: &str = include_str!("../../docs/metrics.md");

/// What there is to say of a metric.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
    unit: String,
    help: String,
}

/// By name, as Prometheus is told.
fn scraped(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut name = "";
    for line in text.lines() {
        if let Some((named, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            name = named;
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let metric = metrics.get_mut(name).unwrap();
            kind.clone_into(&mut metric.kind);
        } else if let Some((_, labels)) = line.split_once('{') {
            let labels = labels.rsplit_once('}').unwrap().0.split(',');
            let names = labels.map(|label| label.split_once('=').unwrap().0).filter(|label| *label != "le");
            metrics.get_mut(name).unwrap().labels.extend(names.map(str::to_owned));
        }
    }
    for (name, metric) in &mut metrics {
        metric.unit = unit_of(name).unwrap_or_default().to_owned();
    }
    metrics
}

/// The unit that a name says.
fn unit_of(name: &str) -> Option<&str> {
    ["bytes", "seconds"].into_iter().find(|unit| name.split('_').any(|word| word == *unit))
}

/// By name, as the page has them: a row has name, kind, labels, unit, help, and what to do.
fn documented() -> BTreeMap<String, Metric> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `weir_"));
    let metric = |row: &str| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, unit, help, _] = cells.as_slice() else { panic!("not six cells: {row}") };
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let name = name.trim_matches('`');
        let metric = Metric {
            kind: (*kind).to_owned(),
            labels: labels.filter(|label| !label.is_empty()).collect(),
            unit: unit_of(name).map_or_else(String::new, |_| (*unit).to_owned()),
            help: (*help).to_owned(),
        };
        (name.to_owned(), metric)
    };
    rows.map(metric).collect()
}

/// Does what makes every labelled metric show: a publish into the object store, one that is refused, a lease
/// and its end.
fn use_it(http: &mut Connection) {
    product::done(http, "PUT /v1/topics/t", &json!({}));
    product::done(http, "PUT /v1/subscriptions/s", &json!({"topics": ["t"]}));
    // A manifest waits for ten times as long as the one before took: the first is made at the start, on a busy disk.
    http.patience(Duration::from_secs(90));
    let archived = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000")];
    let answer = http.request("POST /v1/topics/t/messages", &archived, b"x").unwrap();
    assert_eq!((answer.status, answer.header("confirm-level")), (201, Some("archived")), "{}", answer.text());
    let gap = [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "7")];
    assert_eq!(http.request("POST /v1/topics/t/messages", &gap, b"x").unwrap().status, 409);
    let pulled = product::done(http, "POST /v1/subscriptions/s:pull", &json!({"wait_ms": 10_000}));
    let lease = &pulled["messages"][0]["lease"];
    product::done(http, "POST /v1/subscriptions/s:settle", &json!({"ack": [lease]}));
}

#[test]
fn the_page_of_metrics_names_exactly_those_that_there_are() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let product = Product::start_with(dir.path(), "127.0.0.1:0", &["--object-store", "local"]);
    let mut http = Connection::open(&product.address).unwrap();
    use_it(&mut http);
    let scraped = scraped(&http.request("GET /metrics", &[], b"").unwrap().text());
    let documented = documented();
    let mut wrong = Vec::new();
    for name in scraped.keys().chain(documented.keys()).collect::<BTreeSet<_>>() {
        let (code, page) = (scraped.get(name), documented.get(name));
        if code != page {
            wrong.push(format!("{name}\n  /metrics:        {code:?}\n  docs/metrics.md: {page:?}"));
        }
    }
    assert!(wrong.is_empty(), "docs/metrics.md is not what /metrics shows:\n{}", wrong.join("\n"));
}
