//! What all sockets of a gateway share of permessage-deflate.

use flate2::{Compress, Compression};
use http::HeaderMap;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use super::inflate::Inflating;
use super::offer::{Agreed, NoExtensions, agree};
use crate::config::WsDeflate;
use crate::ws::output::Form;

/// Codecs kept that nobody uses, of each kind: about as many as there are threads, so that each message finds
/// one. Further ones are made and dropped.
const SPARE_MAX: usize = 8;

/// Codecs and counters. No socket has a codec between messages.
#[expect(clippy::vec_box, reason = "a socket has it boxed: it goes to and fro as it is")]
pub(crate) struct Deflate {
    setting: WsDeflate,
    compressors: Mutex<Vec<Compress>>,
    inflating: Mutex<Vec<Box<Inflating>>>,
    counts: DeflateCounts,
}

impl Deflate {
    /// For the forms that `setting` names; registers what is counted.
    ///
    /// # Errors
    /// A metric is registered already.
    pub(crate) fn register(setting: WsDeflate, registry: &Registry) -> prometheus::Result<Self> {
        let counts = DeflateCounts::register(registry)?;
        Ok(Self { setting, compressors: Mutex::default(), inflating: Mutex::default(), counts })
    }

    /// What is agreed with a client that asks with `headers`. Nothing is read where nothing would be agreed.
    ///
    /// # Errors
    /// [`NoExtensions`].
    pub(in crate::ws) fn agree(
        &self,
        form: Form,
        headers: &HeaderMap,
    ) -> Result<Option<Agreed>, NoExtensions> {
        match (self.setting, form) {
            (WsDeflate::All, _) | (WsDeflate::Json, Form::Json) => agree(headers),
            (WsDeflate::Json, Form::Binary) | (WsDeflate::Off, _) => Ok(None),
        }
    }

    pub(super) fn counts(&self) -> &DeflateCounts {
        &self.counts
    }

    /// A compressor for one message; goes back with [`Deflate::compressed`].
    pub(super) fn compress(&self) -> Compress {
        let spare = self.compressors.lock().pop();
        spare.unwrap_or_else(|| Compress::new(Compression::fast(), false))
    }

    /// Takes a compressor back.
    pub(super) fn compressed(&self, mut compress: Compress) {
        compress.reset();
        let mut spare = self.compressors.lock();
        if spare.len() < SPARE_MAX {
            spare.push(compress);
        }
    }

    /// What a deflated message is read with; goes back with [`Deflate::inflated`].
    pub(super) fn inflating(&self) -> Box<Inflating> {
        self.counts.inflating.inc();
        let spare = self.inflating.lock().pop();
        spare.unwrap_or_else(|| Box::new(Inflating::new()))
    }

    /// Takes it back, whatever is in it.
    pub(super) fn inflated(&self, mut inflating: Box<Inflating>) {
        self.counts.inflating.dec();
        inflating.clear();
        let mut spare = self.inflating.lock();
        if spare.len() < SPARE_MAX {
            spare.push(inflating);
        }
    }
}

/// Messages that were deflated, in each direction, and their sizes.
#[derive(Debug, Clone)]
pub(crate) struct DeflateCounts {
    received: Counted,
    sent: Counted,
    inflating: IntGauge,
}

#[derive(Debug, Clone)]
struct Counted {
    messages: IntCounter,
    plain: IntCounter,
    deflated: IntCounter,
}

impl DeflateCounts {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let messages = Opts::new(
            "weir_gateway_websocket_deflated_messages_total",
            "WebSocket messages that came or went deflated.",
        );
        let messages = IntCounterVec::new(messages, &["direction"])?;
        let bytes = Opts::new(
            "weir_gateway_websocket_deflated_bytes_total",
            "Their bytes, plain and as they were transferred.",
        );
        let bytes = IntCounterVec::new(bytes, &["direction", "size"])?;
        let inflating = IntGauge::new(
            "weir_gateway_websockets_inflating",
            "WebSockets in the middle of a deflated message.",
        )?;
        registry.register(Box::new(messages.clone()))?;
        registry.register(Box::new(bytes.clone()))?;
        registry.register(Box::new(inflating.clone()))?;
        let counted = |direction| Counted {
            messages: messages.with_label_values(&[direction]),
            plain: bytes.with_label_values(&[direction, "plain"]),
            deflated: bytes.with_label_values(&[direction, "deflated"]),
        };
        Ok(Self { received: counted("received"), sent: counted("sent"), inflating })
    }

    /// A message of `deflated` bytes became one of `plain` bytes.
    pub(super) fn received(&self, deflated: usize, plain: usize) {
        self.received.count(deflated, plain);
    }

    /// A message of `plain` bytes went out as one of `deflated` bytes.
    pub(super) fn sent(&self, plain: usize, deflated: usize) {
        self.sent.count(deflated, plain);
    }
}

impl Counted {
    fn count(&self, deflated: usize, plain: usize) {
        self.messages.inc();
        self.plain.inc_by(plain as u64);
        self.deflated.inc_by(deflated as u64);
    }
}
