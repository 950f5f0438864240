//! Relabelling between the mapping and the bodies: `write_relabel_configs`.

use sluice_relabel::{Labels, Rules};

use crate::labels::{Block, Extra, Label, METRIC_NAME, Names, Plan, SeriesLabels};
use crate::point_labels::PointLabels;
use crate::transcode::{About, Sample, Sink, Value};

/// Applies rules to every series. Without rules, series pass as they are.
#[derive(Debug)]
pub(crate) struct Relabelled {
    rules: Rules,
    labels: Labels,
    /// The plans for the lists of names that come out.
    block: Block,
    /// The last one that is too large to be kept.
    large: Plan,
    names: Names,
    point: PointLabels,
    no_name: Label,
    /// Series of the point being written that were kept.
    kept: u64,
    dropped_points: u64,
}

impl Relabelled {
    pub fn new(rules: Rules) -> Self {
        let names = Names::verbatim();
        Self {
            rules,
            labels: Labels::default(),
            block: Block::new(Vec::new()),
            large: Plan::default(),
            no_name: Label::none(),
            names,
            point: PointLabels::default(),
            kept: 0,
            dropped_points: 0,
        }
    }

    /// Ends a request: data points of it of which every series was dropped.
    pub fn take_dropped_points(&mut self) -> u64 {
        if self.names.is_full() {
            self.names.clear();
            self.block = Block::new(Vec::new());
        }
        self.point.make_room();
        self.large = Plan::default();
        std::mem::take(&mut self.dropped_points)
    }

    /// `sink`, with the rules before it.
    pub fn before<'s, S>(&'s mut self, sink: &'s mut S) -> Before<'s, S> {
        Before { rules: self, sink }
    }

    fn apply(&mut self, labels: &SeriesLabels<'_>) -> Option<SeriesLabels<'_>> {
        self.labels.clear();
        labels.each(|name, value| self.labels.set(name, value));
        if !self.rules.apply(&mut self.labels) || self.labels.get(METRIC_NAME).is_empty() {
            return None;
        }
        self.point.begin();
        let mut names = Vec::with_capacity(self.labels.len());
        for (name, value) in self.labels.iter() {
            let id = self.names.of(name)?;
            self.point.push(id, self.names.get(id), value.as_bytes());
            names.push(id);
        }
        let found = self.block.find_plan(&names, Extra::None);
        let kept = match found {
            Some(found) => Ok(found),
            None => self.block.keep_plan(Plan::of_point(&names)),
        };
        let plan = match kept {
            Ok(kept) => self.block.plan(kept),
            Err(large) => {
                self.large = large;
                &self.large
            }
        };
        Some(SeriesLabels {
            block: &self.block,
            plan,
            names: &self.names,
            name: &self.no_name,
            extra: None,
            point: &self.point,
        })
    }
}

/// A sink with rules before it.
pub(crate) struct Before<'s, S> {
    rules: &'s mut Relabelled,
    sink: &'s mut S,
}

impl<S: Sink> Sink for Before<'_, S> {
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
        if self.rules.rules.is_empty() {
            return self.sink.sample(labels, sample, about);
        }
        if let Some(labels) = self.rules.apply(labels) {
            self.sink.sample(&labels, sample, about);
            self.rules.kept += u64::from(!matches!(sample.value, Value::Absent));
        }
    }

    fn metric(&mut self, about: &About<'_>) {
        // What was kept since the last point was no series of a point: target_info.
        self.rules.kept = 0;
        self.sink.metric(about);
    }

    fn point(&mut self) {
        if !self.rules.rules.is_empty() && std::mem::take(&mut self.rules.kept) == 0 {
            self.rules.dropped_points += 1;
        }
        self.sink.point();
    }
}
