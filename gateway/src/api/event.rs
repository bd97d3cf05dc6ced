//! Events of CloudEvents 1.0 in structured mode, as JSON: what the document says of them. What is published is read
//! without being taken apart into this, and what is read is written from the record.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event in the JSON format of CloudEvents 1.0. What else it has are extension attributes: texts, numbers
/// and booleans with names of `a`–`z` and `0`–`9`. At most one of `data` and `data_base64`; `null` is as if
/// it were left out, except for `data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "specversion": "1.0", "id": "7", "source": "/shop", "type": "order.placed",
    "datacontenttype": "application/json", "data": {"total": 10}
}))]
pub struct CloudEvent {
    /// `1.0`.
    #[schema(pattern = r"^1\.0$")]
    pub specversion: String,
    /// Unique for the source.
    #[schema(min_length = 1)]
    pub id: String,
    /// Where it happened, a URI reference.
    #[schema(min_length = 1)]
    pub source: String,
    /// What happened.
    #[serde(rename = "type")]
    #[schema(min_length = 1)]
    pub kind: String,
    /// What of the source it is about.
    #[schema(min_length = 1)]
    pub subject: Option<String>,
    /// When it happened (RFC 3339).
    pub time: Option<String>,
    /// Media type of the data; `application/json` if there is none.
    pub datacontenttype: Option<String>,
    /// Schema of the data, a URI.
    pub dataschema: Option<String>,
    /// The message's key.
    pub partitionkey: Option<String>,
    /// The payload, if it is JSON or a text.
    pub data: Option<serde_json::Value>,
    /// Any other payload in Base64.
    pub data_base64: Option<String>,
}
