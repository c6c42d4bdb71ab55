//! The users, their tokens and ACLs of one data folder: asked from memory, changed on the disk first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::credential::random_bytes;
use crate::limits::{
    ACLS_MAX, GRANTED_MAX, GRANTS_OF_ONE_MAX, NAME_BYTES_MAX, QUOTAS_MAX, TOKENS_MAX, USERS_MAX,
};
use crate::shared::{ATTEMPTS_MAX, Sharing, busy};
use crate::store::{self, Stored};
use crate::{
    AccessError, Acl, AclFilter, Credential, Grant, PasswordHash, Principal, Quota, QuotaEntity,
    ScramHash, Snapshot, TenantAccounts, Token,
};

/// Users, their API tokens, ACLs and quotas.
///
/// Questions go to a [`Snapshot`], which never changes. A change is durable when its call returns,
/// and seen by every snapshot taken after that.
pub struct Access {
    pub(crate) path: PathBuf,
    now: RwLock<Arc<Snapshot>>,
    /// Counts the changes since the folder was opened.
    revision: AtomicU64,
    /// Told after each change.
    changed: Notify,
    /// Held by a change from reading to publishing, so that no two are mixed; where users are
    /// shared, the place of theirs.
    pub(crate) changing: Mutex<Option<Sharing>>,
    secret: Secret,
    /// What each tenant uses in this process.
    pub(crate) accounts: TenantAccounts,
    /// Whether any tenant is kept, or was.
    pub(crate) has_tenants: AtomicBool,
    /// See [`Access::close_to_members`].
    closed: Mutex<Arc<BTreeSet<String>>>,
}

