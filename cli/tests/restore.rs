//! A machine is lost with its disk: what is in the object store is enough to go on from, and says what is not.
#![expect(dead_code, reason = "each test uses a part of the product's client")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../storage-node/tier/tests/clouds/mod.rs"]
mod clouds;
#[path = "../../storage-node/tier/tests/minio/mod.rs"]
mod minio;
#[path = "../../storage-node/tier/tests/ports/mod.rs"]
mod ports;
mod product;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use clouds::Cloud;
use minio::Minio;
use product::{Answer, Connection, Product};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const ARCHIVED: [(&str, &str); 2] = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "60000")];

/// A node that archives when it is asked to, and not for a long time otherwise.
struct World {
    url: String,
    env: Vec<(String, String)>,
    options: Vec<String>,
}

impl World {
    fn new(url: &str, env: Vec<(String, String)>) -> Self {
        let options = ["--object-store", url, "--data-shards", "2", "--seal-after-ms", "3600000"];
        let more = ["--snapshot-every-ms", "3600000", "--journal-max", "256MiB", "--journal-file", "16MiB"];
        let options = options.iter().chain(&more).map(|option| (*option).to_owned()).collect();
        Self { url: url.to_owned(), env, options }
    }

    /// All the time instead.
    fn every(mut self, ms: &str) -> Self {
        for name in ["--seal-after-ms", "--snapshot-every-ms"] {
            let at = self.options.iter().position(|option| option == name).unwrap();
            ms.clone_into(&mut self.options[at + 1]);
        }
        self
    }

    fn in_folder(dir: &Path) -> Self {
        Self::new(&format!("file://{}", dir.join("bucket").display()), Vec::new())
    }

    fn start(&self, dir: &Path) -> (Product, Connection) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let product = Product::start_with_env(dir, "127.0.0.1:0", &options, &self.env);
        let mut http = Connection::open(&product.address).unwrap();
        http.patience(Duration::from_secs(90));
        (product, http)
    }

    fn weir(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).envs(self.env.iter().cloned()).output().unwrap()
    }

    /// `weir restore` into `dir/data`, with its report.
    fn restore(&self, dir: &Path, more: &[&str]) -> Result<Value, String> {
        let data = dir.join("data");
        let fixed = ["restore", "--json", "--bucket", &self.url, "--data-dir", data.to_str().unwrap()];
        let output = self.weir(&[&fixed, more].concat());
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn send(http: &mut Connection, line: &str, body: &Value) -> Answer {
    http.request(line, &[JSON], body.to_string().as_bytes()).unwrap()
}

fn publish(http: &mut Connection, topic: &str, n: usize, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[JSON], headers].concat();
    let line = format!("POST /v1/topics/{topic}/messages");
    http.request(&line, &headers, json!({ "n": n }).to_string().as_bytes()).unwrap()
}

