//! What must hold for any bytes taken for a pack: nothing panics, whatever they say is bounded by their
//! length, and a pack that is accepted whole gives the same batches after it was written again.

use bytes::Bytes;
use weir_protocol::batch::Batch;
use weir_protocol::checksum::crc32c;
use weir_tier::pack::{
    BlockCodec, Footer, PackError, PackWriter, PackedPartition, PieceMemory, TRAILER_BYTES, Trailer, batches,
    read_block,
};

/// Packs: as they come, and with both checksums of the end made right so that rows and blocks are reached.
pub fn pack(data: &[u8]) {
    whole(&Bytes::copy_from_slice(data));
    let Some(at) = data.len().checked_sub(TRAILER_BYTES) else { return };
    let mut repaired = data.to_vec();
    let footer_pos = u64::from_le_bytes(repaired[at + 32..at + 40].try_into().expect("eight bytes"));
    let Some(begins) = usize::try_from(footer_pos).ok().filter(|begins| *begins <= at) else { return };
    let crc = crc32c(&repaired[begins..at]);
    repaired[at + 56..at + 60].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&repaired[at..at + 60]);
    repaired[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
    whole(&repaired.into());
}

fn whole(pack: &Bytes) {
    let Ok(trailer) = Trailer::decode(pack, pack.len() as u64) else { return };
    let Ok(rows) = read(pack, &trailer) else { return };
    let mut writer = PackWriter::new(trailer.identity, BlockCodec::Raw, &PieceMemory::default());
    for (partition, batch) in &rows {
        let header = batch.header();
        if writer.push(*partition, header.base_offset, header.base_ts, batch).is_err() {
            // Batches of one block need not be in order of time to be read; written anew they must.
            return;
        }
    }
    let mut again = writer.take_ready();
    again.extend(writer.finish().0);
    let again = Bytes::from(again.concat());
    let trailer = Trailer::decode(&again, again.len() as u64).expect("written just now");
    assert_eq!(read(&again, &trailer).expect("written just now"), rows);
}

fn read(pack: &Bytes, trailer: &Trailer) -> Result<Vec<(PackedPartition, Batch)>, PackError> {
    let footer = Footer::decode(pack, trailer)?;
    let mut all = Vec::new();
    for partition in footer.partitions() {
        assert_eq!(footer.partition(partition.partition), Some(partition));
        assert_eq!(footer.block_at(partition, partition.start), Some(0));
        for row in footer.blocks(partition) {
            let range = row.range();
            let at = |at: u64| usize::try_from(at).expect("the footer was checked");
            let raw = read_block(&pack.slice(at(range.start)..at(range.end)), row, partition.partition)?;
            for batch in batches(raw, row, partition.partition) {
                all.push((partition.partition, batch?));
            }
        }
    }
    Ok(all)
}
