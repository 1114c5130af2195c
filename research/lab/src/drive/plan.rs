//! The plan of a run.

use super::content::Content;
use super::modes::Workload;
use super::subject::{Setting, Subject};

/// The plan of a run.
pub struct Plan {
    /// The workload of the threads.
    pub workload: Workload,
    /// The contents of the pages.
    pub content: Content,
    /// Numbers of threads, in the order of the command line.
    pub threads: Vec<usize>,
    /// Turns of each subject.
    pub repeat: usize,
    /// The subjects that take turns. The others are compared with the first.
    pub subjects: Vec<Subject>,
    /// The setting that all subjects share.
    pub setting: Setting,
    /// The CPUs of the threads.
    pub cpus: Vec<usize>,
}
