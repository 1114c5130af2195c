//! The data path allocates nothing from the heap.

#[path = "suite/design.rs"]
mod design;
#[path = "suite/heap_free.rs"]
mod heap_free;
#[path = "suite/tested.rs"]
mod tested;