/// The numbers of all messages of a partition, in order.
fn numbers(http: &mut Connection, topic: &str, partition: u64) -> Vec<u64> {
    let (mut found, mut next) = (Vec::new(), 0);
    loop {
        let line = format!("GET /v1/topics/{topic}/messages?partition={partition}&from={next}&limit=1000");
        let answer = http.request(&line, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        for message in page["messages"].as_array().unwrap() {
            assert_eq!(message["offset"], next, "offsets are dense");
            found.push(message["data"]["n"].as_u64().unwrap());
            next += 1;
        }
        if page["up_to_date"] == true {
            return found;
        }
    }
}

fn incarnation(http: &mut Connection, topic: &str) -> u64 {
    let answer = http.request(&format!("GET /v1/topics/{topic}"), &[], b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["incarnation"].as_u64().unwrap()
}

fn pull(http: &mut Connection, most: u64) -> Vec<Value> {
    pull_from(http, "work", most, 5_000)
}

fn pull_from(http: &mut Connection, subscription: &str, most: u64, wait_ms: u64) -> Vec<Value> {
    let line = format!("POST /v1/subscriptions/{subscription}:pull");
    let answer = send(http, &line, &json!({"max": most, "wait_ms": wait_ms}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["messages"].as_array().unwrap().clone()
}

/// The numbers of all that a subscription has to give, sorted.
fn drain(http: &mut Connection, subscription: &str) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let some = pull_from(http, subscription, 100, 1_000);
        if some.is_empty() {
            found.sort_unstable();
            return found;
        }
        found.extend(some.iter().map(|message| message["data"]["n"].as_u64().unwrap()));
    }
}

/// What was sent before the machine is lost.
struct Sent {
    /// The archived numbers of `wide`, by partition.
    placed: [Vec<u64>; 2],
    /// The tail of `orders` behind messages that are lost.
    tag: String,
    life: u64,
}

fn producer(seq: &'static str) -> [(&'static str, &'static str); 3] {
    [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", seq)]
}

/// Topics with messages, and subscriptions: of one topic, of several, and of all whose names begin alike.
fn make_world(http: &mut Connection) -> [Vec<u64>; 2] {
    let config = json!({"partitions": 2, "min_confirm": "quorum"});
    assert_eq!(send(http, "PUT /v1/topics/wide", &config).status, 201);
    let mut placed = [Vec::new(), Vec::new()];
    for n in 0..40 {
        place(&mut placed, n, &publish(http, "wide", n, &[]));
    }
    for (n, seq) in ["0", "1", "2"].into_iter().enumerate() {
        assert_eq!(publish(http, "orders", n, &producer(seq)).status, 201);
    }
    for (name, topics) in
        [("work", json!(["orders"])), ("both", json!(["orders", "wide"])), ("wides", json!(["w*"]))]
    {
        let config = json!({"mode": "queue", "topics": topics, "lease_ms": 60_000, "start": "earliest"});
        let made = send(http, &format!("PUT /v1/subscriptions/{name}"), &config);
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let done = pull(http, 2);
    let leases: Vec<_> = done.iter().map(|message| message["lease"].clone()).collect();
    assert_eq!(send(http, "POST /v1/subscriptions/work:settle", &json!({ "ack": leases })).status, 200);
    placed
}

fn place(placed: &mut [Vec<u64>; 2], n: usize, answer: &Answer) {
    assert_eq!(answer.status, 201, "{}", answer.text());
    placed[usize::try_from(answer.json()["partition"].as_u64().unwrap()).unwrap()].push(n as u64);
}

/// Some messages are asked to be archived, the last ones are not.
fn send_all(http: &mut Connection, minio: &mut Minio) -> Sent {
    let mut placed = make_world(http);
    // Asked for by whoever wants to be sure; all that came before it in its shard is there with it.
    let sure = publish(http, "orders", 3, &[&ARCHIVED[..], &producer("3")].concat());
    assert_eq!((sure.status, sure.header("confirm-level")), (201, Some("archived")), "{}", sure.text());
    for n in 100..110 {
        place(&mut placed, n, &publish(http, "wide", n, &ARCHIVED));
    }
    // Who does not wait for so long: with a store that is away, however fast it would be, and however slow the disk is.
    minio.kill();
    let hasty = publish(http, "orders", 4, &[("Confirm", "archived"), ("Confirm-Deadline-Ms", "3000")]);
    assert_eq!((hasty.status, hasty.header("confirm-level")), (202, Some("quorum")), "{}", hasty.text());
    minio.begin();
    let receipt = hasty.header("confirm-receipt").unwrap().to_owned();
    let line = format!("GET /v1/topics/orders/receipts/{receipt}?level=archived&wait=60");
    let later = http.request(&line, &[], b"").unwrap().json();
    assert_eq!((&later["level"], &later["final"]), (&json!("archived"), &json!(true)), "{later}");
    // Nobody asked for these: they are lost with the machine.
    let tag = publish(http, "orders", 5, &producer("4")).header("etag").unwrap().to_owned();
    publish(http, "orders", 6, &[]);
    Sent { placed, tag, life: incarnation(http, "orders") }
}

fn check_messages_and_work(http: &mut Connection, sent: &Sent) {
    assert_eq!(numbers(http, "orders", 0), [0, 1, 2, 3, 4]);
    for (partition, placed) in (0..).zip(&sent.placed) {
        assert_eq!(numbers(http, "wide", partition), *placed);
    }
    let wide = http.request("GET /v1/topics/wide", &[], b"").unwrap().json();
    assert_eq!(wide["config"]["min_confirm"], "quorum");
    let left: Vec<_> = pull(http, 9).iter().map(|message| message["data"]["n"].clone()).collect();
    assert_eq!(left, [2, 3, 4], "what was settled stays settled, and what was leased comes again");
    let mut of_wide = sent.placed.concat();
    of_wide.sort_unstable();
    assert_eq!(drain(http, "wides"), of_wide);
    let mut of_both = [of_wide, vec![0, 1, 2, 3, 4]].concat();
    of_both.sort_unstable();
    assert_eq!(drain(http, "both"), of_both);
}

/// What was handed out for what is lost is never taken for what comes in its place.
fn check_new_life(http: &mut Connection, sent: &Sent) {
    assert_ne!(incarnation(http, "orders"), sent.life);
    let moved = publish(http, "orders", 7, &[("If-Match", &sent.tag)]);
    assert_eq!(moved.status, 410, "{}", moved.text());
    let repeat = publish(http, "orders", 3, &producer("3"));
    assert_eq!((repeat.status, &repeat.json()["offset"]), (200, &json!(3)), "it was archived");
    let lost_again = publish(http, "orders", 5, &producer("4"));
    assert_eq!((lost_again.status, &lost_again.json()["offset"]), (201, &json!(5)), "it was not");
    let sure = publish(http, "orders", 8, &ARCHIVED);
    assert_eq!(sure.status, 201, "{}", sure.text());
}

#[test]
fn what_was_archived_is_there_after_the_machine_is_lost_and_work_goes_on_where_it_was() {
    let mut minio = Minio::start();
    // A prefix that names of objects have in another form.
    let world = World::new(&Minio::url("restore~1/déjà vu"), minio.options());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut product, mut http) = world.start(dir.path());
    let sent = send_all(&mut http, &mut minio);
    product.kill();
    let lost = dir.path().join("lost");
    std::fs::create_dir(&lost).unwrap();
    std::fs::rename(dir.path().join("data"), lost.join("data")).unwrap();

    let plan = world.restore(dir.path(), &["--dry-run"]).unwrap();
    let told = [&plan["restored"], &plan["topics"], &plan["subscriptions"], &plan["messages"]];
    assert_eq!(told, [&json!(false), &json!(2), &json!(3), &json!(55)]);
    assert!(!dir.path().join("data").exists(), "nothing was written");
    let told = world.restore(dir.path(), &[]).unwrap();
    assert_eq!((&told["restored"], &told["messages"], &told["epoch"]), (&json!(true), &json!(55), &json!(1)));
    let again = world.restore(dir.path(), &[]).unwrap_err();
    assert!(again.contains("is not empty"), "{again}");

    let (mut product, mut http) = world.start(dir.path());
    check_messages_and_work(&mut http, &sent);
    check_new_life(&mut http, &sent);
    assert!(product.stop());

    // Who ran before does not come back.
    let data = lost.join("data");
    let options = [
        &["dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()][..],
        &["--object-store", &world.url],
    ];
    let refused = world.weir(&options.concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("was restored from the object store"), "{said}");
    assert!(said.contains("the store is at epoch 1, this directory at 0."), "{said}");
    // And from what the second life archived a third begins.
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    let third = world.restore(dir.path(), &[]).unwrap();
    assert_eq!(third["epoch"], 2);
    let (mut product, mut http) = world.start(dir.path());
    assert_eq!(numbers(&mut http, "orders", 0), [0, 1, 2, 3, 4, 5, 8]);
    assert!(product.stop());
}

fn is_there_after_the_machine_is_lost(cloud: &Cloud) {
    let world = World::new(&cloud.url("restore"), cloud.options());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut product, mut http) = world.start(dir.path());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    // Together more than a part, and so random that they stay it.
    let bodies: [Vec<u8>; 12] = std::array::from_fn(|_| {
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..900 << 10).map(|_| next()).collect()
    });
    for (n, body) in bodies.iter().enumerate() {
        let archived = &ARCHIVED[..if n == 11 { 2 } else { 0 }];
        let headers = [&[("Content-Type", "application/octet-stream")], archived].concat();
        let answer = http.request("POST /v1/topics/t/messages", &headers, body).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    product.kill();
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    let told = world.restore(dir.path(), &[]).unwrap();
    assert_eq!(told["messages"], 12);
    let (mut product, mut http) = world.start(dir.path());
    for (n, body) in bodies.iter().enumerate() {
        let read = http.request(&format!("GET /v1/topics/t/messages/0/{n}"), &[], b"").unwrap();
        assert!(read.status == 200 && read.body == *body, "message {n} is read from the store");
    }
    assert!(product.stop());
}

#[test]
fn what_was_archived_in_google_cloud_storage_is_there_after_the_machine_is_lost() {
    is_there_after_the_machine_is_lost(&Cloud::google(Duration::ZERO));
}

#[test]
fn what_was_archived_in_azure_is_there_after_the_machine_is_lost() {
    is_there_after_the_machine_is_lost(&Cloud::azure());
}

fn objects(dir: &Path, end: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![dir.join("bucket")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|found| found == end) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Those that are kept: whoever waits for a manifest is told before one that is too old is deleted.
fn newest_manifests(dir: &Path) -> Vec<PathBuf> {
    let begun = Instant::now();
    loop {
        let found = objects(dir, "manifest");
        if found.len() <= 3 {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "more than the newest are kept: {found:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn damaged_missing_and_foreign_objects_are_refused_by_name_and_an_older_manifest_may_do() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let world = World::in_folder(dir.path());
    let nothing = world.restore(dir.path(), &[]).unwrap_err();
    assert!(nothing.contains("there is nothing to restore in file://"), "{nothing}");
    let (mut product, mut http) = world.start(dir.path());
    for n in 0..3 {
        assert_eq!(publish(&mut http, "t", n, &ARCHIVED).status, 201);
    }
    let manifests = newest_manifests(dir.path());
    product.kill();
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    assert!((2..=3).contains(&manifests.len()), "the newest are kept: {manifests:?}");
    let newest = manifests.last().unwrap();

    // The snapshot that only the newest manifest names is the one with the highest index of its shard.
    let snapshots = objects(dir.path(), "snapshot");
    let shard = snapshots.iter().max_by_key(|path| name(path).to_owned()).unwrap().clone();
    let whole = std::fs::read(&shard).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let half = whole[..whole.len() / 2].to_vec();
    for (damaged, why) in [
        (None, "is missing"),
        (Some(flipped), "checksum"),
        (Some(half), "it is cut short"),
        (Some(Vec::new()), "it is cut short: 0 of"),
    ] {
        match damaged {
            None => std::fs::remove_file(&shard).unwrap(),
            Some(bytes) => std::fs::write(&shard, bytes).unwrap(),
        }
        let refused = world.restore(dir.path(), &[]).unwrap_err();
        assert!(refused.contains(name(&shard)) && refused.contains(why), "{refused}");
        assert!(refused.contains("--skip-damaged") && !dir.path().join("data").exists(), "{refused}");
        let older = world.restore(dir.path(), &["--skip-damaged", "--dry-run"]).unwrap();
        assert!(older["messages"].as_u64().unwrap() < 3 && older["skipped"][0].is_string(), "{older}");
    }
    std::fs::write(&shard, &whole).unwrap();
    assert_eq!(world.restore(dir.path(), &["--dry-run"]).unwrap()["messages"], 3);

    let pack = objects(dir.path(), "pack").pop().unwrap();
    let bytes = std::fs::read(&pack).unwrap();
    std::fs::write(&pack, &bytes[1..]).unwrap();
    let refused = world.restore(dir.path(), &[]).unwrap_err();
    assert!(refused.contains(name(&pack)) && refused.contains("bytes where"), "{refused}");
    std::fs::remove_file(&pack).unwrap();
    let refused = world.restore(dir.path(), &[]).unwrap_err();
    assert!(refused.contains(name(&pack)) && refused.contains("is missing"), "{refused}");
    std::fs::write(&pack, &bytes).unwrap();

    // Another cluster in the same store.
    let other = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut product, mut http) = world.start(other.path());
    assert_eq!(publish(&mut http, "t", 9, &ARCHIVED).status, 201);
    assert!(product.stop());
    let refused = world.restore(dir.path(), &[]).unwrap_err();
    assert!(refused.contains("several clusters"), "{refused}");
    let folder = newest.parent().unwrap();
    let cluster = name(folder.parent().unwrap()).to_owned();
    let foreign =
        objects(dir.path(), "manifest").into_iter().find(|path| path.parent() != Some(folder)).unwrap();
    let own = std::fs::read(newest).unwrap();
    std::fs::copy(&foreign, newest).unwrap();
    let refused = world.restore(dir.path(), &["--cluster", &cluster]).unwrap_err();
    assert!(refused.contains(name(newest)) && refused.contains("it belongs to cluster"), "{refused}");
    std::fs::write(newest, own).unwrap();
    let told = world.restore(dir.path(), &["--cluster", &cluster]).unwrap();
    assert_eq!(told["messages"], 3);
    let (mut product, mut http) = world.start(dir.path());
    assert_eq!(numbers(&mut http, "t", 0), [0, 1, 2]);
    assert!(product.stop());
}

#[test]
fn a_bucket_that_is_not_there_and_credentials_that_are_not_right_are_told_apart() {
    let (minio, google, azure) = (Minio::start(), Cloud::google(Duration::ZERO), Cloud::azure());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (url, options, wrong) in [
        (Minio::url("elsewhere"), minio.options(), ("AWS_SECRET_ACCESS_KEY", "wrong")),
        (google.url("elsewhere"), google.options(), ("GOOGLE_BEARER_TOKEN", "wrong")),
        (azure.url("elsewhere"), azure.options(), ("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")),
    ] {
        let no_bucket = World::new(&url.replace("weir-test", "no-such-bucket"), options.clone());
        // In Google's addresses all but letters and digits is escaped.
        let refused = no_bucket.restore(dir.path(), &[]).unwrap_err().replace("%2D", "-");
        assert!(
            refused.contains("no-such-bucket") && refused.contains("Check the bucket's name"),
            "{refused}"
        );
        let empty = World::new(&url, options.clone());
        let refused = empty.restore(dir.path(), &[]).unwrap_err();
        assert!(refused.contains("prefix included"), "{refused}");
        let wrong = [options, vec![(wrong.0.to_owned(), wrong.1.to_owned())]].concat();
        let refused = World::new(&url, wrong).restore(dir.path(), &[]).unwrap_err();
        assert!(refused.contains("the store refuses") && refused.contains("credentials"), "{refused}");
        assert!(!dir.path().join("data").exists(), "nothing was written");
    }
}

/// Node and store are killed while objects are on their way, the disk is lost: all that was confirmed as
/// archived is there, and of the rest of the partition a beginning.
#[test]
fn killed_in_the_middle_of_uploads_nothing_that_was_archived_is_lost() {
    let mut minio = Minio::start();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let world = World::new(&Minio::url("killed"), minio.options()).every("100");
    let mut archived = Vec::new();
    // All that was sent on top of what was there, in this order.
    let mut whole: Vec<u64> = Vec::new();
    let (mut sent, mut known) = (0, 0);
    let padding = "x".repeat(100 << 10);
    for round in 0..4 {
        let (mut product, mut http) = world.start(dir.path());
        let there = numbers_or_none(&mut http);
        assert!(archived.iter().all(|n| there.contains(n)), "round {round}: {there:?}, not {archived:?}");
        assert!(there.len() >= known && whole.starts_with(&there), "round {round}: {there:?} of {whole:?}");
        whole = there.clone();
        sent += 1;
        let sure = publish(&mut http, "t", sent, &ARCHIVED);
        assert_eq!(sure.status, 201, "{}", sure.text());
        archived.push(sent as u64);
        whole.push(sent as u64);
        known = there.len() + 1;
        // Some megabytes that begin to be sent while it ends.
        for _ in 0..60 {
            sent += 1;
            whole.push(sent as u64);
            let body = json!({ "n": sent, "padding": padding }).to_string();
            let answer = http.request("POST /v1/topics/t/messages", &[JSON], body.as_bytes()).unwrap();
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        std::thread::sleep(Duration::from_millis(50 * round));
        if round % 2 == 1 {
            minio.kill();
        }
        product.kill();
        if round % 2 == 1 {
            minio.begin();
        }
        std::fs::remove_dir_all(dir.path().join("data")).unwrap();
        let told = world.restore(dir.path(), &[]).unwrap();
        assert_eq!(told["epoch"], round + 1);
    }
    let (mut product, mut http) = world.start(dir.path());
    let there = numbers_or_none(&mut http);
    assert!(archived.iter().all(|n| there.contains(n)), "{there:?}, not {archived:?}");
    assert!(whole.starts_with(&there), "{there:?} of {whole:?}");
    assert!(product.stop());
}

/// The numbers of the messages of `t`, which are in the order in which they were sent.
fn numbers_or_none(http: &mut Connection) -> Vec<u64> {
    if http.request("GET /v1/topics/t", &[], b"").unwrap().status == 404 {
        return Vec::new();
    }
    let found = numbers(http, "t", 0);
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    found
}

/// A node still runs when its cluster was restored elsewhere, and hears of it when so many messages were archived there.
fn is_deposed_after(archived: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let world = World::in_folder(dir.path());
    let (_old, mut old_http) = world.start(dir.path());
    assert_eq!(publish(&mut old_http, "t", 0, &ARCHIVED).status, 201);
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    world.restore(&elsewhere, &[]).unwrap();
    let (_new, mut new_http) = world.start(&elsewhere);
    let sent: Vec<usize> = (2..2 + archived).collect();
    for n in &sent {
        assert_eq!(publish(&mut new_http, "t", *n, &ARCHIVED).status, 201);
    }
    let late = [("Confirm", "archived"), ("Confirm-Deadline-Ms", "5000")];
    let late = publish(&mut old_http, "t", 1, &late);
    assert_eq!((late.status, late.header("confirm-level")), (202, Some("quorum")), "{}", late.text());
    assert_eq!(publish(&mut new_http, "t", 99, &ARCHIVED).status, 201);
    let expected: Vec<u64> = [&[0], &*sent, &[99]].concat().into_iter().map(|n| n as u64).collect();
    assert_eq!(numbers(&mut new_http, "t", 0), expected);
    let report = world.restore(&dir.path().join("third"), &["--dry-run"]).unwrap();
    let told = (&report["epoch"], &report["messages"]);
    assert_eq!(told, (&json!(2), &json!(expected.len())), "the restored one writes");
}

#[test]
fn a_node_that_still_runs_archives_nothing_once_its_cluster_was_restored_elsewhere() {
    is_deposed_after(0);
}

#[test]
fn nor_does_one_whose_next_manifest_was_written_and_deleted_there_long_ago() {
    is_deposed_after(6);
}
