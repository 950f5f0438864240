#!/usr/bin/env bash
# Plants bugs into admission, one at a time, and checks that the test named for each finds it: whether the simulation of the budget is worth its
# name, and what guards levels, breakers, percentiles and hints.
# Needs a working tree without changes in crates/admission/src, and puts it back. SLUICE_SEEDS crowds are tried for each (1000, and 20 floods).
set -euo pipefail
cd "$(dirname "$0")/../.."
crate=admission
asked=${SLUICE_SEEDS:-}
worlds() { tests=budget::simulation::worlds::$1 SLUICE_SEEDS=${asked:-1000}; }
floods() { tests=budget::simulation::flood::$1 SLUICE_SEEDS=${asked:-20}; }
source crates/plant.sh

worlds a_deadlock_in_step_is_broken_and_would_be_found
plant "the young never give way: everybody waits for everybody" budget.rs \
  'let gone = victims.iter().filter(|slot| slot.refuse(Denied::GaveWay)).count();' \
  'let gone = victims.iter().filter(|_| false).count();'
worlds everybody_ends_and_most_is_delivered
plant "one of the young gives way where more have to" budget.rs \
  'if fits(free, held) {
                    break;' \
  'if fits(free, held) || !victims.is_empty() {
                    break;'
plant "who holds bytes waits behind those that hold none" budget.rs \
  'if held > 0 {
            line.growing' \
  'if held > u64::MAX / 2 {
            line.growing'
plant "bytes that come back wake nobody" budget/permit.rs \
  'inner.untake(self.tenant, share);
        self.serve_waiting();' \
  'inner.untake(self.tenant, share);'
plant "a tenant's bytes are counted and never taken off" budget.rs \
  'self.uncount(tenant, share.bytes());
        self.general' \
  'self.general'
worlds nobody_needs_a_time_out
plant "who is small overtakes the oldest in the lane of all" budget.rs \
  'blocked = true;
                return true;' \
  'return true;'
plant "the oldest is not served first" budget.rs \
  'line.growing.insert(self.age, waiter);' \
  'line.growing.insert(self.age ^ 3, waiter);'
worlds tenants_known_late_stop_nobody
plant "what goes over to its tenant stays counted to nobody" budget/permit.rs \
  'inner.uncount(self.tenant, bytes);
        self.tenant' \
  'self.tenant'
plant "whoever goes over has room" budget/permit.rs \
  'if !inner.count_if(tenant, bytes, fits) {' \
  'if !inner.count_if(tenant, bytes, |held| fits(held) || true) {'
worlds everybody_ends_while_the_capacity_changes
plant "a lowered capacity is heeded in half" budget.rs \
  'let room = self.capacity();' \
  'let room = self.capacity() * 2;'
plant "who no longer fits waits on" budget.rs \
  'line.turn_away(general);' \
  'let _ = general;'
floods tenants_that_flood_get_equal_parts
plant "nobody is beyond its share" budget.rs \
  'held.saturating_add(bytes) > free.saturating_mul' \
  'held.saturating_add(bytes) > 1_000 * free.saturating_mul'
plant "one tenant has sixteen times the share of others" budget.rs \
  'free.saturating_mul(TENANT_FACTOR * u64::from(weight))' \
  'free.saturating_mul(TENANT_FACTOR * u64::from(weight) * (1 + 15 * u64::from(tenant == 1)))'

tests=budget::tests::the_youngest_gives_way_to_the_oldest
plant "the old give way, not the young" budget.rs \
  'line.growing.range(age + 1..).rev().filter(waits)' \
  'line.growing.range(age + 1..).filter(waits)'
plant "all of the young give way where one is enough" budget.rs \
  'if fits(free, held) {
                    break;' \
  'if false {
                    break;'
tests=budget::tests::waiting_is_first_come_first_served
plant "who comes last is first" budget.rs \
  'line.new.push_back(waiter);' \
  'line.new.push_front(waiter);'
tests=budget::tests::a_grant_that_nobody_takes_comes_back
plant "who gives up keeps what it was granted meanwhile" budget.rs \
  'if let Some(share) = unclaimed {
            inner.untake(self.tenant, share);
        }' \
  'let _ = unclaimed;'
tests=budget::tests::a_tenant_leaves_room_for_others
plant "shares are not looked at where nobody waits" budget.rs \
  'if fair && self.is_over_share(lane, tenant, bytes) ||' \
  'if false && fair && self.is_over_share(lane, tenant, bytes) ||'
plant "tenants beyond the first are never active" budget.rs \
  'self.active_tenants.fetch_add(1, Ordering::Relaxed);' \
  'self.active_tenants.fetch_add(0, Ordering::Relaxed);'
plant "the first tenants are never active" budget.rs \
  'active + self.active_tenants.load(Ordering::Relaxed)' \
  'active * 0 + self.active_tenants.load(Ordering::Relaxed)'
tests=budget::tests::a_newcomer_tenant_is_not_behind_the_flood
plant "a tenant that holds nothing waits behind those that flood" budget.rs \
  'partition(|waiter| inner.held_by(waiter.tenant) == 0);' \
  'partition(|waiter| inner.held_by(waiter.tenant) > 0);'
tests=budget::tests::shares_are_in_proportion_to_weights
plant "weights are forgotten" budget.rs \
  '.map_or(1, |weight| weight.get());' \
  '.map_or(1, |weight| weight.get().min(1));'
tests=hint::tests::what_was_refused_has_not_drained
plant "what is refused counts as drained" budget/permit.rs \
  'if self.counts.load(Ordering::Relaxed) {' \
  'if self.counts.load(Ordering::Relaxed) || true {'
tests=drain::
plant "a dead destination has the hint of one of which nothing is known" drain.rs \
  'return (self.seen / PART_OF_NOTHING).max(UNKNOWN);' \
  'return UNKNOWN;'
plant "an hour's average is taken for a rate" drain.rs \
  'if passed > LONGEST_SAMPLE {' \
  'if false {'
tests=breaker::
plant "a success of long ago closes the breaker" breaker.rs \
  'if word.generation != pass.generation {' \
  'if false {'
plant "many probes at once" breaker.rs \
  'BreakerState::Probing => (units(settings.probe_timeout), 0),' \
  'BreakerState::Probing => (0, word.count),'
tests=guard::tests
plant "slow samples from before outweigh the trickle" guard.rs \
  'tracker.restart();' \
  'let _ = tracker;'
plant "nothing passes at the worst level" guard.rs \
  'if turned_away && !method.value.trickle.takes(now, self.trickle_nanos) {' \
  'if turned_away {'
tests=gauge::
plant "a level falls at once" gauge.rs \
  'if now.saturating_sub(self.seen) >= hold {' \
  'if true {'
tests=tracker::
plant "percentiles do not forget" histogram.rs \
  'sum_weight(octave.sum.load(Ordering::Acquire), epoch);' \
  'sum_weight(octave.sum.load(Ordering::Acquire), 1 << 20);'
plant "the tag of an empty word counts" histogram.rs \
  'let units = if word == 0 {' \
  'let units = if word == 1 {'
tests=registry::
plant "the last bytes of a name do not count" registry.rs \
  '(Some(last), ..) => halves(last),' \
  '(Some(_), ..) => (0, 0),'
exit "$missed"
