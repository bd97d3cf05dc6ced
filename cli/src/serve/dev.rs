//! `weir dev`: the newcomer's way.

use std::sync::Arc;

use weir_gateway::{Gateway, GatewayConfig, RunningGateway, TlsSource};
use weir_storage_node::NodeConfig;

use super::args::DevArgs;
use super::{
    DRAIN_TIME, Signals, check_ready_file, descriptors, first_of, gateway_config, limits, ready, start_node,
    stopping,
};
use crate::output;

/// Runs until SIGTERM, SIGINT or a failure.
pub(crate) async fn run(args: DevArgs) -> anyhow::Result<()> {
    first_of(args.faults())?;
    let mut signals = Signals::catch()?;
    check_ready_file(args.ready_file.as_deref())?;
    let data_dir = &args.store.data_dir;
    let mut gateway = gateway_config(&args.edge, &args.prices, String::new());
    if args.tls_self_signed {
        gateway.tls = Some(TlsSource::SelfSigned { dir: data_dir.clone() });
    }
    let config = args.store.config()?;
    let (journal, file) = (config.journal_max_bytes, config.journal_file_bytes);
    let own = descriptors::of_node(journal, file, config.object_store.is_some());
    gateway.connections_max = descriptors::connections(descriptors::raise(), own, gateway.connections_max);
    // What the gateway cannot start with costs nothing: no data is touched before.
    let reserved = Some(Gateway::reserve(&gateway)?);
    // The newcomer's first publish needs no other request before it.
    let (storage_prices, price_currency) = args.prices.for_node();
    let node = NodeConfig { auto_create: true, storage_prices, price_currency, ..config };
    // One registry for both, so that `/metrics` shows the whole process.
    let registry = prometheus::Registry::new();
    let Some(node) = start_node(&mut signals, node, registry.clone()).await? else { return Ok(()) };
    limits::log_node(node.limits());
    let mut node_stops = node.stopping();
    let gateway = GatewayConfig { storage: node.local_addr().to_string(), ..gateway };
    limits::log_gateway(&gateway);
    // Others reach the node by its port; what is in one process need not go through the kernel.
    let dial = Arc::new(node.in_process());
    let around = weir_gateway::Surroundings { registry, dial, reserved, ..Default::default() };
    let gateway = match Gateway::start_in(gateway, around).await {
        Ok(gateway) => gateway,
        Err(error) => {
            node.shutdown(DRAIN_TIME).await;
            return Err(error.into());
        }
    };
    let url = format!("{}://{}", gateway.scheme(), gateway.local_addr());
    ready(args.ready_file.as_deref(), &url)?;
    if args.ready_file.is_none() {
        welcome(&url, &args, &gateway);
    }
    tokio::select! {
        () = signals.stop(Some(&gateway)) => {}
        _ = node_stops.wait_for(|stopping| *stopping) => output::note("the storage node has to stop; see the log"),
    }
    let has_failed = *node_stops.borrow();
    stopping();
    gateway.shutdown(DRAIN_TIME).await;
    node.shutdown(DRAIN_TIME).await;
    // Whoever supervises the process shall know, and start it again.
    anyhow::ensure!(!has_failed, "the storage node stopped by itself; the log says why");
    Ok(())
}

fn welcome(url: &str, args: &DevArgs, gateway: &RunningGateway) {
    let trust = match gateway.certificate() {
        Some((file, sha256)) => {
            output::note(format_args!("certificate {}\n  SHA-256 {sha256}\n", file.display()));
            if args.tls_self_signed {
                format!("--cacert {} ", output::word(&file.to_string_lossy()))
            } else {
                String::new()
            }
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
        args.store.data_dir.display(),
        console = args.edge.console_prefix,
    ));
}
