//! `rampack config`.

use std::fmt::Write;
use std::{fs, process};

use control::{ControlError, Errno};

use crate::args::{Config, ConfigAction, ConfigApply, ConfigImport};
use crate::config::{self, Configuration, files, import, merge};
use crate::terminal::answer;
use service::client::{call, report};
use service::failure::{failed, say};
use service::protocol::{Applied, Apply, Request};
use service::root::Root;

/// `rampack config`.
///
/// # Errors
/// `EINVAL` for a configuration with faults, with a line for each; the error of a file.
pub fn run(
    root: impl FnOnce() -> Result<Root, ControlError>,
    config: &Config,
) -> Result<(), ControlError> {
    match &config.action {
        ConfigAction::Check(it) => {
            let configuration = config::load(&it.files)?;
            configuration.check_values()?;
            answer(would_be(&configuration))
        }
        ConfigAction::Show(it) => {
            let configuration = config::load(&it.files)?;
            answer(shown(&configuration))
        }
        ConfigAction::Apply(it) => applied(&root()?, it),
        ConfigAction::Import(it) => imported(it),
    }
}

/// What the configuration would make, and the files it is in.
fn would_be(configuration: &Configuration) -> String {
    let mut text = String::new();
    let files: Vec<_> =
        configuration.found.read.iter().map(|it| it.display().to_string()).collect();
    if !files.is_empty() {
        let _ = writeln!(text, "files: {}", files.join(" "));
    }
    if configuration.is_off {
        text += "rampack=0 is on the kernel's command line: nothing of this is started\n";
    }
    if configuration.disks.is_empty() && configuration.swaps.is_empty() {
        text += "no device is configured\n";
    }
    let entries = |name: &str, keys: &dyn Fn(&str) -> bool| -> Vec<String> {
        let section = configuration.sections.iter().find(|it| it.name == name);
        let entries = section.iter().flat_map(|it| &it.entries).filter(|it| keys(&it.key));
        entries.map(|it| format!("{}={}", it.key, it.given.shown())).collect()
    };
    let serve = entries("serve", &|_| true);
    if !serve.is_empty() {
        let _ = writeln!(text, "serve: {}", serve.join(" "));
    }
    let apply = configuration.apply();
    for (device, asked) in apply.asked_of_each() {
        let mut asked: Vec<String> =
            asked.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        asked.extend(entries(&device, &|key| key == "transport"));
        let attributes = apply.disks.iter().filter(|it| it.name() == device);
        let mut attributes = attributes.flat_map(|it| &it.add.attributes);
        if let Some(remote) = attributes.find(|it| it.name == "backing_remote") {
            let shown = |word: &str| match word.contains("://") {
                true => control::without_secrets(word),
                false => word.to_owned(),
            };
            let shown: Vec<_> = remote.value.split(' ').map(shown).collect();
            asked.push(format!("backing_remote={}", shown.join(" ")));
        }
        let _ = writeln!(text, "{device}: {}", asked.join(" "));
    }
    text
}

fn shown(configuration: &Configuration) -> String {
    let mut text = String::new();
    for path in &configuration.found.read {
        let _ = writeln!(text, "# {}", path.display());
    }
    for path in &configuration.found.hiding {
        let _ = writeln!(text, "# hidden by {}", path.display());
    }
    text + &merge::text(&configuration.sections)
}

/// Has the daemon follow what is configured, in the file that it has unless others are named, by a
/// plan that is printed before anything changes. The process ends here with a failure if something
/// could not be changed.
fn applied(root: &Root, options: &ConfigApply) -> Result<(), ControlError> {
    let mut files = options.files.clone();
    if files.is_empty() {
        files.extend(report(root)?.file.as_deref().map(machine::path_of));
    }
    let configuration = config::load(&files)?;
    configuration.check_values()?;
    if configuration.is_off {
        let message = "rampack=0 is on the kernel's command line, so nothing was changed";
        return Err(ControlError::new(Errno::EPERM, message));
    }
    let apply = Apply { dry: true, remove: options.remove, ..configuration.apply() };
    let plan: Applied = call(root, &Request::Apply(apply.clone()))?;
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let complain =
        |failed: &[String]| failed.iter().for_each(|it| say(&format!("rampack: {it}\n")));
    answer(lines(&plan.not_followed))?;
    complain(&plan.failed);
    answer(lines(&plan.changed))?;
    let mut failed = plan.failed;
    if !options.dry_run && !plan.changed.is_empty() {
        let mut done: Applied = call(root, &Request::Apply(Apply { dry: false, ..apply }))?;
        answer(lines(&done.changed))?;
        done.failed.retain(|it| !failed.contains(it));
        complain(&done.failed);
        failed.extend(done.failed);
    }
    if failed.is_empty() { Ok(()) } else { process::exit(1) }
}

fn imported(options: &ConfigImport) -> Result<(), ControlError> {
    let paths = match &options.file {
        Some(file) => vec![file.clone()],
        None => files::find(&files::top(), &files::GENERATOR, files::GENERATOR_MAIN)?.read,
    };
    let mut texts = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path);
        let text = text.map_err(|e| failed(format!("cannot read {}", path.display()), &e))?;
        texts.push((path, text));
    }
    let import::Imported { text, without, has_devices } = import::import(&texts);
    for note in &without {
        say(&format!("rampack: {note}\n"));
    }
    if !has_devices && !without.is_empty() {
        return Err(ControlError::invalid("no zram device is in that, so nothing is imported"));
    }
    answer(text)
}
