//! What writes to a folder leave there when a crash interrupts them.
//!
//! The library writes an object to a file beside it, `<name>#<number>`, and gives it its name once it is whole.
//! Listings do not show such files.

use std::ffi::OsStr;
use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::StoreError;
use super::objects::Store;

impl Store {
    /// Deletes what interrupted writes left below `folder` of a store that is a folder, if nobody has written to it
    /// since `before_ms`, milliseconds since the epoch. How many files that were. What other stores keep of interrupted
    /// writes only they see.
    ///
    /// Should such a write go on after all, it fails: it has no file any more to make an object of.
    ///
    /// # Errors
    /// [`StoreError`], naming the folder that could not be looked through; some may be deleted.
    pub async fn delete_staged(&self, folder: &str, before_ms: u64) -> Result<usize, StoreError> {
        let Some(root) = &self.root else { return Ok(0) };
        let before = UNIX_EPOCH + Duration::from_millis(before_ms);
        let (mut folders, mut deleted) = (vec![root.join(folder)], 0);
        // One after the other: each has the store's patience, however many there are, and a stop waits for one.
        while let Some(folder) = folders.pop() {
            let name = folder.display().to_string();
            let (below, files) = self.in_time(&name, delete_apart(folder, before)).await?;
            folders.extend(below);
            deleted += files;
        }
        Ok(deleted)
    }
}

/// What [`delete_in`] says, from a thread that may wait for a disk.
async fn delete_apart(folder: PathBuf, before: SystemTime) -> object_store::Result<(Vec<PathBuf>, usize)> {
    let looked = tokio::task::spawn_blocking(move || delete_in(&folder, before)).await;
    let looked = looked.unwrap_or_else(|ended| Err(io::Error::other(ended)));
    looked.map_err(|error| object_store::Error::Generic { store: "folder", source: Box::new(error) })
}

/// The folders in this one, and how many of its files were deleted.
#[expect(clippy::disallowed_methods, reason = "what the store's own library leaves in its folder")]
fn delete_in(folder: &Path, before: SystemTime) -> io::Result<(Vec<PathBuf>, usize)> {
    let (mut below, mut deleted) = (Vec::new(), 0);
    let Some(entries) = unless_gone(std::fs::read_dir(folder))? else { return Ok((below, 0)) };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below.push(entry.path());
        } else if kind.is_file() && is_staged(&entry.file_name()) && is_older(&entry, before)? {
            deleted += usize::from(unless_gone(std::fs::remove_file(entry.path()))?.is_some());
        }
    }
    Ok((below, deleted))
}

/// The file that the library writes first for the object at this path, if nobody wrote one of that name before.
pub(super) fn staged(object: PathBuf) -> PathBuf {
    let mut name = object.into_os_string();
    name.push("#1");
    name.into()
}

/// As the library names a file that is no object yet.
fn is_staged(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.split_once('#')).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_older(entry: &DirEntry, before: SystemTime) -> io::Result<bool> {
    let written = unless_gone(entry.metadata().and_then(|meta| meta.modified()))?;
    Ok(written.is_some_and(|written| written < before))
}

/// A write that ends takes its file away.
fn unless_gone<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use super::*;
    use crate::store::StoreConfig;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn file(path: &Path, written_ms: u64) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(written_ms)).unwrap();
    }

    #[tokio::test]
    async fn only_old_files_that_are_no_objects_are_deleted_and_only_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::new(format!("file://{}", dir.path().display()))).unwrap();
        assert_eq!(store.delete_staged("c1", NOW_MS).await.unwrap(), 0, "there is no such folder");
        let left = ["c1/data/0a/1/x.pack#1", "c1/data/0a/1/x.pack#12", "c1/manifests/m#3"];
        let stays = ["c1/data/0a/1/x.pack", "c1/data/0a/1/y#", "c1/data/0a/1/y#1a", "c2/data/0a/1/x.pack#1"];
        for name in left.iter().chain(&stays) {
            file(&dir.path().join(name), NOW_MS - 1);
        }
        let young = "c1/data/0a/1/z.pack#1";
        file(&dir.path().join(young), NOW_MS);
        assert_eq!(store.delete_staged("c1", NOW_MS).await.unwrap(), left.len());
        let is_there = |name: &&str| dir.path().join(name).exists();
        assert_eq!(left.iter().filter(|name| is_there(name)).count(), 0);
        assert!(stays.iter().all(is_there) && is_there(&young));
        file(&dir.path().join("c3"), NOW_MS);
        let wrong = store.delete_staged("c3", NOW_MS).await.unwrap_err();
        assert!(wrong.object().ends_with("/c3"), "{wrong}");
    }
}
