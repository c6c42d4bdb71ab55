//! Assets: files that the control plane gives beside the flow, in a folder of their own.
//!
//! # Invariants
//!
//! - A file has its name only when it is whole, on the disk, and of the digest that was told.
//! - The digest of a set is kept, and echoed in heartbeats, only when the whole set is there.
//! - Names stay in the folder: relative, without `..`.
//!
//! Leaves out extensions: code does not come this way.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::AgentError;
use crate::control::{Link, control_error};
use crate::limits::{ASSET_BYTES_MAX, ASSETS_MAX};
use crate::parameters::ASSET_LIST;
use crate::supervisor::Updated;
use crate::whole_file;

/// The assets' folder and what the agent knows of it.
pub(crate) struct Assets {
    dir: PathBuf,
    book: Mutex<Book>,
}

/// What is to be there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Wanted {
    global_hash: GlobalHash,
    resource_list: Vec<Item>,
}

/// One asset of a set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Item {
    resource_id: String,
    resource_name: String,
    resource_type: String,
    resource_path: Option<String>,
    digest: String,
    hash_type: String,
    url: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct GlobalHash {
    digest: String,
}

/// One asset to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset<'a> {
    /// Its name in the folder.
    pub(crate) file: &'a str,
    pub(crate) url: &'a str,
    /// Digest in hexadecimal and its kind, where they were told.
    pub(crate) digest: Option<(&'a str, &'a str)>,
}

/// What became of a set.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    /// Files that came or went.
    pub(crate) changed: usize,
    /// What could not be had, and why.
    pub(crate) failed: Vec<String>,
}

/// What `.state` in the folder holds; flows look up their assets there.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Book {
    /// The set that is whole here.
    digest: Option<String>,
    /// Assets of the last set by id.
    #[serde(default, rename = "assets")]
    items: BTreeMap<String, Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Its name in the folder.
    #[serde(rename = "path")]
    file: String,
    #[serde(default)]
    digest: String,
}

impl Assets {
    /// The folder as it was left; one that cannot be understood counts as empty, and is brought
    /// again.
    pub(crate) fn open(dir: PathBuf) -> Assets {
        let kept = fs::read(dir.join(ASSET_LIST)).ok();
        let book = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Assets {
            dir,
            book: Mutex::new(book.unwrap_or_default()),
        }
    }

    /// The digest of the set that is whole here.
    pub(crate) fn digest(&self) -> Option<String> {
        self.book.lock().digest.clone()
    }

    /// Fetches one asset; it stays as it is when it is there and `is_forced` is not set.
    pub(crate) async fn fetch(
        &self,
        link: &Link,
        asset: Asset<'_>,
        is_forced: bool,
        wait: Duration,
    ) -> Result<Updated, AgentError> {
        let path = self.place(asset.file)?;
        if path.exists() && !is_forced {
            return Ok(Updated::Same);
        }
        download(link, asset, &path, wait).await?;
        Ok(Updated::Applied)
    }

    /// Makes the folder hold this set: fetches what is new or other, removes what it held before
    /// and shall not any more. Files that no set brought stay.
    pub(crate) async fn sync(
        &self,
        link: &Link,
        wanted: &Wanted,
        wait: Duration,
    ) -> Result<Synced, AgentError> {
        let list = &wanted.resource_list;
        if list.len() > ASSETS_MAX {
            let reason = format!("{} assets are more than {ASSETS_MAX}", list.len());
            return Err(AgentError::Refused(reason));
        }
        let mut synced = Synced::default();
        let before = self.book.lock().items.clone();
        let mut after = BTreeMap::new();
        for item in list {
            let kept = Kept {
                file: item.file(),
                digest: item.digest.clone(),
            };
            let is_there = before.get(&item.resource_id) == Some(&kept)
                && self.place(&kept.file).is_ok_and(|path| path.exists());
            if !is_there {
                match self.bring(link, item, &kept, wait).await {
                    Ok(()) => synced.changed += 1,
                    Err(error) => {
                        let why = base::report(&error);
                        synced.failed.push(format!("{}: {why}", item.resource_name));
                        // What is there of it from before still counts.
                        if let Some(old) = before.get(&item.resource_id) {
                            after.insert(item.resource_id.clone(), old.clone());
                        }
                        continue;
                    }
                }
            }
            after.insert(item.resource_id.clone(), kept);
        }
        synced.changed += self.remove_others(&before, &after);
        let is_whole = synced.failed.is_empty();
        let digest = is_whole.then(|| wanted.global_hash.digest.clone());
        let book = Book {
            digest: digest.filter(|digest| !digest.is_empty()),
            items: after,
        };
        self.keep(book)?;
        Ok(synced)
    }

