//! The blocks made so far, by the bytes of the resource and scope they were made from.

use std::collections::HashMap;

use sluice_wire::{Attributes, Fields, ResourceItems, ScopeItems};

use crate::labels::{Block, BlockLabel, Names};
use crate::mapping::{Mapping, Promote};
use crate::text::put_value;

/// Blocks kept between requests: the resources and scopes that take turns at one gateway. With plans a block takes a few
/// kilobytes.
const MAX_BLOCKS: usize = 1024;

/// Bytes of the resources and scopes that blocks are found by.
const MAX_KEY_BYTES: usize = 4 << 20;

/// Attributes that make `job` and `instance`.
pub(super) const SERVICE_NAME: &str = "service.name";
pub(super) const SERVICE_NAMESPACE: &str = "service.namespace";
pub(super) const SERVICE_INSTANCE: &str = "service.instance.id";

#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    by_key: HashMap<Box<[u8]>, usize>,
    key: Vec<u8>,
    key_bytes: usize,
}

impl Blocks {
    pub fn new() -> Self {
        Self {
            blocks: Vec::new(),
            by_key: HashMap::new(),
            key: Vec::new(),
            key_bytes: 0,
        }
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        self.by_key.clear();
        self.key_bytes = 0;
    }

    pub fn make_room(&mut self) {
        if self.blocks.len() > MAX_BLOCKS || self.key_bytes > MAX_KEY_BYTES {
            self.clear();
        }
    }

    pub fn get(&self, index: usize) -> &Block {
        &self.blocks[index]
    }

    pub fn get_mut(&mut self, index: usize) -> &mut Block {
        &mut self.blocks[index]
    }

    /// The block of a scope of a resource.
    pub fn of(
        &mut self,
        resource: &ResourceItems<'_>,
        scope: &ScopeItems<'_>,
        mapping: &Mapping,
        names: &mut Names,
    ) -> usize {
        self.key.clear();
        // All that a block is made from: of the resource field 1, of the scope fields 1 and 3. Each with its key and
        // length, so that two different pairs never read the same.
        for field in Fields::of(resource.raw()).filter(|field| field.number == 1) {
            self.key.extend_from_slice(field.framed);
        }
        self.key.push(0);
        if mapping.scope_labels {
            for field in Fields::of(scope.raw()).filter(|field| matches!(field.number, 1 | 3)) {
                self.key.extend_from_slice(field.framed);
            }
        }
        if let Some(known) = self.by_key.get(&*self.key) {
            return *known;
        }
        let mut labels = Vec::new();
        promoted(
            &mut labels,
            resource.resource().attributes(),
            &mapping.promote,
            names,
        );
        target(&mut labels, resource.resource().attributes());
        external(&mut labels, &mapping.external_labels);
        if mapping.scope_labels {
            scoped(&mut labels, scope, names);
        }
        self.blocks.push(Block::new(labels));
        self.by_key
            .insert(self.key.as_slice().into(), self.blocks.len() - 1);
        self.key_bytes += self.key.len();
        self.blocks.len() - 1
    }

    /// Keeps a block that is found by nothing: one for a single use.
    pub fn keep(&mut self, labels: Vec<BlockLabel>) -> usize {
        self.blocks.push(Block::new(labels));
        self.blocks.len() - 1
    }

    /// Forgets the last one kept.
    pub fn forget_last(&mut self) {
        self.blocks.pop();
    }
}

/// Sets a label: the last one with its name counts, see [`Block::new`].
fn set(labels: &mut Vec<BlockLabel>, name: &str, value: String, wins: bool) {
    labels.push(BlockLabel {
        name: name.to_owned(),
        value,
        wins,
    });
}

fn promoted(labels: &mut Vec<BlockLabel>, attributes: Attributes<'_>, promote: &Promote, names: &mut Names) {
    if *promote == Promote::None {
        return;
    }
    for attribute in attributes.filter(|attribute| promote.takes(attribute.key())) {
        let Some(name) = names.of(attribute.key()) else {
            continue;
        };
        let mut value = String::new();
        put_value(&mut value, attribute.value());
        set(labels, &names.get(name).text, value, false);
    }
}

/// `job` and `instance`.
pub(super) fn target(labels: &mut Vec<BlockLabel>, attributes: Attributes<'_>) {
    let text = |key: &str| {
        let mut text = String::new();
        let attribute = attributes.clone().find(|attribute| attribute.key() == key)?;
        put_value(&mut text, attribute.value());
        Some(text)
    };
    if let Some(name) = text(SERVICE_NAME) {
        let job = match text(SERVICE_NAMESPACE) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        if !job.is_empty() {
            set(labels, "job", job, true);
        }
    }
    if let Some(instance) = text(SERVICE_INSTANCE).filter(|instance| !instance.is_empty()) {
        set(labels, "instance", instance, true);
    }
}

pub(super) fn external(labels: &mut Vec<BlockLabel>, external: &[(String, String)]) {
    for (name, value) in external {
        let last = labels.iter().rev().find(|label| label.name == *name);
        if last.is_none_or(|label| label.value.is_empty()) {
            set(labels, name, value.clone(), false);
        }
    }
}

/// `otel_scope_*`, of scopes that have a name.
fn scoped(labels: &mut Vec<BlockLabel>, scope: &ScopeItems<'_>, names: &mut Names) {
    let view = scope.scope();
    if view.name().is_empty() {
        return;
    }
    for attribute in view.attributes() {
        let Some(name) = names.of(&format!("otel_scope_{}", attribute.key())) else {
            continue;
        };
        let mut value = String::new();
        put_value(&mut value, attribute.value());
        set(labels, &names.get(name).text, value, true);
    }
    set(labels, "otel_scope_name", view.name().to_owned(), true);
    set(labels, "otel_scope_version", view.version().to_owned(), true);
    set(
        labels,
        "otel_scope_schema_url",
        scope.schema_url().to_owned(),
        true,
    );
}
