//! `weir dev`: a storage node and a gateway in one process, over real TCP and the real codec.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir_gateway::{Gateway, GatewayConfig, TlsFiles};
use weir_storage_node::{Node, NodeConfig, Surroundings};

use crate::args::{DevArgs, Limit};
use crate::output;

/// What is in flight may take this long to finish at the end.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Runs until SIGTERM, SIGINT or a failure.
pub(crate) async fn run(args: DevArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,weir=info,openraft=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let node = NodeConfig {
        data_dir: args.data_dir.clone(),
        data_shards: args.data_shards,
        // The newcomer's first publish needs no other request before it.
        auto_create: true,
        journal_max_bytes: match args.journal_max {
            Limit::At(bytes) => bytes,
            Limit::Unlimited => u64::MAX / 2,
        },
        ..NodeConfig::default()
    };
    // One registry for both, so that `/metrics` shows the whole process.
    let registry = prometheus::Registry::new();
    let around = Surroundings { registry: registry.clone(), ..Surroundings::default() };
    let node = Node::start_in(node, around)
        .await
        .with_context(|| format!("cannot start on {}", args.data_dir.display()))?;
    let mut node_stops = node.stopping();
    let tls = tls_files(&args)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    if let (true, Some(files)) = (args.tls_self_signed, &tls) {
        output::note(format_args!(
            "clients trust it with --ca-cert {0} (curl: --cacert {0})",
            files.cert.display()
        ));
    }
    let gateway = GatewayConfig {
        tls,
        listen: args.listen,
        storage: node.local_addr().to_string(),
        insecure_public: args.insecure_public,
        console_prefix: args.console_prefix.clone(),
        ..GatewayConfig::default()
    };
    let gateway = match Gateway::start(gateway, registry).await {
        Ok(gateway) => gateway,
        Err(error) => {
            node.shutdown(DRAIN_TIME).await;
            return Err(error.into());
        }
    };
    let url = format!("{scheme}://{}", gateway.local_addr());
    if let Some(path) = &args.ready_file {
        std::fs::write(path, &url).with_context(|| format!("cannot write {}", path.display()))?;
    }
    welcome(&url, &args);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = node_stops.wait_for(|stopping| *stopping) => output::note("the storage node has to stop; see the log"),
    }
    output::note("stopping: finishing what is in flight");
    gateway.shutdown(DRAIN_TIME).await;
    node.shutdown(DRAIN_TIME).await;
    Ok(())
}

/// The certificate to serve with, if any.
fn tls_files(args: &DevArgs) -> anyhow::Result<Option<TlsFiles>> {
    if args.tls_self_signed {
        return Ok(Some(weir_gateway::self_signed(&args.data_dir)?));
    }
    let files = args.tls_cert.clone().zip(args.tls_key.clone());
    Ok(files.map(|(cert, key)| TlsFiles { cert, key }))
}

fn welcome(url: &str, args: &DevArgs) {
    output::note(format_args!(
        "Weir is running, data in {}\n\n  \
         console        {url}{console}\n  \
         API            {url}/v1\n  \
         OpenAPI        {url}/openapi.json\n  \
         metrics        {url}/metrics\n\n\
         Publish a message, read it back, follow the topic:\n\n  \
         curl -d 'hello' -H 'Content-Type: text/plain' {url}/v1/topics/greetings/messages\n  \
         curl {url}/v1/topics/greetings/messages\n  \
         curl -N -H 'Accept: text/event-stream' {url}/v1/topics/greetings/messages\n\n\
         Stop with Ctrl-C.",
        args.data_dir.display(),
        console = args.console_prefix,
    ));
}
