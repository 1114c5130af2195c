//! Commands that ask a running daemon.

use std::thread;
use std::time::Duration;

use control::{ControlError, Errno, bytes_of};
use host::errno;
use serde_json::{Value, json};

use crate::args::{self, Add, Get, Set, Status, Tree};
use crate::columns::{self, Column, Style};
use crate::schema;
use crate::swap::progress::Progress;
use crate::swap::status;
use crate::terminal::answer;
use service::client::{self, call};
use service::daemon::abandoned;
use service::devices::swapped_to;
use service::failure::shown;
use service::mounts::SWAP;
use service::protocol::{
    self, Attribute, DaemonReport, Describe, Description, Device, DeviceReport, Request,
    TreeAttribute,
};
use service::root::Root;
use service::swap::report::SwapReport;

/// The time between two looks whether a daemon has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// `rampack add`.
///
/// # Errors
/// `ENOENT` without a daemon, or the daemon's error.
pub(crate) fn add(root: &Root, options: &Add) -> Result<(), ControlError> {
    let request = options.device.request(options.size.as_ref(), options.force);
    let device: DeviceReport = call(root, &Request::Add(request))?;
    answer(format!("{}\n", device.name))
}

/// `rampack remove` and `rampack reset`, by the request for them.
///
/// # Errors
/// As [`add`].
pub(crate) fn take_away(
    root: &Root,
    options: &args::Device,
    request: fn(Device) -> Request,
) -> Result<(), ControlError> {
    let (device, force) = (options.name.clone(), options.force);
    call(root, &request(Device { device, force }))
}

/// `rampack status`.
///
/// # Errors
/// As [`add`].
pub(crate) fn status(root: &Root, options: &Status) -> Result<(), ControlError> {
    let daemon = client::report(root)?;
    let all_of_them = options.names.is_empty();
    let (devices, swaps) = chosen(&daemon, options)?;
    let all: Vec<&Column> = columns::COLUMNS.iter().collect();
    let columns = options.output.as_ref().map_or(&all, |names| &names.0);
    if options.json {
        let shown = DaemonReport { devices, swaps, ..daemon };
        return answer(format!("{:#}\n", status_object(&shown, columns)));
    }
    let style = Style { exact: options.bytes, raw: options.raw, headless: options.noheadings };
    let is_for_programs = options.raw || options.noheadings;
    let has_devices_only = has_disks_only(options);
    let swaps = match has_devices_only {
        true => String::new(),
        false => status::table(&swaps, daemon.swap_cache.as_ref(), options.bytes),
    };
    let mut text = match devices.is_empty() && !swaps.is_empty() {
        true => String::new(),
        false => columns::table(&devices, columns, style),
    };
    if !swaps.is_empty() && !devices.is_empty() {
        text.push('\n');
    }
    text += &swaps;
    if !has_devices_only {
        if all_of_them {
            text += &format!("\n{}", status::zone_line(&daemon.zone, options.bytes));
            if daemon.by_io_uring {
                text += "requests to files and loop devices come by io_uring\n";
            }
        }
        for device in devices.iter().filter(|it| it.mountpoints.iter().any(|it| it == SWAP)) {
            text += &format!("\n{}\n", swapped_to(&device.name));
        }
    }
    if !is_for_programs {
        text.extend(devices.iter().filter_map(refused));
        let clones = devices.iter().filter_map(cloned).collect::<Vec<_>>();
        if !clones.is_empty() {
            text += &format!("\n{}\n", clones.join("\n"));
        }
        if daemon.is_abandoned {
            text += &format!("\n{}\n", abandoned(daemon.pid));
        }
    }
    answer(shown(&text))
}

/// `rampack names`.
///
/// # Errors
/// As [`add`].
pub(crate) fn names(root: &Root) -> Result<(), ControlError> {
    let daemon = client::report(root)?;
    let devices = daemon.devices.into_iter().map(|device| device.name);
    let swaps = daemon.swaps.into_iter().map(|swap| swap.name);
    answer(devices.chain(swaps).map(|name| name + "\n").collect::<String>())
}

/// What `rampack status --json` prints, which [`schema`] describes.
#[must_use]
pub fn status_object(daemon: &DaemonReport, columns: &[&Column]) -> Value {
    let devices: Vec<_> = daemon.devices.iter().map(|it| columns::object(it, columns)).collect();
    json!({
        "version": schema::VERSION,
        "rampack": daemon.rampack,
        "pid": daemon.pid,
        "root": daemon.root,
        "nbd": daemon.nbd,
        "by_io_uring": daemon.by_io_uring,
        "abandoned": daemon.is_abandoned,
        "devices": devices,
        "swaps": daemon.swaps.iter().map(status::object).collect::<Vec<_>>(),
        "swap_cache": daemon.swap_cache.as_ref().map(status::pool_object),
        "zone": daemon.zone,
    })
}

/// `rampack status --schema`.
///
/// # Errors
/// When standard output fails.
pub(crate) fn schema(options: &Status) -> Result<(), ControlError> {
    let all: Vec<&Column> = columns::COLUMNS.iter().collect();
    let columns = options.output.as_ref().map_or(&all, |names| &names.0);
    answer(format!("{:#}\n", schema::of(columns)))
}

/// What is said of a device that could not be taken over.
fn refused(device: &DeviceReport) -> Option<String> {
    let (name, why) = (&device.name, device.refused.as_ref()?);
    Some(format!(
        "\n{name} could not be taken over: {why}; what there is of it stays for another program \
         until `rampack remove {name}` gives it up\n"
    ))
}

