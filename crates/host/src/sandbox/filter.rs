//! Makes a filter of each role's list.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::calls::{Call, When};
use super::install::install;
use super::roles::Role;

/// The filters of all roles.
pub(super) struct Filters {
    /// In the order of [`Role::ALL`].
    of_roles: Vec<BpfProgram>,
    /// For every role: there is no `clone3`.
    no_clone3: BpfProgram,
}

impl Filters {
    /// Compiles the lists. If `strict`, a refused call is a signal `SIGSYS`, else an error.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for an architecture that seccompiler does not know.
    pub(super) fn new(strict: bool) -> io::Result<Filters> {
        let refuse = match strict {
            true => SeccompAction::Trap,
            false => SeccompAction::Errno(libc::EPERM as u32),
        };
        let of_role = |role: &Role| compile(rules(*role)?, refuse.clone(), SeccompAction::Allow);
        let of_roles: Result<_, _> = Role::ALL.iter().map(of_role).collect();
        let no_such = SeccompAction::Errno(libc::ENOSYS as u32);
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let no_clone3 = compile(clone3, SeccompAction::Allow, no_such);
        let failed = |error: BackendError| {
            io::Error::new(io::ErrorKind::Unsupported, format!("seccomp: {error}"))
        };
        Ok(Filters { of_roles: of_roles.map_err(failed)?, no_clone3: no_clone3.map_err(failed)? })
    }

    /// Installs the filter of `role` for the calling thread. No call of it can take it away.
    pub(super) fn install(&self, role: Role) -> io::Result<()> {
        // The first one may not be able to install the second one, so it comes last.
        install(&self.no_clone3, false)?;
        install(&self.of_roles[role as usize], true)
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(
    rules: Rules,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, others, these, machine)?.try_into()
}

fn rules(role: Role) -> Result<Rules, BackendError> {
    let mut all = Rules::new();
    for call in role.calls() {
        #[allow(clippy::useless_conversion)]
        all.insert(call.number.into(), rules_of(call)?);
    }
    Ok(all)
}

/// A rule for each allowed value; none if the call is always allowed.
fn rules_of(call: &Call) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |index, mask, value| {
        let by = SeccompCmpOp::MaskedEq(mask);
        SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Qword, by, value)?])
    };
    match call.when {
        When::Always => Ok(Vec::new()),
        When::If(it) => it.values.iter().map(|value| rule(it.index, it.mask, *value)).collect(),
        When::OnThisProcess => {
            Ok(vec![rule(0, u64::from(u32::MAX), u64::from(std::process::id()))?])
        }
    }
}
