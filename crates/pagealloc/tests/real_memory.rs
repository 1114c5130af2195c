//! A zone on the operating system's memory: what is allocated costs memory, what is free does not.

#[path = "suite/design.rs"]
mod design;
#[path = "suite/real_memory.rs"]
mod real_memory;
#[path = "suite/tested.rs"]
mod tested;
