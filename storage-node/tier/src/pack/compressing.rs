//! Compresses the blocks of a pack, as far as that is worth it.

use super::block::BlockCodec;

/// A compressed block that is not smaller by one part in this many is stored as it is: reading it is free then.
const WORTH_IT: usize = 16;
/// zstd's fastest ordinary level: packs are made beside publishing, on the same cores.
const ZSTD_LEVEL: i32 = 1;
/// Most blocks in a row that are stored without a try, because those before them were not worth it: 4 MiB, more if
/// batches are large.
const UNTRIED_MAX: u32 = 8;

/// Remembers whether the blocks of a partition were worth it: messages that are compressed or encrypted
/// already never are, and finding that out takes as long as compressing.
pub(super) struct Compressing {
    codec: BlockCodec,
    /// Made with the first block, used for all: a new one is more memory than a block.
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// What the last block that was tried became; used again for the next, whose memory would be new otherwise.
    packed: Vec<u8>,
    /// Blocks that are stored without a try after the last one that was not worth it.
    pause: u32,
    /// Of these, how many are left.
    untried: u32,
}

impl Compressing {
    pub(super) fn new(codec: BlockCodec) -> Self {
        Self { codec, zstd: None, packed: Vec::new(), pause: 0, untried: 0 }
    }

    /// The next blocks are of other messages.
    pub(super) fn begin_partition(&mut self) {
        (self.pause, self.untried) = (0, 0);
    }

    /// How a block of `raw` is stored, and the bytes that are: `raw` itself if compressing it is not worth
    /// it, or likely not to be.
    pub(super) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (BlockCodec, &'a [u8]) {
        if let Some(left) = self.untried.checked_sub(1) {
            self.untried = left;
            return (BlockCodec::Raw, raw);
        }
        let len = match self.codec {
            BlockCodec::Raw => None,
            BlockCodec::Lz4 => {
                self.packed.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                lz4_flex::block::compress_into(raw, &mut self.packed).ok()
            }
            // Fails only for want of memory, and the block is as good as it is.
            BlockCodec::Zstd => self.zstd(raw),
        };
        let len = len.filter(|len| *len < raw.len() - raw.len() / WORTH_IT);
        self.pause = if len.is_some() { 0 } else { (2 * self.pause).clamp(1, UNTRIED_MAX) };
        self.untried = self.pause;
        len.map_or((BlockCodec::Raw, raw), |len| (self.codec, &self.packed[..len]))
    }

    /// Compresses to `packed`; how many bytes it became.
    fn zstd(&mut self, raw: &[u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.zstd.as_mut()?.compress_to_buffer(raw, &mut self.packed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 8 << 10;

    fn noise() -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..BLOCK).map(next).collect()
    }

    /// How blocks were stored, one after the other: `z` compressed, `-` as they are.
    fn stored(compressing: &mut Compressing, raw: &[u8], blocks: usize) -> String {
        let mut store = |_| match compressing.compress(raw).0 {
            BlockCodec::Raw => '-',
            BlockCodec::Lz4 | BlockCodec::Zstd => 'z',
        };
        (0..blocks).map(&mut store).collect()
    }

    #[test]
    fn blocks_behind_some_that_were_not_worth_it_are_tried_less_and_less_often_but_again_and_again() {
        for codec in [BlockCodec::Lz4, BlockCodec::Zstd] {
            let (noise, text) = (noise(), vec![b'a'; BLOCK]);
            let mut compressing = Compressing::new(codec);
            assert_eq!(stored(&mut compressing, &text, 3), "zzz");
            assert_eq!(stored(&mut compressing, &noise, 1), "-");
            // One is not tried, then two, four, eight and never more.
            assert_eq!(stored(&mut compressing, &text, 3), "-zz", "{codec:?}");
            assert_eq!(stored(&mut compressing, &noise, 1 + 1 + 1 + 2 + 1 + 4 + 1), "-".repeat(11));
            assert_eq!(stored(&mut compressing, &text, 9), "--------z", "{codec:?}");
            // The twentieth is tried, and eight behind it are not.
            assert_eq!(stored(&mut compressing, &noise, 1 + 1 + 1 + 2 + 1 + 4 + 1 + 8 + 1), "-".repeat(20));
            assert_eq!(stored(&mut compressing, &text, 9), "--------z", "{codec:?}");
            assert_eq!(stored(&mut compressing, &noise, 20), "-".repeat(20));
            compressing.begin_partition();
            assert_eq!(stored(&mut compressing, &text, 1), "z", "other messages");
            compressing.begin_partition();
            assert_eq!(
                stored(&mut compressing, &noise, 1) + &stored(&mut compressing, &text, 2),
                "--z",
                "from the start"
            );
        }
        assert_eq!(stored(&mut Compressing::new(BlockCodec::Raw), &[b'a'; BLOCK], 3), "---");
    }

    #[test]
    fn what_is_stored_is_what_was_given() {
        for raw in [vec![], vec![b'a'; BLOCK], noise(), vec![b'b'; 3], vec![b'c'; 2 * BLOCK]] {
            for codec in [BlockCodec::Lz4, BlockCodec::Zstd] {
                let mut compressing = Compressing::new(codec);
                compressing.compress(&[b'd'; 3 * BLOCK]);
                let read = match compressing.compress(&raw) {
                    (BlockCodec::Lz4, stored) => lz4_flex::block::decompress(stored, raw.len()).unwrap(),
                    (BlockCodec::Zstd, stored) => zstd::bulk::decompress(stored, raw.len()).unwrap(),
                    (BlockCodec::Raw, stored) => stored.to_vec(),
                };
                assert_eq!(read, raw);
            }
        }
    }
}
