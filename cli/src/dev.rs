//! `weir dev`: a storage node and a gateway in one process, over real TCP and the real codec.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir_gateway::{Gateway, GatewayConfig, RunningGateway, TlsSource};
use weir_storage_node::{Node, NodeConfig, Surroundings};

use crate::args::{DevArgs, Limit};
use crate::output;

/// What is in flight may take this long to finish at the end.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Runs until SIGTERM, SIGINT or a failure.
pub(crate) async fn run(args: DevArgs) -> anyhow::Result<()> {
    args.check()?;
    let filter = EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,weir=info,openraft=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Caught from the start: nobody who asks for the certificate to be read anew means to end the process.
    let mut hangup = signal(SignalKind::hangup())?;
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
    let gateway = GatewayConfig {
        listen: args.listen,
        storage: node.local_addr().to_string(),
        insecure_public: args.insecure_public,
        hosts: args.host_names.clone(),
        origins: args.origins.clone(),
        console_prefix: args.console_prefix.clone(),
        tls: tls(&args),
        ..GatewayConfig::default()
    };
    let gateway = match Gateway::start(gateway, registry).await {
        Ok(gateway) => gateway,
        Err(error) => {
            node.shutdown(DRAIN_TIME).await;
            return Err(error.into());
        }
    };
    let url = format!("{}://{}", gateway.scheme(), gateway.local_addr());
    if let Some(path) = &args.ready_file {
        std::fs::write(path, &url).with_context(|| format!("cannot write {}", path.display()))?;
    }
    welcome(&url, &args, &gateway);
    tokio::select! {
        () = reload(&mut hangup, &gateway) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = node_stops.wait_for(|stopping| *stopping) => output::note("the storage node has to stop; see the log"),
    }
    let has_failed = *node_stops.borrow();
    output::note("stopping: finishing what is in flight");
    gateway.shutdown(DRAIN_TIME).await;
    node.shutdown(DRAIN_TIME).await;
    // Whoever supervises the process shall know, and start it again.
    anyhow::ensure!(!has_failed, "the storage node stopped by itself; the log says why");
    Ok(())
}

fn tls(args: &DevArgs) -> Option<TlsSource> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(TlsSource::Files { cert: cert.clone(), key: key.clone() }),
        _ if args.tls_self_signed => Some(TlsSource::SelfSigned { dir: args.data_dir.clone() }),
        _ => None,
    }
}

/// Reads the certificate anew at every SIGHUP. Does not return.
async fn reload(hangup: &mut Signal, gateway: &RunningGateway) {
    while hangup.recv().await.is_some() {
        match gateway.reload_certificate() {
            Ok(()) => tracing::info!("read the certificate anew"),
            Err(error) => tracing::error!(%error, "the certificate in use stays"),
        }
    }
    std::future::pending::<()>().await;
}

fn welcome(url: &str, args: &DevArgs, gateway: &RunningGateway) {
    let trust = match gateway.certificate() {
        Some((file, sha256)) => {
            output::note(format_args!("certificate {}\n  SHA-256 {sha256}\n", file.display()));
            if args.tls_self_signed { format!("--cacert {} ", file.display()) } else { String::new() }
        }
        None => String::new(),
    };
    output::note(format_args!(
        "Weir is running, data in {}\n\n  \
         console        {url}{console}\n  \
         API            {url}/v1\n  \
         OpenAPI        {url}/openapi.json\n  \
         metrics        {url}/metrics\n\n\
         Publish a message, read it back, follow the topic:\n\n  \
         curl {trust}-d 'hello' -H 'Content-Type: text/plain' {url}/v1/topics/greetings/messages\n  \
         curl {trust}{url}/v1/topics/greetings/messages\n  \
         curl {trust}-N -H 'Accept: text/event-stream' {url}/v1/topics/greetings/messages\n\n\
         Stop with Ctrl-C.",
        args.data_dir.display(),
        console = args.console_prefix,
    ));
}
