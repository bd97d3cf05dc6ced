//! A gateway in front of the played node, and a client of it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use weir_gateway::{Gateway, GatewayConfig, RunningGateway};
use weir_transport::Listener;

use super::node::{self, Node};

/// A gateway and what it stands before.
pub(crate) struct Play {
    pub(crate) node: Arc<Node>,
    gateway: RunningGateway,
    listener: Option<Arc<Listener>>,
    address: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// A problem's code.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("no problem")
    }
}

impl Play {
    /// A topic `orders` with its partitions in these shards.
    pub(crate) async fn start(shards: &[u32]) -> Self {
        let (node, listener, address) = node::start(shards).await;
        Self::before(node, Some(Arc::new(listener)), address).await
    }

    /// The same, on a way to the node that breaks.
    pub(crate) async fn start_breakable(shards: &[u32]) -> Self {
        let (node, listener, address) = node::start(shards).await;
        let address = node::breakable(&node, address).await;
        Self::before(node, Some(Arc::new(listener)), address).await
    }

    /// Another gateway before the same node.
    pub(crate) async fn beside(&self) -> Self {
        Self::before(Arc::clone(&self.node), self.listener.clone(), self.address.clone()).await
    }

    async fn before(node: Arc<Node>, listener: Option<Arc<Listener>>, address: String) -> Self {
        let config = GatewayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            storage: address.clone(),
            ..GatewayConfig::default()
        };
        let gateway = Gateway::start(config, prometheus::Registry::new()).await.unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { node, gateway, listener, address, client }
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let uri = format!("http://{}{path}", self.gateway.local_addr());
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let exchange = async {
            let answer = self.client.request(request).await.unwrap();
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Answer { status, headers, body: serde_json::from_slice(&body).unwrap_or_default(), text }
        };
        tokio::time::timeout(Duration::from_secs(90), exchange).await.unwrap()
    }

    /// A request about a subscription, in the short form.
    pub(crate) async fn send(
        &self,
        method: &str,
        rest: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.request(method, &format!("/v1/subscriptions/{rest}"), headers, body).await
    }

    pub(crate) async fn put(&self, name: &str, body: &Value) -> Answer {
        self.send("PUT", name, &[], &body.to_string()).await
    }

    pub(crate) async fn post(&self, rest: &str, body: &Value) -> Answer {
        self.send("POST", rest, &[], &body.to_string()).await
    }

    pub(crate) async fn create(&self, name: &str) {
        let made = self.put(name, &json!({"topics": ["orders"]})).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    pub(crate) async fn pull(&self, body: &Value) -> Answer {
        self.post("billing:pull", body).await
    }

    pub(crate) async fn settle(&self, body: &Value) -> Answer {
        self.post("billing:settle", body).await
    }
}

/// Every lease of a pull.
pub(crate) fn leases_of(pulled: &Answer) -> Vec<String> {
    let messages = pulled.body["messages"].as_array().unwrap_or_else(|| panic!("{pulled:?}"));
    messages.iter().map(|message| message["lease"].as_str().unwrap().to_owned()).collect()
}

/// The lease of one message.
pub(crate) fn lease(pulled: &Answer, id: &str) -> String {
    let messages = pulled.body["messages"].as_array().unwrap();
    let message = messages.iter().find(|message| message["id"] == id).unwrap();
    message["lease"].as_str().unwrap().to_owned()
}

pub(crate) fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
