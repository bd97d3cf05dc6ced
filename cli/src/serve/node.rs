//! `weir node`: a storage node by itself.

use weir_storage_node::NodeConfig;

use super::admin::Admin;
use super::args::NodeArgs;
use super::{
    DRAIN_TIME, Signals, check_ready_file, descriptors, first_of, limits, ready, secret, start_node, stopping,
};
use crate::output;

/// Runs until SIGTERM, SIGINT or a failure.
pub(crate) async fn run(args: NodeArgs) -> anyhow::Result<()> {
    first_of(args.faults())?;
    let mut signals = Signals::catch()?;
    check_ready_file(args.ready_file.as_deref())?;
    descriptors::raise();
    let credential = secret(args.cluster_secret.as_deref())?;
    let (listen, auto_create) = (args.listen, args.auto_create);
    let (storage_prices, price_currency) = args.prices.for_node();
    let config = NodeConfig {
        listen,
        advertise: args.advertise.clone(),
        auto_create,
        credential,
        storage_prices,
        price_currency,
        ..args.store.config()?
    };
    let registry = prometheus::Registry::new();
    // Its port is taken before data is touched: a wrong address costs nothing.
    let admin = Admin::bind(args.admin).await?;
    let Some(node) = start_node(&mut signals, config, registry.clone()).await? else { return Ok(()) };
    limits::log_node(node.limits());
    let mut node_stops = node.stopping();
    let (nodes, operators) = (node.local_addr(), admin.local_addr()?);
    let told = args.advertise.clone().unwrap_or_else(|| nodes.to_string());
    let admin = admin.serve(registry, node.stopping());
    ready(args.ready_file.as_deref(), &format!("{nodes}\n{operators}\n"))?;
    output::note(format_args!(
        "A storage node is running, data in {}\n\n  \
         gateways       weir gateway --node {told}\n  \
         metrics        http://{operators}/metrics\n\n\
         Stop with Ctrl-C.",
        args.store.data_dir.display(),
    ));
    tokio::select! {
        () = signals.stop(None) => {}
        _ = node_stops.wait_for(|stopping| *stopping) => {}
    }
    let has_failed = *node_stops.borrow();
    stopping();
    node.shutdown(DRAIN_TIME).await;
    admin.abort();
    // Whoever supervises the process shall know, and start it again.
    anyhow::ensure!(!has_failed, "the storage node stopped by itself; the log says why");
    Ok(())
}
