//! Writes the man pages and the completions of shells, made from the definitions of the command
//! line and of the attributes: `cargo xtask manuals` runs it. It is an example, so that the program
//! that users have knows nothing of it.

mod write;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use service::devices::Devices;
use service::protocol::Add;
use service::root::Root;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, date] = &words[..] else {
        eprintln!("usage: manuals DIRECTORY YYYY-MM-DD");
        return ExitCode::from(2);
    };
    let written = Root::choose(Some(Path::new("/nonexistent/rampack")))
        .and_then(|root| Ok(Arc::new(Devices::new(root, service::engine::new()?, None))))
        .and_then(|devices| devices.add(&Add::default()).map(|_| devices))
        .map_err(|error| error.to_string())
        .and_then(|devices| {
            let rows = service::tree::listing(&devices, false);
            write::all(Path::new(directory), date, &rows).map_err(|error| error.to_string())
        });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{directory}: {error}");
            ExitCode::FAILURE
        }
    }
}