/// What makes the salts of users who do not exist; of this process only.
pub struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new() -> Result<Self, AccessError> {
        random_bytes().map(Secret)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Access {
    /// Opens what lies in `folder`, which is made when it is not there.
    ///
    /// # Errors
    /// [`AccessError::File`] when the disk refuses, [`AccessError::Unreadable`] when the file is
    /// damaged or of a newer version: nothing is guessed, as a guess could let somebody in.
    pub fn open(folder: &Path) -> Result<Self, AccessError> {
        let stored = store::read(folder)?;
        let snapshot = stored.into_snapshot();
        let has_tenants = AtomicBool::new(snapshot.has_tenants());
        Ok(Access {
            path: folder.to_owned(),
            now: RwLock::new(Arc::new(snapshot)),
            revision: AtomicU64::new(0),
            changed: Notify::new(),
            changing: Mutex::new(None),
            secret: Secret::new()?,
            accounts: TenantAccounts::default(),
            has_tenants,
            closed: Mutex::default(),
        })
    }

    /// Keeps topics, by their names on the wire, from whoever belongs to a tenant: a part of the process
    /// keeps in them what is all tenants', and shows each its own itself. They are not kept on the disk.
    pub fn close_to_members(&self, topics: impl IntoIterator<Item = String>) {
        // No change is to be published between.
        let _changing = self.changing.lock();
        *self.closed.lock() = Arc::new(topics.into_iter().collect());
        self.publish(Stored::of_snapshot(&self.snapshot()));
    }

    /// Everything as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.read())
    }

    /// A number that is another one after each change.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Waits until it was another one than `seen`, see [`Access::revision`]; answers which it is.
    pub async fn changed_since(&self, seen: u64) -> u64 {
        loop {
            let told = self.changed.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            let now = self.revision();
            if now != seen {
                return now;
            }
            told.await;
        }
    }

    /// What logins need to treat strangers like users.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Sets and removes credentials, all or none: what each of `changes` holds for a user replaces
    /// the credential of the same hash. Keys that are set forget the hash of the password, which may
    /// be another one's. A user who is removed, or loses the last keys, loses their tokens and roles.
    ///
    /// # Errors
    /// [`AccessError::Invalid`], [`AccessError::UnknownUser`] for a removal of what is not there,
    /// [`AccessError::Limit`], [`AccessError::File`].
    pub fn alter_users(&self, changes: &[UserChange]) -> Result<(), AccessError> {
        self.change(|stored| {
            for change in changes {
                match change {
                    UserChange::Set(name, credential) => {
                        check_name(name)?;
                        let credentials = stored.users.entry(name.clone()).or_default();
                        credentials.retain(|old| old.hash != credential.hash);
                        credentials.push(credential.clone());
                        credentials.sort_by_key(|credential| credential.hash);
                        stored.password_hashes.remove(name);
                    }
                    UserChange::SetHash(name, hash) => {
                        check_name(name)?;
                        stored.users.entry(name.clone()).or_default();
                        stored.password_hashes.insert(name.clone(), hash.clone());
                    }
                    UserChange::Remove(name, hash) => {
                        let unknown = || AccessError::UnknownUser(name.clone());
                        let credentials = stored.users.get_mut(name).ok_or_else(unknown)?;
                        let before = credentials.len();
                        credentials.retain(|old| hash.is_some_and(|hash| old.hash != hash));
                        if credentials.len() == before && hash.is_some() {
                            return Err(unknown());
                        }
                        if credentials.is_empty() {
                            stored.users.remove(name);
                            stored.password_hashes.remove(name);
                            // Who is gone must not come back by a token.
                            stored.tokens.retain(|_, token| token.user != *name);
                            stored.grants.remove(&Principal::user(name));
                        }
                    }
                }
            }
            within("users", stored.users.len(), USERS_MAX)
        })
    }

    /// Keeps the hash of a user's password, unless there is one, or `proven`, the keys that proved the
    /// password, were changed meanwhile.
    ///
    /// # Errors
    /// [`AccessError::File`].
    pub(crate) fn keep_hash(
        &self,
        name: &str,
        proven: &Credential,
        hash: PasswordHash,
    ) -> Result<(), AccessError> {
        self.change(|stored| {
            let credentials = stored.users.get(name).into_iter().flatten();
            if credentials.into_iter().any(|kept| kept == proven) {
                let hashes = &mut stored.password_hashes;
                hashes
                    .entry(name.to_owned())
                    .or_insert_with(|| hash.clone());
            }
            Ok(())
        })
    }

    /// Adds an API token of a user.
    ///
    /// # Errors
    /// [`AccessError::UnknownUser`], [`AccessError::Limit`], [`AccessError::File`].
    pub fn add_token(&self, token: Token) -> Result<(), AccessError> {
        self.change(|stored| {
            if !stored.users.contains_key(&token.user) {
                return Err(AccessError::UnknownUser(token.user.clone()));
            }
            stored.tokens.insert(token.id.clone(), token.clone());
            within("tokens", stored.tokens.len(), TOKENS_MAX)
        })
    }

    /// Removes an API token; whoever holds it is refused from now on.
    ///
    /// # Errors
    /// [`AccessError::UnknownToken`], [`AccessError::File`].
    pub fn remove_token(&self, id: &str) -> Result<(), AccessError> {
        self.change(|stored| {
            let removed = stored.tokens.remove(id);
            let unknown = || AccessError::UnknownToken(id.chars().take(40).collect());
            removed.map(drop).ok_or_else(unknown)
        })
    }

    /// Grants a role; one that is there already changes nothing. The caller need not be a user of
    /// this folder: certificates and issuers name others.
    ///
    /// # Errors
    /// [`AccessError::Limit`], [`AccessError::File`].
    pub fn grant(&self, principal: Principal, grant: Grant) -> Result<(), AccessError> {
        self.change(|stored| {
            let of_one = stored.grants.entry(principal.clone()).or_default();
            of_one.insert(grant.clone());
            within("roles of one caller", of_one.len(), GRANTS_OF_ONE_MAX)?;
            within("callers with roles", stored.grants.len(), GRANTED_MAX)
        })
    }

    /// Takes a role back.
    ///
    /// # Errors
    /// [`AccessError::UnknownGrant`], [`AccessError::File`].
    pub fn revoke(&self, principal: &Principal, grant: &Grant) -> Result<(), AccessError> {
        self.change(|stored| {
            let unknown = || AccessError::UnknownGrant {
                principal: principal.clone(),
                grant: grant.clone(),
            };
            let of_one = stored.grants.get_mut(principal).ok_or_else(unknown)?;
            if !of_one.remove(grant) {
                return Err(unknown());
            }
            if of_one.is_empty() {
                stored.grants.remove(principal);
            }
            Ok(())
        })
    }

    /// Adds ACLs; those that are there already change nothing.
    ///
    /// # Errors
    /// [`AccessError::Invalid`], [`AccessError::Limit`], [`AccessError::File`].
    pub fn add_acls(&self, acls: Vec<Acl>) -> Result<(), AccessError> {
        for acl in &acls {
            acl.check()?;
        }
        self.change(|stored| {
            stored.acls.extend(acls.iter().cloned());
            within("ACLs", stored.acls.len(), ACLS_MAX)
        })
    }

    /// Has each ACL be another one; where all stay as they are, nothing is written.
    ///
    /// # Errors
    /// [`AccessError::File`].
    pub fn rewrite_acls(&self, rewrite: impl Fn(Acl) -> Acl) -> Result<(), AccessError> {
        self.change(|stored| {
            stored.acls = std::mem::take(&mut stored.acls)
                .into_iter()
                .map(&rewrite)
                .collect();
            Ok(())
        })
    }

    /// Removes the ACLs that each filter means; answers those of each.
    ///
    /// # Errors
    /// [`AccessError::File`].
    pub fn remove_acls(&self, filters: &[AclFilter]) -> Result<Vec<Vec<Acl>>, AccessError> {
        self.change(|stored| {
            let mut removed = Vec::with_capacity(filters.len());
            for filter in filters {
                let (gone, kept): (BTreeSet<Acl>, BTreeSet<Acl>) = std::mem::take(&mut stored.acls)
                    .into_iter()
                    .partition(|acl| filter.matches(acl));
                stored.acls = kept;
                removed.push(gone.into_iter().collect());
            }
            Ok(removed)
        })
    }

    /// Sets (`Some`) and removes (`None`) bounds of entities, all or none.
    ///
    /// # Errors
    /// [`AccessError::Invalid`], [`AccessError::Limit`], [`AccessError::File`].
    pub fn alter_quotas(
        &self,
        changes: &[(QuotaEntity, String, Option<f64>)],
    ) -> Result<(), AccessError> {
        for (entity, key, value) in changes {
            entity.check(key, *value)?;
        }
        self.change(|stored| {
            for (entity, key, value) in changes {
                let quota: &mut Quota = stored.quotas.entry(entity.clone()).or_default();
                match value {
                    Some(value) => drop(quota.insert(key.clone(), *value)),
                    None => drop(quota.remove(key)),
                }
                if quota.is_empty() {
                    stored.quotas.remove(entity);
                }
            }
            within("quotas", stored.quotas.len(), QUOTAS_MAX)
        })
    }

    /// Writes what `edit` makes of the present, then lets everybody see it. Blocks on the disk, or on
    /// the place where users are shared; there `edit` may be called again.
    pub(crate) fn change<T>(
        &self,
        mut edit: impl FnMut(&mut Stored) -> Result<T, AccessError>,
    ) -> Result<T, AccessError> {
        let mut sharing = self.changing.lock();
        for _ in 0..ATTEMPTS_MAX {
            if let Some(shared) = sharing.as_mut() {
                self.take_newest(shared)?;
            }
            let before = self.snapshot();
            let mut stored = Stored::of_snapshot(&before);
            let result = edit(&mut stored)?;
            if stored.is_same(&before) {
                return Ok(result);
            }
            match sharing.as_mut() {
                None => store::write(&self.path, &stored)?,
                Some(shared) => {
                    let is_own = stored.acls != before.acls
                        || stored.quotas != before.quotas
                        || stored.tenants != before.tenants.tenants;
                    if is_own {
                        store::write(&self.path, &stored.own_part())?;
                    }
                    // No change is of both.
                    if !is_own && !shared.replace(&stored)? {
                        continue;
                    }
                }
            }
            self.publish(stored);
            return Ok(result);
        }
        Err(busy())
    }

    /// Lets everybody see what is durable.
    pub(crate) fn publish(&self, stored: Stored) {
        let closed = Arc::clone(&self.closed.lock());
        let snapshot = stored.into_snapshot().with_closed(closed);
        let has_tenants = snapshot.has_tenants();
        *self.now.write() = Arc::new(snapshot);
        self.has_tenants.store(has_tenants, Ordering::Release);
        self.revision.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// One change of a user.
#[derive(Clone, Debug)]
pub enum UserChange {
    /// Sets the credential, and makes the user if there is none.
    Set(String, Credential),
    /// Sets the hash of the password, and makes the user if there is none.
    SetHash(String, PasswordHash),
    /// Removes the credential of one hash, or the whole user.
    Remove(String, Option<ScramHash>),
}

fn check_name(name: &str) -> Result<(), AccessError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let reason = format!("write 1 to {NAME_BYTES_MAX} bytes");
        return Err(AccessError::invalid("user name", reason));
    }
    Ok(())
}

