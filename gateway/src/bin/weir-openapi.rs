//! Prints the OpenAPI document: `cargo run -p weir-gateway --bin weir-openapi > openapi/openapi.json`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(weir_gateway::api::openapi::document_json().as_bytes())
}
