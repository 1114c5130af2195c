//! The built program: what it says, what it makes, and that nothing is left of it.

mod common;

mod bad_input;
mod commands;
mod conformance;
mod estimate;
mod exec;
mod exec_modules;
mod filesystem;
mod fsck;
mod golden;
mod hungry;
mod keep;
mod keep_backing;
mod keep_swap;
mod keep_up;
mod keep_users;
mod keeper;
mod killed;
mod nbd_frontends;
mod remote;
mod roots;
mod sandbox;
mod service;
mod streams;
mod swap;
mod swap_backing;
mod swap_selftest;
mod swap_signals;
mod tree_files;
mod trim;
mod upgrade;
mod when_full;
mod writeback;
mod zram_rst;
