use sluice_journal::testing::{Fault, Operation, Random, SimulatedDisk};
use sluice_pipeline::Ending;

use super::*;

const PATH: &str = "/spool/remote-write/rw.lanes";
const LANES: usize = 20;

fn open(disk: &SimulatedDisk, settings: &str) -> Arc<Positions> {
    let file = LanesFile {
        path: PATH.into(),
        filesystem: Arc::new(disk.clone()),
    };
    Arc::new(Positions::open(file, settings))
}

/// A batch that is encoded, and whose turn is in the order.
struct Encoded {
    turn: Turn,
    delivered: Vec<LaneSet>,
}

fn encode(positions: &Positions, order: &Order, turn: Turn, bodies: &[&str]) -> Encoded {
    order.enter(turn);
    let keys = bodies
        .iter()
        .map(|body| positions.key(b"", WireFormat::Otlp, body.as_bytes()));
    let delivered = positions.encoded(turn, keys);
    order.encoded(turn, vec![true; LANES]);
    Encoded { turn, delivered }
}

fn lanes(lanes: &[usize]) -> LaneSet {
    let mut set = LaneSet::default();
    lanes.iter().for_each(|lane| set.insert(*lane));
    set
}

/// Where each of these payloads has been delivered, as the next process finds it.
fn found(disk: &SimulatedDisk, bodies: &[&str]) -> Vec<LaneSet> {
    let positions = open(disk, "as they are");
    encode(&positions, &Order::default(), Turn::first(), bodies).delivered
}

/// Scenario: of two batches one is done in two lanes, the other in one; the process is killed. The next one gets the payloads in other batches, of which one
/// is done in another lane before it is killed, too; and one gets the same bytes from another tenant, in another format, or under other settings.
/// Guarantees: each payload has been delivered in its lanes, over both kills, and no other payload in any.
#[test]
fn what_is_delivered_is_known_by_the_next_process() {
    let disk = SimulatedDisk::default();
    let positions = open(&disk, "as they are");
    let order = Arc::new(Order::default());
    let first = encode(&positions, &order, Turn::first(), &["a", "b"]);
    let second = encode(&positions, &order, first.turn.next(), &["c"]);
    assert!(
        first
            .delivered
            .iter()
            .chain(&second.delivered)
            .all(LaneSet::is_empty)
    );
    positions.done_in(first.turn, 0, &order);
    positions.done_in(second.turn, 19, &order);
    positions.done_in(first.turn, 9, &order);
    disk.kill();
    let other = open(&disk, "other");
    assert!(encode(&other, &order, Turn::first(), &["a"]).delivered[0].is_empty());
    let positions = open(&disk, "as they are");
    for (tenant, format) in [(&b"t"[..], WireFormat::Otlp), (b"", WireFormat::RemoteWrite2)] {
        let key = positions.key(tenant, format, b"a");
        assert_eq!(
            positions.encoded(Turn::first(), [key].into_iter()),
            [LaneSet::default()]
        );
    }
    let now = encode(&positions, &order, Turn::first(), &["b", "c", "d"]);
    assert_eq!(now.delivered, [lanes(&[0, 9]), lanes(&[19]), lanes(&[])]);
    positions.done_in(now.turn, 5, &order);
    disk.kill();
    assert_eq!(
        found(&disk, &["a", "b", "c", "d", "e"]),
        [
            lanes(&[0, 9]),
            lanes(&[0, 5, 9]),
            lanes(&[5, 19]),
            lanes(&[5]),
            lanes(&[])
        ]
    );
}

/// Scenario: a batch is done in a lane, is settled, and eleven hundred others after it; another one is encoded again, in pieces.
/// Guarantees: one that has just been settled is known still, for the queue may not have written it down; one that was settled long ago is not kept; pieces
/// know what was delivered of them.
#[test]
fn what_ends_is_kept_for_a_while() {
    let disk = SimulatedDisk::default();
    let positions = open(&disk, "as they are");
    let order = Arc::new(Order::default());
    let mut turn = Turn::first();
    for batch in 0..1100 {
        let body = format!("batch {batch}");
        encode(&positions, &order, turn, &[&body]);
        positions.done_in(turn, batch % LANES, &order);
        positions.ends(turn);
        turn = turn.next();
    }
    encode(&positions, &order, turn, &["x", "y"]);
    positions.done_in(turn, 3, &order);
    let piece = encode(&positions, &order, turn, &["y"]);
    assert_eq!(piece.delivered, [lanes(&[3])]);
    assert_eq!(
        found(&disk, &["batch 1099", "batch 80", "batch 70", "x"]),
        [
            lanes(&[1099 % LANES]),
            lanes(&[80 % LANES]),
            lanes(&[]),
            lanes(&[3])
        ]
    );
}

