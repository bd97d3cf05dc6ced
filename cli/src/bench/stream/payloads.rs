//! What messages carry: an identity, and noise that compresses neither in one message nor over many.

use bytes::Bytes;

use crate::bench::identity::Identity;
use crate::bench::noise::noise;

/// Bytes before noise comes again: more than any batch, or block of a pack, holds. A compressor must not find
/// a message in another.
const NOISE_BYTES: usize = 4 << 20;

/// Noise that all writers of a process share.
#[derive(Debug, Clone)]
pub(super) struct Noise(Bytes);

impl Noise {
    /// For messages of so many bytes.
    pub(super) fn new(payload: usize) -> Self {
        Self(noise(NOISE_BYTES + payload))
    }
}

/// Payloads of one writer, one after the other.
pub(super) struct Payloads {
    noise: Noise,
    at: usize,
    payload: Vec<u8>,
}

impl Payloads {
    /// Of so many bytes each. Writers begin at different places.
    pub(super) fn new(noise: Noise, bytes: usize, writer: u32) -> Self {
        // 2^32 divided by the golden ratio: the first so many multiples lie as far apart as so many places can.
        let part = u64::from(writer.wrapping_mul(0x9e37_79b9));
        let at = usize::try_from((part * NOISE_BYTES as u64) >> 32).expect("less than the noise");
        Self { noise, at, payload: vec![0; bytes] }
    }

    /// The next payload, of this message.
    pub(super) fn next(&mut self, identity: Identity) -> &[u8] {
        let bytes = self.payload.len();
        self.payload.copy_from_slice(&self.noise.0[self.at..self.at + bytes]);
        self.at = (self.at + bytes) % NOISE_BYTES;
        identity.stamp(&mut self.payload);
        &self.payload
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};

    use super::*;

    #[test]
    fn many_messages_together_do_not_compress_either() {
        let mut writers: Vec<Payloads> = {
            let noise = Noise::new(1_000);
            (0..64).map(|writer| Payloads::new(noise.clone(), 1_000, writer)).collect()
        };
        let (headers, mut builder) = (Headers::default(), BatchBuilder::anonymous());
        for seq in 0..500 {
            let payload = writers[seq as usize % 64].next(Identity { writer: 1, seq, due_ns: seq });
            assert_eq!(Identity::read(payload).map(|identity| identity.seq), Some(seq));
            builder.push(RecordParts { key: None, headers: &headers, value: payload }).unwrap();
        }
        let batch = builder.build(Compression::Zstd).unwrap();
        assert!(batch.bytes().len() > 480_000, "{} bytes", batch.bytes().len());
    }
}
