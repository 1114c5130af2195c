//! The data path allocates nothing from the heap: the designs that the
//! product does not ship.
#![cfg(not(loom))]

#[path = "../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "../../../crates/pagealloc/tests/suite/heap_free.rs"]
mod heap_free;
#[path = "zones/tested.rs"]
mod tested;
