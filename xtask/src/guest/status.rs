//! The exit statuses of the chore for a guest that did not end by itself.

/// The exit status of a hang.
pub const HANG: u8 = 123;
/// The exit status when the time is up.
pub const TIME_OUT: u8 = 124;
/// The exit status when the machine ended before its command.
pub const DIED: u8 = 125;
