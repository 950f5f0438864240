//! A set of labels.

/// Labels by name: sorted, each name once, none without a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// The value of a label; empty when there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.find(name).map_or("", |at| &self.0[at].1)
    }

    /// Sets a label; one without a value is removed.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.find(name) {
            Ok(at) if value.is_empty() => {
                self.0.remove(at);
            }
            Ok(at) => value.clone_into(&mut self.0[at].1),
            Err(_) if value.is_empty() || name.is_empty() => {}
            Err(at) => self.0.insert(at, (name.to_owned(), value.to_owned())),
        }
    }

    /// Keeps the labels whose names `keeps` says so of.
    pub fn retain(&mut self, mut keeps: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keeps(name));
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        // Labels mostly come in order.
        if self.0.last().is_none_or(|(last, _)| &**last < name) {
            return Err(self.0.len());
        }
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let mut set = Labels::default();
        for (name, value) in labels {
            set.set(name, value);
        }
        set
    }
}