/// Scenario: the thread that writes is held up; then it goes on.
/// Guarantees: until the position is in the file, nothing passes it in its lane and its batch is not settled.
#[tokio::test]
async fn a_lane_goes_on_when_its_position_is_written() {
    let disk = SimulatedDisk::default();
    let positions = open(&disk, "as they are");
    let order = Arc::new(Order::default());
    let first = encode(&positions, &order, Turn::first(), &["a"]);
    let second = encode(&positions, &order, first.turn.next(), &["b"]);
    let writing = positions.notes.lock();
    positions.done_in(first.turn, 7, &order);
    assert!(order.taken_before(second.turn, LANES)[7]);
    let mut written = std::pin::pin!(positions.written(first.turn));
    assert!(futures_poll(written.as_mut()).is_pending());
    drop(writing);
    written.await;
    assert!(!order.taken_before(second.turn, LANES)[7]);
    assert_eq!(found(&disk, &["a"]), [lanes(&[7])]);
    order.ends(first.turn, Ending::Settled);
}

fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

/// Scenario: the disk is full for a while, from the first position on or later.
/// Guarantees: lanes go on meanwhile; what could not be written is there once positions are written again, and nothing that is not so.
#[test]
fn a_disk_that_is_full_holds_up_nothing() {
    for good in [0, 1, 3] {
        let disk = SimulatedDisk::default();
        let positions = open(&disk, "as they are");
        let order = Arc::new(Order::default());
        let first = encode(&positions, &order, Turn::first(), &["a"]);
        let second = encode(&positions, &order, first.turn.next(), &["b"]);
        (0..good).for_each(|lane| positions.done_in(first.turn, lane, &order));
        disk.fail(Operation::Write, Fault::NoSpace, 1);
        for lane in good..10 {
            positions.done_in(first.turn, lane, &order);
            assert!(!order.taken_before(second.turn, LANES)[lane]);
        }
        let kept: Vec<usize> = (0..good).collect();
        assert_eq!(found(&disk, &["a", "b"]), [lanes(&kept), lanes(&[])]);
        for _ in 0..PAUSE {
            positions.done_in(first.turn, 10, &order);
        }
        let all: Vec<usize> = (0..=10).collect();
        assert_eq!(found(&disk, &["a", "b"]), [lanes(&all), lanes(&[])]);
    }
}

/// Scenario: many batches, over more than the file may grow; at any time it is cut, a bit of it flips, or the power goes while it is written.
/// Guarantees: no payload is said to be delivered in a lane in which it was not; without damage all are known that are under way; the file stays small.
#[test]
fn damage_costs_only_what_is_sent_again() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let disk = SimulatedDisk::default();
        let positions = open(&disk, "as they are");
        let order = Arc::new(Order::default());
        let mut turn = Turn::first();
        let mut truth: HashMap<String, LaneSet> = HashMap::new();
        let mut last = Vec::new();
        let batches = 1 + random.below(200);
        for batch in 0..batches {
            let bodies: Vec<String> = (0..random.below(400)).map(|n| format!("{batch} {n}")).collect();
            let all: Vec<&str> = bodies.iter().map(String::as_str).collect();
            encode(&positions, &order, turn, &all);
            let done: Vec<usize> = (0..LANES).filter(|_| random.one_in(2)).collect();
            done.iter()
                .for_each(|lane| positions.done_in(turn, *lane, &order));
            last = bodies.clone();
            truth.extend(bodies.into_iter().map(|body| (body, lanes(&done))));
            if batch + 1 < batches {
                positions.ends(turn);
            }
            turn = turn.next();
        }
        let check = |disk: &SimulatedDisk, is_whole: bool| {
            let positions = open(disk, "as they are");
            let bodies: Vec<&str> = truth.keys().map(String::as_str).collect();
            let all = encode(&positions, &Order::default(), Turn::first(), &bodies).delivered;
            for ((body, lanes), said) in truth.iter().zip(&all) {
                let is_true = (0..LANES).all(|lane| !said.contains(lane) || lanes.contains(lane));
                assert!(is_true, "seed {seed}: {body}: {said:?}, and it is {lanes:?}");
                assert!(
                    said == lanes || !is_whole || !last.contains(body),
                    "seed {seed}: {body}"
                );
            }
        };
        let Some(content) = disk.content(PATH) else {
            continue;
        };
        assert!(content.len() < 4 << 20, "{}", content.len());
        check(&disk.copy(), true);
        for _ in 0..3 {
            let damaged = disk.copy();
            let at = random.below(content.len() as u64) as usize;
            damaged.damage(PATH, |bytes| match random.below(3) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random.below(8),
                _ => bytes[at..].fill(0),
            });
            check(&damaged, false);
        }
        disk.crash_torn(random.draw());
        check(&disk, false);
    }
}