/// What is said of a clone.
fn cloned(device: &DeviceReport) -> Option<String> {
    let (name, origin) = (&device.name, device.clone_of.as_ref()?);
    Some(format!("{name} is a clone of {origin}, with which their memory counts."))
}

/// Does the table have disks alone? Columns are theirs, and programs want one line for each.
fn has_disks_only(options: &Status) -> bool {
    !options.json && (options.raw || options.noheadings || options.output.is_some())
}

/// The disks and swap devices that the user asks for.
fn chosen(
    daemon: &DaemonReport,
    options: &Status,
) -> Result<(Vec<DeviceReport>, Vec<SwapReport>), ControlError> {
    let (disks, swaps) = (&daemon.devices, &daemon.swaps);
    for name in &options.names {
        let is_swap = swaps.iter().any(|it| it.name == *name);
        if is_swap && has_disks_only(options) {
            return Err(ControlError::invalid(format!(
                "{name} is a swap device: --output, --raw and --noheadings are of disks; leave \
                 them out, or write --json"
            )));
        }
        if !is_swap && disks.iter().all(|it| it.name != *name) {
            let known = disks.iter().map(|it| &*it.name).chain(swaps.iter().map(|it| &*it.name));
            let known = match known.collect::<Vec<_>>().join(" ") {
                none if none.is_empty() => "there are none".to_owned(),
                known => format!("there are: {known}"),
            };
            let message = format!("no device {name:?}; {known}");
            return Err(ControlError::new(Errno::ENODEV, message));
        }
    }
    if options.names.is_empty() {
        return Ok((disks.clone(), swaps.clone()));
    }
    let disk = |name: &String| disks.iter().find(|it| it.name == *name).cloned();
    let is_named = |swap: &&SwapReport| options.names.contains(&swap.name);
    let disks = options.names.iter().filter_map(disk).collect();
    Ok((disks, swaps.iter().filter(is_named).cloned().collect()))
}

/// `rampack get`.
///
/// # Errors
/// As [`add`].
pub(crate) fn get(root: &Root, options: &Get) -> Result<(), ControlError> {
    let device = options.name.clone();
    if options.describe {
        let rows: Vec<Description> = call(root, &Request::Describe(Describe { device }))?;
        return answer(described(&rows));
    }
    let attributes = options.attributes.clone();
    let values: Vec<Attribute> = call(root, &Request::Get(protocol::Get { device, attributes }))?;
    match (&values[..], options.all) {
        // As the file of the attribute has it: a program may take it for a path.
        ([only], false) => answer(bytes_of(&format!("{}\n", only.value))),
        _ => {
            let width = values.iter().map(|it| it.name.len()).max().unwrap_or(0);
            let line = |it: &Attribute| format!("{:<width$} {}\n", it.name, it.value.trim());
            answer(shown(&values.iter().map(line).collect::<String>()))
        }
    }
}

fn described(rows: &[Description]) -> String {
    let longest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let width = longest.max("ATTRIBUTE".len());
    let mut text = format!("{:<width$} {:<5} {:<7} MEANING\n", "ATTRIBUTE", "MODE", "UNIT");
    for row in rows {
        let read = if row.mode & 0o400 != 0 { 'r' } else { '-' };
        let write = if row.mode & 0o200 != 0 { 'w' } else { '-' };
        text += &format!("{:<width$} {read}{write}    {:<7} {}\n", row.name, row.unit, row.help);
    }
    text
}

/// `rampack tree`.
///
/// # Errors
/// As [`add`].
pub(crate) fn tree(root: &Root, options: &Tree) -> Result<(), ControlError> {
    let request = protocol::Tree { values: options.values };
    let rows: Vec<TreeAttribute> = call(root, &Request::Tree(request))?;
    if options.json {
        return answer(format!("{:#}\n", json!(rows)));
    }
    answer(shown(&rows.iter().map(tree_line).collect::<String>()))
}

/// The line of one attribute: its mode, unit and path, then its value or else its help.
#[must_use]
pub fn tree_line(row: &TreeAttribute) -> String {
    let said = row.value.as_deref().unwrap_or(&row.help);
    let said = said.trim_end().replace('\n', "\n    ");
    format!("{:04o} {:<7} {:<42} {said}\n", row.mode, row.unit, row.path)
}

/// `rampack set`.
///
/// # Errors
/// As [`add`].
pub(crate) fn set(root: &Root, options: &Set) -> Result<(), ControlError> {
    for Attribute { name, value } in options.attributes()? {
        let set = protocol::Set { device: options.name.clone(), attribute: name, value };
        call::<()>(root, &Request::Set(set))?;
    }
    Ok(())
}

/// `rampack stop`.
///
/// # Errors
/// As [`add`].
pub(crate) fn stop(root: &Root, force: bool) -> Result<(), ControlError> {
    let process = root.pid();
    let swaps = match client::report(root) {
        Ok(daemon) => daemon.swaps,
        // I/O of a device hangs: that is a reason to end the daemon by force.
        Err(error) if force && error.errno == Errno(errno::ETIMEDOUT) => Vec::new(),
        Err(error) => return Err(error),
    };
    let swaps = swaps.into_iter().map(|swap| (swap.name, machine::path_of(&swap.block_device)));
    let progress = Progress::begin(swaps.collect());
    call::<()>(root, &Request::Stop(protocol::Stop { force }))?;
    drop(progress);
    // The next daemon in this root needs the lock, which this one gives back with its memory.
    while root.is_claimed() && root.pid() == process {
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
