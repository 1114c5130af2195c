//! A zone on the operating system's memory: what is allocated costs memory, what is free does not: the designs that the
//! product does not ship.
#![cfg(not(loom))]

#[path = "../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "../../../crates/pagealloc/tests/suite/real_memory.rs"]
mod real_memory;
#[path = "zones/tested.rs"]
mod tested;