    async fn bring(
        &self,
        link: &Link,
        item: &Item,
        kept: &Kept,
        wait: Duration,
    ) -> Result<(), AgentError> {
        if !item.resource_type.is_empty() && !item.resource_type.eq_ignore_ascii_case("ASSET") {
            let reason = format!("{} resources are not supported", item.resource_type);
            return Err(AgentError::Refused(reason));
        }
        let path = self.place(&kept.file)?;
        let asset = Asset {
            file: &kept.file,
            url: &item.url,
            digest: (!item.digest.is_empty())
                .then_some((item.digest.as_str(), item.hash_type.as_str())),
        };
        download(link, asset, &path, wait).await
    }

    fn remove_others(
        &self,
        before: &BTreeMap<String, Kept>,
        after: &BTreeMap<String, Kept>,
    ) -> usize {
        let stays = |file: &str| after.values().any(|kept| kept.file == file);
        let goes = before.values().filter(|kept| !stays(&kept.file));
        let removed = goes.filter(|kept| {
            let path = self.place(&kept.file);
            path.is_ok_and(|path| fs::remove_file(path).is_ok())
        });
        removed.count()
    }

    /// Where a file of this name lies.
    fn place(&self, file: &str) -> Result<PathBuf, AgentError> {
        let path = Path::new(file);
        let is_inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
            && path.file_name().is_some()
            && file != ASSET_LIST
            && !file.contains('\0');
        if !is_inside {
            return Err(AgentError::Refused(format!(
                "'{file}' is no name in the assets' folder: it must be relative and without .."
            )));
        }
        Ok(self.dir.join(path))
    }

    fn keep(&self, book: Book) -> Result<(), AgentError> {
        let path = self.dir.join(ASSET_LIST);
        let written = fs::create_dir_all(&self.dir)
            .and_then(|()| Ok(serde_json::to_vec_pretty(&book)?))
            .and_then(|bytes| whole_file::write(&path, &bytes));
        written.map_err(|source| AgentError::File {
            action: "write",
            path,
            source,
        })?;
        *self.book.lock() = book;
        Ok(())
    }
}

impl Item {
    fn file(&self) -> String {
        match self
            .resource_path
            .as_deref()
            .filter(|path| !path.is_empty())
        {
            Some(path) => format!("{}/{}", path.trim_end_matches('/'), self.resource_name),
            None => self.resource_name.clone(),
        }
    }
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest while its bytes come.
enum Sum {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Sum {
    fn of(kind: &str) -> Result<Sum, AgentError> {
        let plain: String = kind.chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.to_ascii_uppercase().as_str() {
            "SHA256" => Ok(Sum::Sha256(Sha256::new())),
            "SHA512" => Ok(Sum::Sha512(Sha512::new())),
            _ => Err(AgentError::Refused(format!(
                "digests of kind '{kind}' are not supported: SHA-256 or SHA-512 are"
            ))),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Sha256(sum) => sum.update(bytes),
            Sum::Sha512(sum) => sum.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Sum::Sha256(sum) => hex(&sum.finalize()),
            Sum::Sha512(sum) => hex(&sum.finalize()),
        }
    }
}

/// Fetches a file whole or not at all.
async fn download(
    link: &Link,
    asset: Asset<'_>,
    path: &Path,
    wait: Duration,
) -> Result<(), AgentError> {
    let failed = |source| AgentError::File {
        action: "write",
        path: path.to_owned(),
        source,
    };
    let mut sum = asset.digest.map(|(_, kind)| Sum::of(kind)).transpose()?;
    let mut answer = link.file(&link.address(asset.url), wait).await?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let partial = whole_file::partial(path);
    let mut file = whole_file::create(&partial).map_err(failed)?;
    let mut bytes = 0u64;
    let outcome = loop {
        let chunk = match answer.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break Ok(()),
            Err(error) => break Err(control_error("fetch an asset", error)),
        };
        bytes += chunk.len() as u64;
        if bytes > ASSET_BYTES_MAX {
            let reason = format!("it is longer than {ASSET_BYTES_MAX} bytes");
            break Err(control_error("fetch an asset", reason));
        }
        if let Some(sum) = &mut sum {
            sum.update(&chunk);
        }
        if let Err(error) = file.write_all(&chunk) {
            break Err(failed(error));
        }
    };
    let found = sum.map(Sum::finish);
    let outcome = outcome.and_then(|()| match (found, asset.digest) {
        (Some(found), Some((told, _))) if !found.eq_ignore_ascii_case(told) => Err(control_error(
            "fetch an asset",
            "its digest is not the one that was told",
        )),
        _ => Ok(()),
    });
    if let Err(error) = outcome {
        drop(file);
        // A part that stays is overwritten by the next try.
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    let (partial, path) = (partial.clone(), path.to_owned());
    let published = {
        let path = path.clone();
        tokio::task::spawn_blocking(move || whole_file::publish(file, &partial, &path)).await
    };
    published
        .map_err(|error| control_error("write an asset", error))?
        .map_err(|source| AgentError::File {
            action: "write",
            path,
            source,
        })
}
