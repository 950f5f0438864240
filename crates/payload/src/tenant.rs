//! Tenant names as small numbers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// Tenants told apart at once. Beyond it all newcomers share [`TenantId::OVERFLOW`]: a client that
/// invents tenant names must not grow the account without bound.
pub const MAX_TENANTS: usize = 4096;

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
}
