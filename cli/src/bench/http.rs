//! One message per POST on keep-alive HTTP/1.1, beside the same server answering an empty 204.
//!
//! The client is as lean as one can be, since it shares the machine: a socket, a prepared request, a reader that
//! looks for the end of the answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rand::RngCore as _;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::report::Percentiles;
use super::tally::Latencies;
use super::target::{Target, Usage};
use crate::args::{Connect, HttpArgs};
use crate::output;

/// A connection that sends one request again and again.
pub(super) struct Poster {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Poster {
    /// Connects to the host of `url`.
    pub(super) async fn connect(url: &str, line: &str, body: &[u8]) -> anyhow::Result<Self> {
        let host = url.strip_prefix("http://").context("only http:// is measured")?.trim_end_matches('/');
        let stream = TcpStream::connect(host).await.with_context(|| format!("cannot reach {host}"))?;
        stream.set_nodelay(true)?;
        let mut request =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(body);
        Ok(Self { stream, request, answer: Vec::with_capacity(4 << 10) })
    }

    /// Sends the request and reads the whole answer; its status.
    pub(super) async fn exchange(&mut self) -> anyhow::Result<u16> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await?;
            ensure!(read > 0, "the server closed the connection");
            if let Some(status) = complete(&self.answer)? {
                return Ok(status);
            }
        }
    }
}

/// The status of an answer, once all of it is there.
fn complete(answer: &[u8]) -> anyhow::Result<Option<u16>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).context("the answer's head is not text")?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).context("no status")?;
    let length = head.lines().filter_map(|line| line.split_once(':'));
    let length = length.rev().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(Ok(0), |(_, value)| value.trim().parse())?;
    Ok((answer.len() >= end + 4 + length).then_some(status))
}

/// One kind of request over all connections for a while.
struct Round {
    latencies: Latencies,
    per_s: f64,
    usage: Usage,
}

#[derive(Debug, Serialize)]
struct HttpReport {
    connections: u32,
    payload: usize,
    rounds: u32,
    empty_per_s: f64,
    post_per_s: f64,
    /// Of each round, POSTs per empty answer.
    ratios: Vec<f64>,
    post: Percentiles,
    /// Absent if it is not known which process serves.
    server_cpu_us_per_post: Option<f64>,
    messages_per_sync: f64,
}

/// Measures, the two kinds taking turns.
pub(super) async fn run(connect: &Connect, args: &HttpArgs) -> anyhow::Result<()> {
    ensure!(args.connections > 0 && args.rounds > 0, "nothing would be measured");
    let target = Target::start(connect, &args.target).await?;
    let mut body = vec![0; args.payload];
    rand::rng().fill_bytes(&mut body);
    let topic = format!("bench-http-{}", ulid::Ulid::new().to_string().to_lowercase());
    let post = format!("POST /v1/ns/{}/topics/{topic}/messages", target.connect.namespace);
    let duration = Duration::from_secs(args.seconds);
    // The first of each warms up.
    let (mut empties, mut posts) = (Vec::new(), Vec::new());
    for number in 0..=args.rounds {
        let empty = round(&target, args.connections, "GET /healthz", &[], duration).await?;
        let full = round(&target, args.connections, &post, &body, duration).await?;
        if number > 0 {
            empties.push(empty);
            posts.push(full);
        }
    }
    report(args, &empties, &posts).print(connect.json)
}

async fn round(
    target: &Target,
    connections: u32,
    line: &str,
    body: &[u8],
    duration: Duration,
) -> anyhow::Result<Round> {
    let mut tasks = JoinSet::new();
    let mut posters = Vec::new();
    for _ in 0..connections {
        posters.push(Poster::connect(&target.connect.url, line, body).await?);
    }
    let before = target.usage().await;
    let start = Instant::now();
    for mut poster in posters {
        tasks.spawn(async move {
            let mut latencies = Latencies::new();
            let mut now = Instant::now();
            while now - start < duration {
                let status = poster.exchange().await?;
                ensure!((200..300).contains(&status), "the server answered {status}");
                let after = Instant::now();
                latencies.record(u64::try_from((after - now).as_micros()).unwrap_or(u64::MAX), 1);
                now = after;
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Latencies::new();
    while let Some(task) = tasks.join_next().await {
        latencies.add(&task??);
    }
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let per_s = latencies.count() as f64 / seconds;
    Ok(Round { latencies, per_s, usage: target.usage().await.since(before) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn report(args: &HttpArgs, empties: &[Round], posts: &[Round]) -> HttpReport {
    let mut all = Latencies::new();
    posts.iter().for_each(|round| all.add(&round.latencies));
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let count = all.count().max(1) as f64;
    let server_cpu_s: Option<f64> = posts.iter().map(|round| Some(round.usage.server?.cpu_s)).sum();
    let syncs: f64 = posts.iter().map(|round| round.usage.syncs).sum();
    HttpReport {
        connections: args.connections,
        payload: args.payload,
        rounds: args.rounds,
        empty_per_s: median(empties.iter().map(|round| round.per_s).collect()),
        post_per_s: median(posts.iter().map(|round| round.per_s).collect()),
        ratios: posts.iter().zip(empties).map(|(post, empty)| post.per_s / empty.per_s).collect(),
        post: Percentiles::of(&all),
        server_cpu_us_per_post: server_cpu_s.map(|seconds| seconds * 1e6 / count),
        messages_per_sync: count / syncs.max(1.0),
    }
}

impl HttpReport {
    fn print(&self, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            output::line(serde_json::to_string(self)?);
            return Ok(());
        }
        let ratios: Vec<_> = self.ratios.iter().map(|ratio| format!("{:.0} %", ratio * 100.0)).collect();
        output::line(format_args!(
            "{} connections, {} B: {:.0} POST/s, {:.0} empty answers/s on the same connections; ratio per round {}",
            self.connections,
            self.payload,
            self.post_per_s,
            self.empty_per_s,
            ratios.join(", ")
        ));
        let post = &self.post;
        output::line(format_args!(
            "POST to confirm: p50 {} us, p99 {} us, p99.9 {} us, max {} us; server {} CPU-us per POST, \
             {:.1} messages per sync",
            post.p50_us,
            post.p99_us,
            post.p999_us,
            post.max_us,
            self.server_cpu_us_per_post.map_or("unknown".to_owned(), |us| format!("{us:.1}")),
            self.messages_per_sync
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_its_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(answer).unwrap(), Some(201));
        assert_eq!(complete(&answer[..answer.len() - 1]).unwrap(), None);
        assert_eq!(complete(&answer[..20]).unwrap(), None);
        assert_eq!(complete(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some(204));
    }
}
