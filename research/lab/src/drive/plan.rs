//! All that a run is made of.

use super::content::Content;
use super::modes::Workload;
use super::subject::{Setting, Subject};

/// What takes part in a run, and how often.
pub struct Plan {
    /// What threads do.
    pub workload: Workload,
    /// What pages contain.
    pub content: Content,
    /// Numbers of threads, in the order of the command line.
    pub threads: Vec<usize>,
    /// Turns of each subject.
    pub repeat: usize,
    /// Who takes turns; the others are compared with the first.
    pub subjects: Vec<Subject>,
    /// What is the same for all.
    pub setting: Setting,
    /// CPUs that threads run on.
    pub cpus: Vec<usize>,
}
