//! Calls per second of one connection over loopback TCP, client and server in one process.
//!
//! `cargo run --release -p weir-transport --example echo_bench [-- seconds window body_bytes]`
//!
//! `window` tasks each keep one call of `body_bytes` in flight; the answer is 16 bytes. Prints calls per second and
//! the process's CPU time per call, which includes both ends.
#![expect(clippy::disallowed_methods, reason = "reads what the process has used, between two rounds")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use tokio::task::JoinSet;
use weir_protocol::ids::{ClusterId, NodeId, ShardId};
use weir_protocol::rpc::Method;
use weir_transport::{
    Identity, Link, LinkConfig, Listener, Peer, Priority, Request, ServerConfig, Service, TcpConnect,
};

const DEADLINE: Duration = Duration::from_secs(10);

struct Acknowledge;

impl Service for Acknowledge {
    fn call(&self, _: &Peer, request: Request) {
        request.reply.finish(vec![Bytes::from_static(b"sixteen bytes ok")]);
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let seconds = arguments.first().copied().unwrap_or(4) as u64;
    let window = arguments.get(1).copied().unwrap_or(1024);
    let body_bytes = arguments.get(2).copied().unwrap_or(1024);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(
        Duration::from_secs(seconds),
        window,
        body_bytes,
    ))
}

async fn measure(duration: Duration, window: usize, body_bytes: usize) -> anyhow::Result<()> {
    let identity = Identity { cluster_id: ClusterId(1), node_id: NodeId(1) };
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), identity);
    let metrics = Arc::clone(&config.metrics);
    let listener = Listener::bind(config, Arc::new(Acknowledge)).await?;
    let connect = TcpConnect { address: listener.local_addr().to_string(), tls: None };
    let link = Link::new(LinkConfig::new(Priority::Bulk, LinkConfig::gateway_hello()), Arc::new(connect));
    link.connected(DEADLINE).await?;

    let body = Bytes::from(vec![7; body_bytes]);
    let stop = Arc::new(AtomicBool::new(false));
    let (started, cpu_started) = (Instant::now(), cpu_time()?);
    let mut callers = JoinSet::new();
    for _ in 0..window {
        let (link, body, stop) = (link.clone(), body.clone(), Arc::clone(&stop));
        callers.spawn(async move {
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) {
                link.call(Method::Publish, ShardId(1), vec![body.clone()], DEADLINE).await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    tokio::time::sleep(duration).await;
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    while let Some(caller) = callers.join_next().await {
        calls += caller??;
    }
    let (took, cpu) = (started.elapsed(), cpu_time()? - cpu_started);
    let seen = metrics.snapshot();
    println!(
        "window {window}, {body_bytes} B: {:.0} calls/s, {:.2} CPU-us/call (both ends), {:.1} answers/write",
        calls as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / calls as f64,
        seen.frames_out as f64 / seen.writes as f64,
    );
    listener.shutdown(DEADLINE).await;
    Ok(())
}

/// User and system time of this process, from Linux's `/proc`, where a tick is 10 ms.
fn cpu_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("the stat line names the process in parentheses")?;
    let ticks = |n: usize| -> anyhow::Result<u64> {
        Ok(fields.split_whitespace().nth(n).context("the stat line is short")?.parse()?)
    };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}
