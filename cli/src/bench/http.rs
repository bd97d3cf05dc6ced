//! One message per POST on keep-alive connections, beside the same server answering an empty 204; and the same load
//! against any other server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Bench;
use super::disk;
use super::latencies::Latencies;
use super::meter::{Meter, Used};
use super::noise::noise;
use super::poster::{Poster, host};
use super::result::{Figure, Percentiles, RunResult};
use super::target::Target;
use crate::args::{HttpArgs, PeerArgs, Rate};

/// Requests under way on one HTTP/2 connection.
const STREAMS: u32 = 16;

/// A request that is sent again and again.
#[derive(Clone)]
struct Load {
    url: String,
    method: Method,
    /// `{n}` stands for the number of the sender.
    path: String,
    /// Whole lines.
    headers: String,
    body: Bytes,
    http2: bool,
}

/// One of those that send it.
enum Sender {
    One(Poster),
    Two(http2::SendRequest<Full<Bytes>>, Request<Full<Bytes>>),
}

impl Sender {
    async fn exchange(&mut self) -> anyhow::Result<u16> {
        match self {
            Self::One(poster) => poster.exchange().await,
            Self::Two(sender, request) => {
                sender.ready().await?;
                let answer = sender.send_request(request.clone()).await?;
                let status = answer.status().as_u16();
                answer.into_body().collect().await?;
                Ok(status)
            }
        }
    }
}

impl Load {
    /// Connects `count` senders.
    async fn senders(&self, count: u32) -> anyhow::Result<Vec<Sender>> {
        let mut senders = Vec::new();
        let mut shared = None;
        for number in 0..count {
            let path = self.path.replace("{n}", &number.to_string());
            if !self.http2 {
                let mut poster = Poster::connect(&self.url).await?;
                poster.prepare(&format!("{} {path}", self.method), &self.headers, &self.body);
                senders.push(Sender::One(poster));
                continue;
            }
            if number.is_multiple_of(STREAMS) {
                shared = Some(connect_http2(&self.url).await?);
            }
            let request = Request::builder().method(self.method.clone()).uri(format!("{}{path}", self.url));
            let request = request.body(Full::new(self.body.clone()))?;
            senders.push(Sender::Two(shared.clone().context("the first sender connects")?, request));
        }
        Ok(senders)
    }
}

