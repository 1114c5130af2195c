//! `rampack doctor`: what this machine can do, why it cannot, and the command that mends it.

use control::ControlError;
use serde_json::json;
use service::doctor::{Ability, Finding, Level, Observed, abilities, findings, sysctl_file};
use service::failure::shown;

use crate::args::Doctor;
use crate::table;
use crate::terminal::answer;

/// `rampack doctor`. Changes nothing. True if there is no problem. The process has one thread.
///
/// # Errors
/// The error of standard output.
pub(crate) fn run(options: &Doctor) -> Result<bool, ControlError> {
    let observed = Observed::look();
    if options.sysctl {
        answer(sysctl_file(&observed.settings, observed.memory))?;
        return Ok(true);
    }
    let (can, found) = (abilities(&observed), findings(&observed));
    let version = env!("CARGO_PKG_VERSION");
    answer(match options.json {
        true => {
            let kernel = &observed.release;
            let object =
                json!({ "rampack": version, "kernel": kernel, "can": can, "findings": found });
            format!("{object:#}\n")
        }
        false => shown(&text(&can, &found)),
    })?;
    Ok(found.iter().all(|it| it.level < Level::Problem))
}

fn text(can: &[Ability], found: &[Finding]) -> String {
    let row = |it: &Ability| {
        let works = if it.missing.is_empty() { "works" } else { "fails" };
        let missing = match &it.missing[..] {
            [] => String::new(),
            missing => format!("see {}", missing.join(", ")),
        };
        vec![works.to_owned(), it.name.to_owned(), it.command.to_owned(), missing]
    };
    let rows: Vec<_> = can.iter().map(row).collect();
    let mut text = table::text(&rows, "  ", |_| false) + "\n";
    for Finding { name, level, text: what, command } in found {
        let level = match level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "problem",
        };
        text += &format!("{level:<8} {name}: {what}\n");
        text.extend(command.iter().map(|command| format!("         $ {command}\n")));
    }
    text
}