pub(crate) fn within(what: &'static str, count: usize, max: usize) -> Result<(), AccessError> {
    if count > max {
        return Err(AccessError::Limit { what, max });
    }
    Ok(())
}

impl Stored {
    fn into_snapshot(self) -> Snapshot {
        Snapshot::new(self.users, self.acls, self.quotas)
            .with_password_hashes(self.password_hashes)
            .with_tokens(self.tokens)
            .with_grants(self.grants)
            .with_tenants(self.tenants, self.removed, self.collections)
    }

    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        Stored {
            users: snapshot.users.clone(),
            password_hashes: snapshot.password_hashes.clone(),
            acls: snapshot.acls.clone(),
            quotas: snapshot.quotas.clone(),
            tokens: snapshot.tokens.clone(),
            grants: snapshot.grants.clone(),
            tenants: snapshot.tenants.tenants.clone(),
            removed: snapshot.tenants.removed.clone(),
            collections: snapshot.tenants.collections.clone(),
        }
    }

    fn is_same(&self, snapshot: &Snapshot) -> bool {
        let same = |a: &BTreeMap<String, Vec<Credential>>, b| a == b;
        same(&self.users, &snapshot.users)
            && self.password_hashes == snapshot.password_hashes
            && self.acls == snapshot.acls
            && self.quotas == snapshot.quotas
            && self.tokens == snapshot.tokens
            && self.grants == snapshot.grants
            && self.tenants == snapshot.tenants.tenants
            && self.removed == snapshot.tenants.removed
    }
}

#[cfg(test)]
mod tests;