async fn connect_http2(url: &str) -> anyhow::Result<http2::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(host(url)?).await.with_context(|| format!("cannot reach {url}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // It ends with its last sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// One kind of request over all connections for a while.
struct Round {
    latencies: Latencies,
    per_s: f64,
    used: Used,
}

/// Measures, the two kinds taking turns.
pub(super) async fn run(bench: &mut Bench, args: &HttpArgs) -> anyhow::Result<()> {
    ensure!(args.seconds > 0, "nothing would be measured");
    for connections in &args.connections {
        let target = Target::start(&bench.connect, &args.target).await?;
        let topic = format!("bench-http-{}", ulid::Ulid::new().to_string().to_lowercase());
        let result = measure(&target, &topic, args, *connections).await?;
        // What was measured is not lost over what cannot be cleaned up.
        bench.emit(result)?;
        target.remove_topic(&topic).await?;
    }
    Ok(())
}

async fn measure(
    target: &Target,
    topic: &str,
    args: &HttpArgs,
    connections: u32,
) -> anyhow::Result<RunResult> {
    let load = |method, path: String, bytes| Load {
        url: target.reach.connect.url.clone(),
        method,
        path,
        headers: String::new(),
        body: noise(bytes),
        http2: args.http2,
    };
    let empty = load(Method::GET, "/healthz".to_owned(), 0);
    let path = format!("/v1/ns/{}/topics/{topic}/messages", target.reach.connect.namespace);
    let post = load(Method::POST, path, args.payload);
    let duration = Duration::from_secs(args.seconds);
    // The first of each warms up.
    let (mut empties, mut posts) = (Vec::new(), Vec::new());
    for number in 0..=args.rounds {
        let empty = round(Some(target), &empty, connections, duration).await?;
        let full = round(Some(target), &post, connections, duration).await?;
        if number > 0 {
            empties.push(empty);
            posts.push(full);
        }
    }
    let version = if args.http2 { "HTTP/2" } else { "HTTP/1.1" };
    let mut result =
        RunResult::new("http", format!("{version}, {connections} under way, {} B", args.payload));
    result.warmup_s = 2.0 * duration.as_secs_f64();
    result.seconds = posts.iter().map(|round| round.used.seconds).sum();
    let mut ratios: Vec<f64> =
        posts.iter().zip(&empties).map(|(post, empty)| post.per_s / empty.per_s).collect();
    ratios.sort_by(f64::total_cmp);
    let mut all = Latencies::new();
    posts.iter().for_each(|round| all.add(&round.latencies));
    result.latencies = vec![Percentiles::of("confirm", &all)];
    result.figures = vec![
        Figure::new("post_per_s", median(posts.iter().map(|round| round.per_s))),
        Figure::new("empty_204_per_s", median(empties.iter().map(|round| round.per_s))),
        Figure::new("post_per_empty_pct", 100.0 * median(ratios.iter().copied())),
        Figure::new("post_per_empty_lowest_pct", 100.0 * ratios[0]),
        Figure::new("post_per_empty_highest_pct", 100.0 * ratios[ratios.len() - 1]),
    ];
    // The costs are those of the median round.
    posts.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    let middle = &posts[posts.len().saturating_sub(1) / 2];
    result.figures.extend(middle.used.figures(middle.latencies.count(), args.payload));
    disk::measure(target, Rate::Max, &mut result).await?;
    Ok(result)
}

/// The load generator alone, against any server.
pub(super) async fn post(bench: &mut Bench, args: &PeerArgs) -> anyhow::Result<()> {
    let name = host(&args.to)?;
    let path = args.to[args.to.find(name).unwrap_or(0) + name.len()..].to_owned();
    ensure!(path.starts_with('/'), "the URL has a path");
    let headers: String = args.header.iter().map(|header| format!("{}\r\n", header.trim())).collect();
    let url = format!("http://{name}");
    let body = noise(args.payload);
    let load = Load { url, method: Method::POST, path, headers, body, http2: false };
    if args.create {
        for number in 0..args.connections {
            let path = load.path.replace("{n}", &number.to_string());
            Poster::connect(&load.url).await?.send(&format!("PUT {path}"), &load.headers, &[]).await?;
        }
    }
    let warmup = Duration::from_secs(args.seconds) / 5;
    round(None, &load, args.connections, warmup).await?;
    let measured = round(None, &load, args.connections, Duration::from_secs(args.seconds)).await?;
    let mut result =
        RunResult::new(&args.name, format!("{} connections, {} B", args.connections, args.payload));
    (result.warmup_s, result.seconds) = (warmup.as_secs_f64(), measured.used.seconds);
    result.latencies = vec![Percentiles::of("confirm", &measured.latencies)];
    result.figures = vec![Figure::new("post_per_s", measured.per_s)];
    result.figures.push(Figure::new("client_cpu_us_per_message", {
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
        let count = measured.latencies.count().max(1) as f64;
        measured.used.client_cpu_s.iter().sum::<f64>() * 1e6 / count
    }));
    bench.emit(result)
}

async fn round(
    target: Option<&Target>,
    load: &Load,
    connections: u32,
    duration: Duration,
) -> anyhow::Result<Round> {
    let senders = load.senders(connections).await?;
    let meter = Meter::start(target, Vec::new()).await;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut sender in senders {
        tasks.spawn(async move {
            let mut latencies = Latencies::new();
            let mut now = Instant::now();
            while now - start < duration {
                let status = sender.exchange().await?;
                ensure!((200..300).contains(&status), "the server answered {status}");
                let after = Instant::now();
                latencies.record_time(after - now);
                now = after;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Latencies::new();
    while let Some(task) = tasks.join_next().await {
        latencies.add(&task??);
    }
    let used = meter.stop(target).await;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let per_s = latencies.count() as f64 / seconds;
    Ok(Round { latencies, per_s, used })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    super::table::median(&values)
}
