//! What the object store charges: settings of whoever estimates what a day of it costs, the node and the gateway.

use clap::Args as ClapArgs;
use weir_gateway::api::StoragePrices;
use weir_protocol::prices::Prices;

/// What the object store charges.
#[derive(Debug, ClapArgs)]
pub(crate) struct PriceArgs {
    /// Price of a GiB in the object store for a month of 30 days, 0 or more: estimates are made of it, for
    /// topics by the gateway, in metrics by the node. The defaults of all prices are S3 Standard's
    #[arg(long, env = "WEIR_PRICE_STORED_GIB_MONTH", default_value_t = Prices::S3_STANDARD.stored_gib_month,
        value_name = "PRICE", value_parser = price)]
    price_stored_gib_month: f64,
    /// Price of a thousand requests that write to the object store, 0 or more
    #[arg(long, env = "WEIR_PRICE_THOUSAND_PUTS", default_value_t = Prices::S3_STANDARD.thousand_puts,
        value_name = "PRICE", value_parser = price)]
    price_thousand_puts: f64,
    /// Price of a thousand requests that read from the object store, 0 or more
    #[arg(long, env = "WEIR_PRICE_THOUSAND_GETS", default_value_t = Prices::S3_STANDARD.thousand_gets,
        value_name = "PRICE", value_parser = price)]
    price_thousand_gets: f64,
    /// Currency of these prices
    #[arg(long, env = "WEIR_PRICE_CURRENCY", default_value = "USD", value_name = "NAME")]
    price_currency: String,
}

/// A price: a number that is not negative.
fn price(text: &str) -> Result<f64, String> {
    let price: f64 = text.parse().map_err(|_| "a price is a number like 0.023".to_owned())?;
    if price.is_finite() && price >= 0.0 { Ok(price) } else { Err("a price is not negative".to_owned()) }
}

impl PriceArgs {
    /// As the node takes them: the numbers, and what they are in.
    pub(super) fn for_node(&self) -> (Prices, String) {
        let prices = Prices {
            stored_gib_month: self.price_stored_gib_month,
            thousand_puts: self.price_thousand_puts,
            thousand_gets: self.price_thousand_gets,
        };
        (prices, self.price_currency.clone())
    }

    /// As the gateway takes them. Whose they are is only known of those that nobody gave.
    pub(super) fn for_gateway(&self) -> StoragePrices {
        let given = StoragePrices {
            currency: self.price_currency.clone(),
            stored_gib_month: self.price_stored_gib_month,
            thousand_puts: self.price_thousand_puts,
            thousand_gets: self.price_thousand_gets,
            ..StoragePrices::default()
        };
        if given == StoragePrices::default() {
            return given;
        }
        StoragePrices { source: "prices that the gateway was given".to_owned(), ..given }
    }
}
