//! Replacement of a key by a new one that does the same (contract section 14).

use jiff::Span;
use rusqlite::{Transaction, params};

use super::events::{Action, Actor, insert_event};
use super::key_row::{KeyRow, KeyState};
use super::keys::{self, NewKey};
use super::{Expiry, Registry, RegistryError};
use crate::clock::Moment;
use crate::model::{KeyId, TenantId};

/// A key that was replaced, and the key that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The old key with its new end.
    pub old: KeyRow,
    /// The end of the old key before the replacement.
    pub former_end: Option<Expiry>,
    /// The new key.
    pub new: KeyRow,
    /// The secret of the new key. It is not stored.
    pub key: String,
}

impl Registry {
    /// Creates a key with the name, scopes, limit and end of `key_id`, which then ends after
    /// `overlap`, or earlier if it would have ended anyway.
    ///
    /// A key that is revoked or expired is [`RegistryError::NotReplaceable`].
    pub fn replace_key(
        &self,
        tenant_id: TenantId,
        key_id: KeyId,
        overlap: Span,
        actor: Actor,
        now: Moment,
    ) -> Result<Replacement, RegistryError> {
        let overlap_end =
            Expiry::after(now, overlap).ok_or(RegistryError::Invalid("the overlap is too long"))?;
        self.change_key(tenant_id, key_id, |transaction, old| {
            let state = old.state(now);
            if state != KeyState::Active {
                return Err(RegistryError::NotReplaceable { id: key_id, state: state.as_str() });
            }
            let spec = NewKey {
                expires_at: old.expires_at,
                rate_limit: old.rate_limit,
                ..NewKey::new(&old.name, old.scopes)
            };
            let (new, key) = keys::insert(transaction, tenant_id, &spec, now)?;
            insert_event(transaction, tenant_id, Action::Created, Some(&new), actor, now)?;
            let former_end = old.expires_at;
            let end = former_end.map_or(overlap_end, |end| end.min(overlap_end));
            set_end(transaction, key_id, Some(end))?;
            insert_event(transaction, tenant_id, Action::Replaced, Some(&old), actor, now)?;
            Ok(Replacement { old: KeyRow { expires_at: Some(end), ..old }, former_end, new, key })
        })
    }

    /// Undoes a replacement whose new key was shown to nobody: deletes the new key and gives the
    /// old one its former end.
    pub fn undo_replacement(
        &self,
        replacement: &Replacement,
        actor: Actor,
        now: Moment,
    ) -> Result<(), RegistryError> {
        let Replacement { old, former_end, new, .. } = replacement;
        self.change(|transaction| {
            keys::delete(transaction, new.id)?;
            insert_event(transaction, new.tenant_id, Action::Deleted, Some(new), actor, now)?;
            Ok(set_end(transaction, old.id, *former_end)?)
        })
    }
}

fn set_end(
    transaction: &Transaction<'_>,
    key_id: KeyId,
    end: Option<Expiry>,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE keys SET expires_at = ?2 WHERE id = ?1")?
        .execute(params![key_id, end])
        .map(drop)
}
