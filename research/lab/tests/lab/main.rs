//! The program, command by command, at small sizes: what it promises of its results, never how fast
//! anything was or how right.

mod common;
mod corpus;
mod density;
mod experiments;
mod figures;
mod index;
mod kernel_build;
mod locks_sim;
mod nbd;
mod pages;
mod refused;
mod values;
mod zone;
