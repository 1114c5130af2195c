//! What this machine can do, why it cannot, and the command that mends it.
//!
//! [`Observed::look`] reads everything once and changes nothing. All else is made of that alone:
//! [`findings`], [`abilities`] and the [`sysctl_file`].

mod findings;
mod mend;
mod observed;
mod settings;

pub use findings::{Ability, Finding, Level, abilities, findings};
pub use observed::{Observed, is_by_sudo};
pub use settings::{Settings, sysctl_file};

#[cfg(test)]
mod tests;
