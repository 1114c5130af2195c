//! The option of the sandbox.

use clap::{Args, ValueEnum};
use host::Sandbox;

/// What the threads that serve may do.
#[derive(Args, Clone, Copy, Debug)]
pub struct SandboxOptions {
    /// What the threads that serve clients, files and swap may still ask the system for once they
    /// serve: with `on` the calls of their role alone, and no file; with `off` everything that
    /// needs no privilege, which is for a kernel without seccomp
    #[arg(long, value_name = "on|off", value_enum, default_value = "on", env = "RAMPACK_SANDBOX")]
    #[arg(hide_possible_values = true, hide_env_values = true)]
    pub sandbox: SandboxOption,
}

impl Default for SandboxOptions {
    fn default() -> SandboxOptions {
        SandboxOptions { sandbox: SandboxOption::On }
    }
}

/// The values of `--sandbox`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SandboxOption {
    /// A refused call fails.
    On,
    /// Threads that serve have no privileges, and nothing else is refused.
    Off,
    /// For tests: a refused call ends the daemon.
    #[value(hide = true)]
    Strict,
}

impl From<SandboxOption> for Sandbox {
    fn from(option: SandboxOption) -> Sandbox {
        match option {
            SandboxOption::On => Sandbox::On,
            SandboxOption::Off => Sandbox::Off,
            SandboxOption::Strict => Sandbox::Strict,
        }
    }
}
