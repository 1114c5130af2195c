//! Every attribute there is, against a list that is kept by hand: nothing appears, changes its mode
//! or goes without somebody having seen it.

use std::path::Path;
use std::sync::Arc;

use service::devices::Devices;
use service::protocol::{Add, TreeAttribute};
use service::root::Root;

/// One device.
pub fn devices() -> Arc<Devices> {
    let root = Root::choose(Some(Path::new("/nonexistent/rampack"))).unwrap();
    let devices = Arc::new(Devices::new(root, service::engine::new().unwrap(), None));
    devices.add(&Add::default()).unwrap();
    devices
}

/// The tree with one device.
pub fn rows() -> Vec<TreeAttribute> {
    service::tree::listing(&devices(), false)
}

#[test]
fn the_tree_is_the_one_on_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tree.txt");
    let text: String = rows().iter().map(cli::commands::tree_line).collect();
    if std::env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let list = std::fs::read_to_string(&path).unwrap();
    for (listed, found) in list.lines().zip(text.lines()) {
        assert_eq!(listed, found, "RAMPACK_GOLDEN=write makes the list anew, to be looked at");
    }
    assert_eq!(list.lines().count(), text.lines().count());
}
