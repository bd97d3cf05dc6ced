//! The producer of a run. Its name is made from what is published, so that a later run can continue an earlier one
//! without having been told anything.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use http::{HeaderMap, Method};
use serde::Deserialize;
use weir_protocol::ids::hash128;

use crate::args::{Connect, PubArgs};
use crate::client::{Api, WireError, encoded};

/// A producer.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) epoch: u32,
    /// A later run can find it again.
    pub(super) is_resumable: bool,
    /// Digests of messages that the topic has of an earlier run, by their numbers: what the input has to have there.
    pub(super) stored: BTreeMap<u64, u128>,
}

#[derive(Debug, Deserialize)]
struct Known {
    partitions: Vec<KnownPartition>,
}

#[derive(Debug, Deserialize)]
struct KnownPartition {
    partition: u32,
    epoch: u32,
    last_seq: u64,
    last_offset: u64,
}

impl Identity {
    /// With `--resume` the earlier run's producer in its epoch; without, the same producer in a new epoch, which
    /// fences an earlier run that is still going.
    pub(super) async fn find(connect: &Connect, args: &PubArgs) -> anyhow::Result<Self> {
        let Some(id) = name(connect, args)? else {
            if args.resume {
                bail!("--resume needs --file with a file, or the --producer of the earlier run");
            }
            let id = format!("cli-{}", ulid::Ulid::new());
            return Ok(Self { id, epoch: 0, is_resumable: false, stored: BTreeMap::new() });
        };
        let (api, topic) = (Api::new(connect)?, &args.topic);
        let mut known = known(&api, topic, &id).await?;
        let epoch = match known.iter().map(|at| at.epoch).max() {
            Some(epoch) if args.resume => epoch,
            Some(epoch) => epoch.checked_add(1).context("the producer has used up its epochs")?,
            None => 0,
        };
        known.retain(|at| at.epoch == epoch);
        Ok(Self { id, epoch, is_resumable: true, stored: stored(&api, topic, &known).await? })
    }
}

/// The name that another run with the same input has too.
fn name(connect: &Connect, args: &PubArgs) -> anyhow::Result<Option<String>> {
    if let Some(producer) = &args.producer {
        return Ok(Some(producer.clone()));
    }
    let Some(file) = args.file.as_deref().filter(|file| args.lines && file.as_os_str() != "-") else {
        return Ok(None);
    };
    let unread = || format!("cannot read {}", file.display());
    if !file.metadata().with_context(unread)?.is_file() {
        // A pipe, of which nothing comes again.
        return Ok(None);
    }
    let path = file.canonicalize().with_context(unread)?;
    let parts = [connect.namespace.as_bytes(), args.topic.as_bytes(), path.as_os_str().as_encoded_bytes()];
    Ok(Some(format!("cli-{:032x}", hash128(&parts))))
}

/// The producer on every partition that has seen it.
async fn known(api: &Api, topic: &str, id: &str) -> anyhow::Result<Vec<KnownPartition>> {
    let path = api.path(&format!("topics/{}/producers/{}", encoded(topic), encoded(id)));
    let Some(reply) = api.get_if_any(&path).await? else { return Ok(Vec::new()) };
    let known: Known =
        serde_json::from_slice(&reply.body).context("the gateway's answer is not a producer")?;
    Ok(known.partitions)
}

/// The last message of each partition, as far as they can be read: retention may have removed it.
async fn stored(api: &Api, topic: &str, known: &[KnownPartition]) -> anyhow::Result<BTreeMap<u64, u128>> {
    let mut stored = BTreeMap::new();
    for KnownPartition { partition, last_offset, last_seq, .. } in known {
        let path = api.path(&format!("topics/{}/messages/{partition}/{last_offset}", encoded(topic)));
        match api.attempt(Method::GET, &path, HeaderMap::new(), "").await {
            Ok(reply) => drop(stored.insert(*last_seq, hash128(&[&reply.body]))),
            Err(WireError::Final(_)) => {}
            Err(lost) => return Err(lost.into()),
        }
    }
    Ok(stored)
}
