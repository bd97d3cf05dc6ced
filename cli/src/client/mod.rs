//! HTTP and WebSocket, as any user of the public interface would speak them.

mod http;
mod tls;

pub(crate) use http::Api;
