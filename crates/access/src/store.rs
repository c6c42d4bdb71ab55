//! The file that holds users, ACLs and quotas: `access.json` in the data folder's `access/`.
//!
//! A JSON object `{"version": 1, "users": {…}, "password_hashes": {…}, "acls": […], "quotas": […],
//! "tokens": […], "roles": {…}, "tenants": {…}, "removed_tenants": {…}, "collections": […]}`, readable by its owner only;
//! `password_hashes` and all from `tokens` on are left out while there are none. It is written whole into `access.json.new`, synced and
//! renamed over the old one, and the folder is synced: whatever moment the machine stops at, one of the two is there whole. A left
//! over `.new` file is overwritten by the next change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::TenantId;
use serde::{Deserialize, Serialize};

use crate::limits::FILE_BYTES_MAX;
use crate::tenant::RemovedTenants;
use crate::{
    AccessError, Acl, Collection, Credential, Grant, PasswordHash, Principal, Quota, QuotaEntity,
    Tenant, Token,
};

/// What the file holds.
#[derive(Clone, Default)]
pub(crate) struct Stored {
    pub(crate) users: BTreeMap<String, Vec<Credential>>,
    /// By users' names; each of them is among `users`.
    pub(crate) password_hashes: BTreeMap<String, PasswordHash>,
    pub(crate) acls: BTreeSet<Acl>,
    pub(crate) quotas: BTreeMap<QuotaEntity, Quota>,
    /// By their ids.
    pub(crate) tokens: BTreeMap<String, Token>,
    pub(crate) grants: BTreeMap<Principal, BTreeSet<Grant>>,
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    pub(crate) removed: RemovedTenants,
    /// Every collection that any tenant was ever to be in: what lies there stays several tenants'.
    pub(crate) collections: BTreeSet<Collection>,
}

/// Reads the file of `folder`; no file holds nothing.
pub(crate) fn read(folder: &Path) -> Result<Stored, AccessError> {
    let path = folder.join(NAME);
    let file_error = |source| AccessError::File {
        path: path.clone(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(file_error)?;
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(file_error(error)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(file_error)?;
    understand(&bytes).map_err(|reason| AccessError::Unreadable {
        path: path.clone(),
        reason,
    })
}

/// Replaces the file of `folder`; durable on return.
pub(crate) fn write(folder: &Path, stored: &Stored) -> Result<(), AccessError> {
    let path = folder.join(NAME);
    replace(folder, &path, stored).map_err(|source| AccessError::File { path, source })
}

/// Reads the text of a file.
pub(crate) fn understand(bytes: &[u8]) -> Result<Stored, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    let Version { version } =
        serde_json::from_slice(bytes).map_err(|error| format!("it is damaged: {error}"))?;
    if version != VERSION {
        return Err(format!(
            "it is of version {version}, and this program knows version {VERSION}"
        ));
    }
    let mut whole: Whole =
        serde_json::from_slice(bytes).map_err(|error| format!("it is damaged: {error}"))?;
    for name in whole.password_hashes.keys() {
        whole.users.entry(name.clone()).or_default();
    }
    Ok(Stored {
        users: whole.users,
        password_hashes: whole.password_hashes,
        acls: whole.acls.into_iter().collect(),
        quotas: whole
            .quotas
            .into_iter()
            .map(|of| (of.entity, of.quota))
            .collect(),
        tokens: whole
            .tokens
            .into_iter()
            .map(|token| (token.id.clone(), token))
            .collect(),
        grants: whole.roles,
        tenants: whole.tenants,
        removed: whole.removed_tenants,
        collections: whole.collections,
    })
}

/// The text of a file.
pub(crate) fn text(stored: &Stored) -> io::Result<Vec<u8>> {
    let whole = Whole {
        version: VERSION,
        users: stored.users.clone(),
        password_hashes: stored.password_hashes.clone(),
        acls: stored.acls.iter().cloned().collect(),
        quotas: stored
            .quotas
            .iter()
            .map(|(entity, quota)| OfEntity {
                entity: entity.clone(),
                quota: quota.clone(),
            })
            .collect(),
        tokens: stored.tokens.values().cloned().collect(),
        roles: stored.grants.clone(),
        tenants: stored.tenants.clone(),
        removed_tenants: stored.removed.clone(),
        collections: stored.collections.clone(),
    };
    Ok(serde_json::to_vec_pretty(&whole)?)
}

fn replace(folder: &Path, path: &PathBuf, stored: &Stored) -> io::Result<()> {
    let text = text(stored)?;
    let temporary = folder.join(format!("{NAME}.new"));
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    version: u32,
    users: BTreeMap<String, Vec<Credential>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    password_hashes: BTreeMap<String, PasswordHash>,
    acls: Vec<Acl>,
    quotas: Vec<OfEntity>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<Token>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    roles: BTreeMap<Principal, BTreeSet<Grant>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<TenantId, Tenant>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    removed_tenants: RemovedTenants,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    collections: BTreeSet<Collection>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfEntity {
    entity: QuotaEntity,
    quota: Quota,
}

const NAME: &str = "access.json";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// As the first version wrote it; must be read for ever.
    const OF_VERSION_1: &str = r#"{
        "version": 1,
        "users": {"ann": [{"hash": "SCRAM-SHA-256", "iterations": 4096, "salt": "c2FsdA==",
                           "stored_key": "a2V5", "server_key": "a2V5"}]},
        "acls": [{"resource_type": "TRANSACTIONAL_ID", "resource_name": "x",
                  "pattern_type": "PREFIXED", "principal": "User:ann", "host": "*",
                  "operation": "DESCRIBE_CONFIGS", "permission": "DENY"}],
        "quotas": [{"entity": {"user": null, "client_id": "c"}, "quota": {"producer_byte_rate": 1.5}}]
    }"#;

    #[test]
    fn the_first_version_is_read() {
        let stored = understand(OF_VERSION_1.as_bytes()).unwrap();
        assert_eq!(stored.users["ann"][0].iterations, 4_096);
        assert_eq!(stored.acls.len(), 1);
        let (entity, quota) = stored.quotas.first_key_value().unwrap();
        assert_eq!(entity.user, Some(None));
        assert_eq!(entity.client_id, Some(Some("c".to_owned())));
        assert_eq!(
            (entity.ip.clone(), quota["producer_byte_rate"]),
            (None, 1.5)
        );
    }

    #[test]
    fn what_is_not_understood_opens_nothing() {
        let newer = OF_VERSION_1.replace("\"version\": 1", "\"version\": 2");
        let unknown = OF_VERSION_1.replace("\"acls\"", "\"rules\"");
        for text in ["", "{", &newer, &unknown, &OF_VERSION_1[..200]] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(NAME), text).unwrap();
            let read = read(dir.path());
            assert!(
                matches!(read, Err(AccessError::Unreadable { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("access");
        read(&folder).unwrap();
        write(&folder, &Stored::default()).unwrap();
        for (path, mode) in [(folder.clone(), 0o700), (folder.join(NAME), 0o600)] {
            let permissions = fs::metadata(&path).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, mode, "{}", path.display());
        }
    }

    #[test]
    fn a_torn_new_file_harms_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let old = understand(OF_VERSION_1.as_bytes()).unwrap();
        write(dir.path(), &old).unwrap();
        fs::write(dir.path().join("access.json.new"), "{\"vers").unwrap();
        assert_eq!(read(dir.path()).unwrap().users.len(), 1);
        write(dir.path(), &Stored::default()).unwrap();
        assert_eq!(read(dir.path()).unwrap().users.len(), 0);
    }
}
