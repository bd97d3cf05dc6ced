//! How a writer's batches get to the product, and what it says of them.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use weir_protocol::batch::Batch;
use weir_protocol::ids::{Incarnation, ProducerKey, Seq};
use weir_protocol::rpc::Level;
use weir_protocol::ws::{Channel, ClientFrame, Limit, Open, Producer, Pub, ServerFrame};

use super::Shared;
use super::door::Door;
use super::node::NodePublishing;
use super::reader::encoding;
use crate::args::Connect;
use crate::client::{Encoding, Wire, problem_text};

const CH: Channel = Channel(1);

/// One writer's way.
pub(super) enum Publishing {
    Socket { wire: Box<Wire>, encoding: Encoding, level: Option<Level> },
    Node(Box<NodePublishing>),
}

/// What the product says.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// Everything below this number is confirmed.
    Confirmed(u64),
    /// Totals that may be sent.
    Limit(Limit),
    Nothing,
}

impl Publishing {
    /// Opens it; the producer that batches name, and what may be sent first.
    pub(super) async fn open(
        door: &Door,
        shared: &Arc<Shared>,
        number: u32,
    ) -> anyhow::Result<(Self, ProducerKey, Limit)> {
        let id = format!("bench-{}-{number}", shared.run);
        let topic = shared.shape.topic(&shared.run, number);
        match door {
            Door::Gateway(connect) => Self::open_socket(connect, shared, topic, id).await,
            Door::Node(node) => {
                let level = shared.shape.confirm.context("a storage node confirms everything")?;
                let way = NodePublishing::open(node, &topic, level).await?;
                let producer = ProducerKey::of(Incarnation(way.incarnation()), &id);
                // The window bounds it.
                let limit = Limit { msgs: u64::MAX, bytes: u64::MAX };
                Ok((Self::Node(Box::new(way)), producer, limit))
            }
        }
    }

    async fn open_socket(
        connect: &Connect,
        shared: &Shared,
        topic: String,
        id: String,
    ) -> anyhow::Result<(Self, ProducerKey, Limit)> {
        let encoding = encoding(shared.shape.transport);
        let mut wire = Wire::connect_as(encoding, connect, Vec::new()).await?;
        let level = shared.shape.confirm;
        let open = Open {
            ns: Some(connect.namespace.clone()),
            topic,
            producer: Some(Producer { id: id.clone(), epoch: 0 }),
            confirm: vec![level.unwrap_or(Level::None)],
        };
        wire.put(CH, &ClientFrame::Open(open));
        wire.flush().await?;
        let opened = match wire.next().await? {
            (_, ServerFrame::Opened(opened)) => opened,
            (_, ServerFrame::Err(refused)) => bail!(problem_text(&refused.problem)),
            (_, other) => bail!("open was answered with {other:?}"),
        };
        let producer = ProducerKey::of(Incarnation(opened.inc), &id);
        Ok((Self::Socket { wire: Box::new(wire), encoding, level }, producer, opened.pub_limit))
    }

    /// Sends messages from number `first` on.
    pub(super) async fn put(&mut self, first: u64, batch: Batch) -> anyhow::Result<()> {
        match self {
            Self::Socket { wire, encoding: Encoding::Binary, .. } => {
                wire.put(CH, &ClientFrame::PubBatch { first_seq: Seq(first), batch });
                Ok(wire.flush().await?)
            }
            // The same messages, each in a frame of its own.
            Self::Socket { wire, encoding: Encoding::Json, .. } => {
                for (seq, record) in (first..).zip(batch.records()?) {
                    let b64 = Some(BASE64_STANDARD.encode(&record?.value));
                    wire.put(CH, &ClientFrame::Pub(Pub { seq, b64, ..Pub::default() }));
                }
                Ok(wire.flush().await?)
            }
            Self::Node(node) => node.put(first + u64::from(batch.header().count), &batch).await,
        }
    }

    /// What is said next.
    pub(super) async fn next(&mut self) -> anyhow::Result<News> {
        match self {
            Self::Socket { wire, level, .. } => told(wire.next().await?.1, *level),
            Self::Node(node) => Ok(News::Confirmed(node.next().await?)),
        }
    }

    /// True if [`Publishing::next`] answers without waiting.
    pub(super) fn has_next(&self) -> bool {
        matches!(self, Self::Socket { wire, .. } if wire.has_next())
    }
}

fn told(frame: ServerFrame, level: Option<Level>) -> anyhow::Result<News> {
    match frame {
        ServerFrame::Confirm(confirm) => Ok(match confirm.upto {
            Some(upto) if Some(confirm.level) == level => News::Confirmed(upto + 1),
            _ => News::Nothing,
        }),
        ServerFrame::PubLimit(limit) => Ok(News::Limit(limit)),
        ServerFrame::Reject(reject) => bail!("message {}: {}", reject.seq, problem_text(&reject.problem)),
        ServerFrame::Err(refused) => bail!(problem_text(&refused.problem)),
        other => bail!("unexpected: {other:?}"),
    }
}
