//! Tenant names as small numbers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// Tenants told apart at once. Beyond it all newcomers share [`TenantId::OVERFLOW`]: a client that
/// invents tenant names must not grow the account without bound.
pub const MAX_TENANTS: usize = 4096;

/// The longest tenant name that is kept, in bytes; what is longer is cut. Mimir, Loki and Tempo refuse longer ones.
pub const MAX_TENANT_NAME_BYTES: usize = 150;

/// A tenant, as an index: dense, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(u32);

impl TenantId {
    /// Requests that name no tenant.
    pub const DEFAULT: TenantId = TenantId(0);
    /// Tenants beyond [`MAX_TENANTS`], together.
    pub const OVERFLOW: TenantId = TenantId(1);

    /// The index, for tables by tenant.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table of tenant names. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Tenants(Arc<RwLock<Table>>);

#[derive(Debug)]
struct Table {
    ids: HashMap<Arc<str>, TenantId>,
    names: Vec<Arc<str>>,
}

impl Default for Tenants {
    fn default() -> Self {
        let names: Vec<Arc<str>> = vec!["default".into(), "overflow".into()];
        let ids = HashMap::from([
            (names[0].clone(), TenantId::DEFAULT),
            (names[1].clone(), TenantId::OVERFLOW),
        ]);
        Self(Arc::new(RwLock::new(Table { ids, names })))
    }
}

impl Tenants {
    /// The id of `name`, made on first sight; [`TenantId::OVERFLOW`] once the table is full.
    pub fn intern(&self, name: &str) -> TenantId {
        if let Some(id) = self.0.read().ids.get(name) {
            return *id;
        }
        let mut table = self.0.write();
        if let Some(id) = table.ids.get(name) {
            return *id;
        }
        if table.names.len() >= MAX_TENANTS {
            return TenantId::OVERFLOW;
        }
        let id = TenantId(table.names.len() as u32);
        let name: Arc<str> = name.into();
        table.names.push(name.clone());
        table.ids.insert(name, id);
        id
    }

    /// The id of a name that a client sent, fit for logs and labels: blanks around it go, every byte outside printable
    /// ASCII becomes `_`, and it is cut to [`MAX_TENANT_NAME_BYTES`]. `None` when nothing is left.
    pub fn intern_sent(&self, name: &[u8]) -> Option<TenantId> {
        let name = presentable(name);
        (!name.is_empty()).then(|| self.intern(&name))
    }

    /// How many names there are, the two that every table has included.
    pub fn count(&self) -> usize {
        self.0.read().names.len()
    }

    /// The name behind an id of this table.
    pub fn name(&self, id: TenantId) -> Arc<str> {
        self.name_at(id.index())
    }

    /// The name behind an index, as [`TenantId::index`] gives it.
    pub fn name_at(&self, index: usize) -> Arc<str> {
        let table = self.0.read();
        table
            .names
            .get(index)
            .unwrap_or(&table.names[TenantId::OVERFLOW.index()])
            .clone()
    }
}

fn presentable(name: &[u8]) -> Cow<'_, str> {
    let name = name.trim_ascii();
    let name = &name[..name.len().min(MAX_TENANT_NAME_BYTES)];
    match std::str::from_utf8(name) {
        Ok(text) if name.iter().all(u8::is_ascii_graphic) => Cow::Borrowed(text),
        _ => {
            let shown = |byte: &u8| {
                if byte.is_ascii_graphic() {
                    *byte as char
                } else {
                    '_'
                }
            };
            Cow::Owned(name.iter().map(shown).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: more tenant names than the table holds.
    /// Guarantees: the first keep their ids, the rest share the overflow id, names come back.
    #[test]
    fn tenants_are_interned_and_capped() {
        let tenants = Tenants::default();
        let a = tenants.intern("a");
        assert_eq!(tenants.intern("a"), a);
        assert_eq!(&*tenants.name(a), "a");
        for n in 0..MAX_TENANTS {
            tenants.intern(&format!("t{n}"));
        }
        assert_eq!(tenants.intern("late"), TenantId::OVERFLOW);
        assert_eq!(tenants.intern("a"), a);
        assert_eq!(&*tenants.name(TenantId::OVERFLOW), "overflow");
    }

    /// Scenario: names as clients may send them: padded, empty, with line breaks, escape codes and Unicode, far too long.
    /// Guarantees: what is kept is printable ASCII of a bounded length; nothing is no name; the same name is the same
    /// tenant however it is padded.
    #[test]
    fn names_that_clients_send_are_made_presentable() {
        let tenants = Tenants::default();
        let name = |sent: &[u8]| Some(tenants.name(tenants.intern_sent(sent)?).to_string());
        assert_eq!(name(b" team-a\t").as_deref(), Some("team-a"));
        assert_eq!(tenants.intern_sent(b"team-a"), tenants.intern_sent(b" team-a "));
        assert_eq!(name(b""), None);
        assert_eq!(name(b"  "), None);
        assert_eq!(
            name(b"a\nlevel=error\x1b[31m b").as_deref(),
            Some("a_level=error_[31m_b")
        );
        assert_eq!(name("K\u{fc}che".as_bytes()).as_deref(), Some("K__che"));
        assert_eq!(name(b"\xff\xfe").as_deref(), Some("__"));
        assert_eq!(name(&[b'x'; 10_000]), Some("x".repeat(MAX_TENANT_NAME_BYTES)));
    }
}
