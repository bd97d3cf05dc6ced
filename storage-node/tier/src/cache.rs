//! Blocks that are kept: in memory, and on disk those that were asked for again.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, PsyncIoEngineConfig, StorageFilter,
};

use crate::again::Again;
use crate::store::make_folder;

/// Smallest disk that the cache can use: a few of its files.
pub const DISK_BYTES_MIN: u64 = 64 << 20;
/// Bytes of one file of the cache on disk.
const DISK_FILE_BYTES: usize = 16 << 20;
/// How these files are called, with their numbers from 0 on behind it.
const DISK_FILE_PREFIX: &str = "foyer-storage-direct-fs-";

const _: () = assert!(DISK_BYTES_MIN >= 4 * DISK_FILE_BYTES as u64, "the engine needs a few files");

/// How much is kept of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory for blocks. Default 64 MiB.
    pub memory_bytes: usize,
    /// Disk for blocks, 0 for none, else at least [`DISK_BYTES_MIN`]. Default 2 GiB.
    pub disk_bytes: u64,
    /// Folder for them, made if missing; what is in it may be deleted while nothing runs.
    pub folder: PathBuf,
}

/// A cache that is empty but for what an earlier start left on disk.
///
/// # Errors
/// If its folder cannot be used.
pub(crate) async fn open(
    config: &CacheConfig,
    again: &Again,
) -> Result<HybridCache<u128, Bytes>, std::io::Error> {
    if config.disk_bytes > 0 {
        make_folder(&config.folder)?;
    }
    if let Err(error) = shrink(&config.folder, config.disk_bytes / DISK_FILE_BYTES as u64) {
        tracing::warn!(%error, "files of a larger cache stay on disk");
    }
    match blocks(config, again, true).await {
        // Not every file system can go past the page cache.
        Err(error) if config.disk_bytes > 0 => {
            tracing::info!(%error, "the cache on disk goes through the page cache: its file system can't go past it");
            blocks(config, again, false).await
        }
        built => built,
    }
}

/// Removes the files that a larger cache had, of which the first `kept` stay: nobody else would.
#[expect(clippy::disallowed_methods, reason = "what the cache's own library leaves in its folder")]
fn shrink(folder: &Path, kept: u64) -> std::io::Result<()> {
    let files = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let file = file?;
        let name = file.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(DISK_FILE_PREFIX)?.parse::<u64>().ok());
        if number.is_some_and(|number| number >= kept) {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Blocks in memory, and on disk what memory has no room for and was asked for again: past the page cache,
/// which would be a second copy of what was just found too old to be kept in memory, in memory that no limit
/// counts.
async fn blocks(
    config: &CacheConfig,
    again: &Again,
    is_direct: bool,
) -> Result<HybridCache<u128, Bytes>, std::io::Error> {
    let memory = HybridCacheBuilder::new()
        .with_name("weir-blocks")
        // What memory keeps needs no copy on disk: a stop loses it, and it is fetched again.
        .with_policy(HybridCachePolicy::WriteOnEviction)
        .with_flush_on_close(false)
        .memory(config.memory_bytes)
        .with_weighter(|_: &u128, block: &Bytes| block.len() + 64);
    let storage = memory.storage();
    let built = if config.disk_bytes == 0 {
        storage.build().await
    } else {
        let disk = usize::try_from(config.disk_bytes).unwrap_or(usize::MAX);
        let device = FsDeviceBuilder::new(&config.folder).with_capacity(disk).with_direct(is_direct).build();
        let device = device.map_err(std::io::Error::other)?;
        let engine = BlockEngineConfig::new(device)
            .with_block_size(DISK_FILE_BYTES)
            .with_admission_filter(StorageFilter::new().with_condition(again.clone()));
        storage.with_io_engine_config(PsyncIoEngineConfig::new()).with_engine_config(engine).build().await
    };
    built.map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::Offset;

    use super::*;

    const BLOCK_BYTES: usize = 256 << 10;

    fn block(key: u128) -> Bytes {
        Bytes::from(vec![u8::try_from(key).unwrap(); BLOCK_BYTES])
    }

    #[tokio::test]
    async fn what_was_asked_for_again_is_on_disk_past_the_page_cache_or_through_it() {
        for is_direct in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("cache");
            let config = CacheConfig { memory_bytes: 4 * BLOCK_BYTES, disk_bytes: DISK_BYTES_MIN, folder };
            let again = Again::default();
            let cache = match blocks(&config, &again, is_direct).await {
                // Where the file system cannot, `Cold::open` does without.
                Err(error) if is_direct => {
                    assert!(error.to_string().contains("Invalid argument"), "{error}");
                    continue;
                }
                built => built.unwrap(),
            };
            for key in 0..40 {
                (0..if key < 32 { 2 } else { 1 }).for_each(|_| again.asked(key, &(Offset(0)..Offset(9))));
                cache.insert(key, block(key));
            }
            cache.storage().wait().await;
            for key in 0..32 {
                let found = cache.get(&key).await.unwrap();
                assert_eq!(found.expect("in memory or on disk").value(), &block(key), "{key}");
            }
            assert!(cache.get(&32).await.unwrap().is_none(), "asked for once, and no longer in memory");
        }
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "what lies in the folder")]
    async fn a_smaller_cache_leaves_no_files_of_a_larger_one_and_nobody_elses_are_touched() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = format!("{DISK_FILE_PREFIX}99999999.kept");
        std::fs::write(dir.path().join(&foreign), b"").unwrap();
        let files = DISK_BYTES_MIN / DISK_FILE_BYTES as u64;
        for (disk_bytes, expected) in [
            (2 * DISK_BYTES_MIN, 2 * files),
            (DISK_BYTES_MIN, files),
            (2 * DISK_BYTES_MIN, 2 * files),
            (0, 0),
        ] {
            let config = CacheConfig { memory_bytes: BLOCK_BYTES, disk_bytes, folder: dir.path().to_owned() };
            drop(open(&config, &Again::default()).await.unwrap());
            let names = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
            let (kept, own): (Vec<_>, Vec<_>) = names.partition(|name| name.to_str() == Some(&foreign));
            assert_eq!((own.len() as u64, kept.len()), (expected, 1), "{disk_bytes} bytes");
        }
    }
}
