//! What reads a body takes no memory of its own.
#![allow(
    unsafe_code,
    reason = "a global allocator is unsafe by its signature; this one hands on to the system's"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use sluice_wire::{Depth, Kind, Request, count, validate};

/// The system's allocator, counting what each thread asks for: tests run side by side.
struct Counting;

thread_local! {
    // Const and without a destructor, so that reading it allocates nothing itself.
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.with(|requests| requests.set(requests.get() + 1));
        // SAFETY: the caller's promises are the callee's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the callee's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `call` asks for memory; the default methods of the allocator come down to `alloc`.
fn requests(call: impl FnOnce()) -> u64 {
    let before = REQUESTS.get();
    call();
    REQUESTS.get() - before
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    support::put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

/// Three resources of 100 items each, large enough for everything the passes remember; the items have two lengths.
fn body(kind: Kind) -> Vec<u8> {
    let string = field(2, &field(1, "/h\u{e9}llo/world".as_bytes()));
    let attribute = [field(1, b"http.route"), string].concat();
    let number = match kind {
        Kind::Metrics => 7,
        Kind::Logs => 6,
        Kind::Traces => 9,
        Kind::Profiles => 0,
    };
    let items: Vec<u8> = (0..100)
        .flat_map(|index| {
            let attributes = field(number, &attribute).repeat(1 + index % 5 / 4);
            match kind {
                Kind::Metrics => field(1, &attributes),
                Kind::Profiles => field(2, &field(9, b"pprof")),
                _ => field(2, &attributes),
            }
        })
        .collect();
    let scope = match kind {
        Kind::Metrics => field(2, &[field(1, b"requests"), field(5, &items)].concat()),
        _ => items,
    };
    let resource = field(1, &[field(1, &field(1, &attribute)), field(2, &scope)].concat());
    resource.repeat(3)
}

/// Scenario: a valid body of every kind, counted, validated at both depths, and read resource by resource, scope by scope,
/// item by item.
/// Guarantees: none of it allocates.
#[test]
fn reading_a_body_allocates_nothing() {
    for kind in Kind::ALL {
        let body = body(kind);
        assert_eq!(count(kind, &body), Ok(300), "{kind:?}");
        let calls: [(&str, &dyn Fn()); 4] = [
            ("count", &|| drop(black_box(count(kind, &body)))),
            ("deep", &|| drop(black_box(validate(kind, Depth::Deep, &body)))),
            ("shallow", &|| {
                drop(black_box(validate(kind, Depth::Shallow, &body)))
            }),
            ("iterate", &|| {
                let mut items = 0;
                for resource in Request::new(kind, &body).resources() {
                    black_box((resource.raw(), resource.framed(), resource.items()));
                    for scope in resource.scopes() {
                        items += scope.log_records().count() + scope.spans().count();
                        items += scope
                            .metrics()
                            .map(|metric| metric.points().count())
                            .sum::<usize>();
                    }
                }
                assert_eq!(items, if kind == Kind::Profiles { 0 } else { 300 });
            }),
        ];
        for (name, call) in calls {
            assert_eq!(requests(call), 0, "{kind:?}: {name}");
        }
        assert!(validate(kind, Depth::Deep, &body).is_ok(), "{kind:?}");
    }
}

/// Scenario: something that does allocate.
/// Guarantees: the counter sees it.
#[test]
fn the_counter_counts() {
    assert_eq!(requests(|| drop(black_box(vec![1u8; 100]))), 1);
}
