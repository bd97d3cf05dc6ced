//! `weir gateway`: a gateway by itself.

use weir_gateway::{Gateway, GatewayConfig};

use super::args::GatewayArgs;
use super::{
    DRAIN_TIME, Signals, check_ready_file, descriptors, first_of, gateway_config, limits, ready, secret,
    stopping,
};
use crate::output;

/// Runs until SIGTERM or SIGINT. The node need not be there yet: until it is, requests wait and `/readyz` says so.
pub(crate) async fn run(args: GatewayArgs) -> anyhow::Result<()> {
    first_of(args.faults())?;
    let mut signals = Signals::catch()?;
    check_ready_file(args.ready_file.as_deref())?;
    let credential = secret(args.cluster_secret.as_deref())?.unwrap_or_default();
    let mut config =
        GatewayConfig { credential, ..gateway_config(&args.edge, &args.prices, args.node.clone()) };
    let own = descriptors::OF_GATEWAY;
    config.connections_max = descriptors::connections(descriptors::raise(), own, config.connections_max);
    limits::log_gateway(&config);
    let gateway = Gateway::start(config, prometheus::Registry::new()).await?;
    let url = format!("{}://{}", gateway.scheme(), gateway.local_addr());
    ready(args.ready_file.as_deref(), &url)?;
    output::note(format_args!(
        "A gateway to {} is running\n\n  \
         console        {url}{}\n  \
         API            {url}/v1\n  \
         metrics        {url}/metrics\n\n\
         Stop with Ctrl-C.",
        args.node, args.edge.console_prefix,
    ));
    signals.stop(Some(&gateway)).await;
    stopping();
    gateway.shutdown(DRAIN_TIME).await;
    Ok(())
}
